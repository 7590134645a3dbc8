// Three walks over a module: what stays, who calls whom, what is hidden.
#include "vhlo_module.h"

#include <algorithm>

#include "rules.h"
#include "spi.h"

namespace postern::internal::imported {

namespace {

using Kind = VhloAttribute::Kind;

class Preparation {
 public:
  Preparation(Bytecode& code, Vhlo& vhlo, const Exported* exported)
      : code_(code), vhlo_(vhlo), exported_(exported) {}

  Prepared prepare(std::vector<Operation>& top, const std::string& entry) {
    keep_needed(top);
    for (Operation& op : top) {
      if (name_of(op) != "vhlo.func_v1" || !is_whole(op)) continue;
      function_ = vhlo_.attribute(Vhlo::find(vhlo_.properties(op), "sym_name")).bytes;
      if (!calls_.try_emplace(function_).second)
        refuse_damaged(fmt::format("there are several functions @{}", function_));
      functions_[function_] = &op;
      survey(op, false, 1);
    }
    for (const std::string& name : brought_)  // XLA dies of those that there are not
      if (!functions_.contains(name))
        refuse_damaged(fmt::format("there is no function @{}, which a custom call names", name));
    const std::vector<std::string> order = callers_first(calls_);
    if (const auto refused = bodies_.refused(calls_))
      throw Error(ErrorCode::unimplemented, refused->why);
    Prepared out{needed_functions(entry), take_weights(code_, vhlo_, functions_, order, entry)};
    barrier_ = code_.operations.size();
    code_.operations.emplace_back("vhlo.optimization_barrier_v1");
    for (const std::string& function : order) {
      function_ = function;
      Block& body = functions_.at(function)->regions[0][0];
      for (const std::size_t i : constant_arguments_[function])
        if (i < body.arguments.size()) constants_.insert(body.arguments[i]);
      hide(body.operations, true);
    }
    return out;
  }

 private:
  const std::string& name_of(const Operation& op) const { return code_.operations[op.name]; }
  const std::string& type_of(std::size_t value) {
    return vhlo_.type(code_.value_types[value]).builtin;
  }
  static bool is_whole(const Operation& function) {
    return function.regions.size() == 1 && function.regions[0].size() == 1;
  }

  // --- what stays

  /// Shardy's constraints have nothing to do on one device, nor have the conversions to its types:
  /// their operands take their place.
  void keep_needed(std::vector<Operation>& operations) {
    std::vector<Operation> all = std::move(operations);
    operations.clear();
    for (Operation& op : all) keep(op, operations);
  }
  void keep(Operation& op, std::vector<Operation>& kept) {
    for (std::size_t& v : op.operands)
      if (const auto found = stands_for_.find(v); found != stands_for_.end()) v = found->second;
    if (is_placing(op)) {
      if (!op.results.empty()) stands_for_[op.results[0]] = op.operands[0];
      return;
    }
    if (hands_on(op)) {
      check_devices(op);
      for (std::size_t i = 0; i < op.results.size(); ++i)
        stands_for_[op.results[i]] = op.operands[i];
      return;
    }
    const std::string& name = name_of(op);
    if (name == "vhlo.func_v1" && is_whole(op)) platform_arguments(op);
    if (name == "vhlo.case_v1" && op.operands.size() == 1)
      if (const auto number = numbers_.find(op.operands[0]); number != numbers_.end())
        return keep_branch(op, number->second, kept);
    if (name == "vhlo.constant_v1" && !numbers_.empty()) note_number(op);
    for (auto& blocks : op.regions)
      for (Block& block : blocks) keep_needed(block.operations);
    kept.push_back(std::move(op));
  }
  bool is_placing(const Operation& op) const {
    const std::string& name = name_of(op);
    if (name == "sdy.mesh") return op.results.empty();
    return (name == "sdy.sharding_constraint" || name == "builtin.unrealized_conversion_cast") &&
           op.operands.size() == 1 && op.results.size() == 1;
  }

  /// Collectives that StableHLO 1.13 or the plug-in does not have: on one device they give what
  /// they are given.
  bool hands_on(const Operation& op) {
    const std::string& name = name_of(op);
    const bool async = name == "vhlo.async_start_v1";  // gives a future
    if (!async && name != "vhlo.async_done_v1" && name != "vhlo.collective_reduce_v1" &&
        !name.starts_with("vhlo.collective_broadcast_v"))
      return false;
    if (op.operands.size() < op.results.size()) refuse_damaged(name + " has too few operands");
    for (std::size_t i = 0; i < op.results.size() && !async; ++i)
      if (type_of(op.operands[i]) != type_of(op.results[i]))
        refuse_damaged(name + " changes a type");
    return true;
  }
  void check_devices(const Operation& op) {
    static_cast<void>(vhlo_.properties(op));
    for (const auto& blocks : op.regions)
      for (const Block& block : blocks)
        for (const Operation& inner : block.operations) check_devices(inner);
  }

  void platform_arguments(const Operation& function) {
    const auto& about = vhlo_.attribute(Vhlo::find(vhlo_.properties(function), "arg_attrs")).items;
    const auto& arguments = function.regions[0][0].arguments;
    for (std::size_t i = 0; i < arguments.size() && i < about.size(); ++i)
      if (is_platform(vhlo_, about[i]))
        numbers_[arguments[i]] = static_cast<std::int64_t>(platform_number(exported_));
  }
  void note_number(const Operation& op) {
    if (op.results.size() != 1 || type_of(op.results[0]) != "tensor<i32>") return;
    const Attribute value = vhlo_.host_attribute(Vhlo::find(vhlo_.properties(op), "value"));
    if (const auto* n = std::get_if<std::vector<std::int64_t>>(&value); n && n->size() == 1)
      numbers_[op.results[0]] = n->front();
  }
  /// As XLA chooses it: a number that is out of range means the last.
  void keep_branch(Operation& op, std::int64_t number, std::vector<Operation>& kept) {
    if (op.regions.empty()) refuse_damaged("a case has no branches");
    auto at = static_cast<std::size_t>(number);
    if (number < 0 || at >= op.regions.size()) at = op.regions.size() - 1;
    std::vector<Block>& blocks = op.regions[at];
    if (blocks.size() != 1 || blocks[0].operations.empty() || !blocks[0].arguments.empty())
      refuse_damaged("a branch has not one block without arguments");
    const std::size_t before = kept.size();
    for (Operation& inner : blocks[0].operations) keep(inner, kept);
    if (kept.size() == before) refuse_damaged("a branch does not end with what it returns");
    const Operation end = std::move(kept.back());
    kept.pop_back();
    const auto types = [&](const std::vector<std::size_t>& values) {
      std::vector<std::string> out;
      for (const std::size_t v : values) out.push_back(vhlo_.type(code_.value_types[v]).text);
      return out;
    };
    if (name_of(end) != "vhlo.return_v1" || types(end.operands) != types(op.results))
      refuse_damaged("a branch does not end with what it returns");
    for (std::size_t i = 0; i < op.results.size(); ++i)
      stands_for_[op.results[i]] = end.operands[i];
  }

  // --- who calls whom

  /// `depth`: in how many regions of the function its operations stand.
  void survey(const Operation& owner, bool applied, std::size_t depth) {
    applied = applied || applies_bodies(bare_name(name_of(owner)));
    for (const auto& blocks : owner.regions)
      for (const Block& block : blocks)
        for (const Operation& op : block.operations) {
          const std::string_view name = bare_name(name_of(op));
          std::string_view target;
          if (name == "call" || name == "composite")
            calls(applied, callee_of(op), depth);
          else if (name == "custom_call")
            target = custom_target(op, applied, depth);
          shapes_ = shapes_ || takes_shapes(name);
          bodies_.holds(function_, applied, name, target, 0);
          if (name_of(op).starts_with("vhlo."))
            require_possible(name, types(op.operands), types(op.results));
          survey(op, applied, depth + 1);
        }
  }
  void calls(bool applied, std::string_view callee, std::size_t depth) {
    calls_[function_][std::string(callee)].add(depth);
    bodies_.calls(applied, std::string(callee));
  }
  std::string_view callee_of(const Operation& op) {
    std::string_view key = "decomposition";
    if (name_of(op) == "vhlo.call_v1") key = "callee";
    return vhlo_.attribute(Vhlo::find(vhlo_.properties(op), key)).bytes;
  }
  std::string_view custom_target(const Operation& op, bool applied, std::size_t depth) {
    const Vhlo::Named own = vhlo_.properties(op);
    for (const std::size_t f : vhlo_.attribute(Vhlo::find(own, "called_computations")).items) {
      calls(applied, vhlo_.attribute(f).bytes, depth);
      brought_.emplace(vhlo_.attribute(f).bytes);
    }
    return vhlo_.attribute(Vhlo::find(own, "call_target_name")).bytes;
  }
  std::vector<std::string_view> types(const std::vector<std::size_t>& values) {
    std::vector<std::string_view> out;
    for (const std::size_t v : values) out.push_back(type_of(v));
    return out;
  }
  std::set<std::string> needed_functions(const std::string& entry) const {
    std::set<std::string> out;
    if (!calls_.contains(entry)) {
      for (const auto& [function, callees] : calls_) out.insert(function);
      return out;
    }
    std::vector<std::string> left = {entry};
    while (!left.empty()) {
      const std::string function = std::move(left.back());
      left.pop_back();
      if (!out.insert(function).second) continue;
      if (const auto found = calls_.find(function); found != calls_.end())
        for (const auto& [callee, how] : found->second) left.push_back(callee);
    }
    if (entry != "main" && out.contains("main"))  // the entry has that name in what XLA is given
      throw Error(ErrorCode::unimplemented,
                  fmt::format("the entry @{} calls @main, which a portable artifact cannot; load "
                              "the module's text",
                              entry));
    return out;
  }

  // --- what is hidden

  void hide(std::vector<Operation>& operations, bool of_function) {
    std::vector<Operation> all = std::move(operations);
    operations.clear();
    for (Operation& op : all) {
      hide(op, operations, of_function);
      operations.push_back(std::move(op));
    }
  }
  void hide(Operation& op, std::vector<Operation>& before, bool ends_function) {
    const std::string_view name = bare_name(name_of(op));
    const auto known = [&](std::size_t v) { return constants_.contains(v); };
    const bool constants = !op.operands.empty() && std::ranges::all_of(op.operands, known);
    if (name == "constant" || (constants && moves_only(name))) {
      constants_.insert(op.results.begin(), op.results.end());
    } else if (name == "call" || name == "composite") {
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (known(op.operands[i])) constant_arguments_[std::string(callee_of(op))].insert(i);
    } else if (name == "return" && ends_function && function_ != "main") {
      for (std::size_t i = 0; i < op.operands.size(); ++i)
        if (known(op.operands[i])) hide(op, i, before);
    } else if (!op.operands.empty() && name_of(op).starts_with("vhlo.")) {
      const std::string& type = type_of(op.operands[0]);
      const bool may = constants && !(shapes_ && is_integer_type(type)) && serves(op);
      const std::size_t hidden = constants ? op.operands.size() : 1;
      if (folds_wrongly(name, type, may))
        for (std::size_t i = 0; i < hidden; ++i) hide(op, i, before);
    }
    for (auto& blocks : op.regions)
      for (Block& block : blocks) hide(block.operations, false);
  }
  /// Whether XLA itself serves it, and so may fold it.
  bool serves(const Operation& op) {
    return bare_name(name_of(op)) != "custom_call" ||
           vhlo_.attribute(Vhlo::find(vhlo_.properties(op), "call_target_name"))
               .bytes.starts_with("mhlo.");
  }
  void hide(Operation& op, std::size_t operand, std::vector<Operation>& before) {
    Operation barrier;
    barrier.name = barrier_;
    barrier.operands = {op.operands[operand]};
    barrier.results = {code_.value_types.size()};
    code_.value_types.push_back(code_.value_types[op.operands[operand]]);
    op.operands[operand] = barrier.results[0];
    before.push_back(std::move(barrier));
  }

  Bytecode& code_;
  Vhlo& vhlo_;
  const Exported* const exported_;
  std::map<std::size_t, std::size_t> stands_for_;  // by value
  std::map<std::size_t, std::int64_t> numbers_;    // that are known, by value
  std::string function_;                           // that is read
  std::map<std::string, Operation*> functions_;
  CallGraph calls_;
  AppliedBodies bodies_;
  std::set<std::string> brought_;                                    // by custom calls
  std::set<std::size_t> constants_;                                  // values
  std::map<std::string, std::set<std::size_t>> constant_arguments_;  // by function
  bool shapes_ = false;      // whether there are operations that take some
  std::size_t barrier_ = 0;  // of code_.operations
};

}  // namespace

bool is_platform(Vhlo& vhlo, std::size_t attributes) {
  for (const auto& [key, value] : vhlo.dictionary(attributes)) {
    if (key == "jax.global_constant" &&
        vhlo.attribute(value, Kind::string, key).bytes == "_platform_index")
      return true;
  }
  return false;
}

std::size_t platform_number(const Exported* exported) {
  if (!exported)
    throw Error(ErrorCode::unimplemented,
                "it is for several platforms, and without what jax.export writes around it");
  return platform_position(exported->platforms).value();
}

Prepared prepare(Bytecode& code, Vhlo& vhlo, const Exported* exported, const std::string& entry) {
  return Preparation(code, vhlo, exported)
      .prepare(code.top.operations[0].regions[0][0].operations, entry);
}

}  // namespace postern::internal::imported
