// Taking constants out: which functions may be given arguments, what each needs, and the constants
// replaced.
#include "weights.h"

#include <algorithm>
#include <set>

#include "reader.h"

namespace postern::internal::imported {

namespace {

using Kind = VhloAttribute::Kind;

class Taking {
 public:
  Taking(Bytecode& code, Vhlo& vhlo, const std::map<std::string, Operation*>& functions)
      : code_(code), vhlo_(vhlo), functions_(functions) {}

  Weights take(const std::vector<std::string>& callers_first, const std::string& entry) {
    for (const std::string& function : callers_first) survey(function);
    Weights out;
    for (auto f = callers_first.rbegin(); f != callers_first.rend(); ++f) {
      if (fixed_.contains(*f) || !functions_.contains(*f)) continue;
      change(*f);
      if (const std::size_t count = needs_[*f].size()) out.added[*f] = count;
    }
    for (const std::size_t attribute : needs_[entry]) {
      const VhloAttribute& value = vhlo_.attribute(attribute);
      out.values.emplace_back(mlir_type(vhlo_.type(value.type).builtin), value.bytes.data());
    }
    return out;
  }

 private:
  std::string_view name_of(const Operation& op) const {
    return bare_name(code_.operations[op.name]);
  }
  std::vector<Operation>& body(const std::string& function) {
    return functions_.at(function)->regions[0][0].operations;
  }
  std::string callee(const Operation& op, std::string_view key) {
    return std::string(vhlo_.attribute(Vhlo::find(vhlo_.properties(op), key)).bytes);
  }

  /// Notes those that stay as they are: whom others than calls name, and all that such ones call.
  void survey(const std::string& function) {
    if (!functions_.contains(function)) return;
    each(body(function), fixed_.contains(function), [&](const Operation& op, bool applied) {
      const std::string_view name = name_of(op);
      if (name == "call" && applied) {
        fixed_.insert(callee(op, "callee"));
      } else if (name == "composite") {
        fixed_.insert(callee(op, "decomposition"));
      } else if (name == "custom_call") {
        const auto own = vhlo_.properties(op);
        for (const std::size_t f : vhlo_.attribute(Vhlo::find(own, "called_computations")).items)
          fixed_.emplace(vhlo_.attribute(f).bytes);
      }
    });
  }
  template <class F>
  void each(std::vector<Operation>& operations, bool applied, const F& f) {
    for (Operation& op : operations) {
      f(op, applied);
      const bool inside = applied || applies_bodies(name_of(op));
      for (auto& blocks : op.regions)
        for (Block& block : blocks) each(block.operations, inside, f);
    }
  }

  /// Returns the attribute that is the operation's value, where it is a large constant.
  std::optional<std::size_t> weight(const Operation& op) {
    if (name_of(op) != "constant" || op.results.size() != 1) return std::nullopt;
    const std::size_t index = Vhlo::find(vhlo_.properties(op), "value");
    const VhloAttribute& value = vhlo_.attribute(index);
    const VhloType& type = vhlo_.type(value.type);
    if (value.kind != Kind::tensor || value.bytes.size() < large_constant ||
        vhlo_.type(code_.value_types[op.results[0]]).builtin != type.builtin)
      return std::nullopt;
    const Type own = mlir_type(type.builtin);
    if (own.dtype == DType::pred || bit_width(own.dtype) < 8 ||
        own.byte_size() != value.bytes.size())
      return std::nullopt;
    return index;
  }

  void change(const std::string& function) {
    given_.clear();
    stands_for_.clear();
    without_constants(body(function), function);
    each(body(function), false, [&](Operation& op, bool) {
      for (std::size_t& v : op.operands)
        if (const auto found = stands_for_.find(v); found != stands_for_.end()) v = found->second;
      if (name_of(op) != "call") return;
      const auto found = needs_.find(callee(op, "callee"));
      if (found == needs_.end()) return;
      for (const std::size_t attribute : found->second)
        op.operands.push_back(argument(function, attribute, types_.at(attribute)));
    });
  }
  void without_constants(std::vector<Operation>& operations, const std::string& function) {
    std::erase_if(operations, [&](const Operation& op) {
      const auto attribute = weight(op);
      if (!attribute) return false;
      const std::size_t type = code_.value_types[op.results[0]];
      stands_for_[op.results[0]] = argument(function, *attribute, type);
      return true;
    });
    for (Operation& op : operations)
      if (!applies_bodies(name_of(op)))
        for (auto& blocks : op.regions)
          for (Block& block : blocks) without_constants(block.operations, function);
  }
  /// Returns the function's argument that has that value.
  std::size_t argument(const std::string& function, std::size_t attribute, std::size_t type) {
    const auto [found, is_new] = given_.try_emplace(attribute, code_.value_types.size());
    if (is_new) {
      code_.value_types.push_back(type);
      functions_.at(function)->regions[0][0].arguments.push_back(found->second);
      needs_[function].push_back(attribute);
      types_[attribute] = type;
    }
    return found->second;
  }

  Bytecode& code_;
  Vhlo& vhlo_;
  const std::map<std::string, Operation*>& functions_;
  std::set<std::string> fixed_;
  std::map<std::string, std::vector<std::size_t>> needs_;  // attributes, by function
  std::map<std::size_t, std::size_t> types_;               // of attributes
  std::map<std::size_t, std::size_t> given_, stands_for_;  // in the function that is changed
};

}  // namespace

Weights take_weights(Bytecode& code, Vhlo& vhlo, const std::map<std::string, Operation*>& functions,
                     const std::vector<std::string>& callers_first, const std::string& entry) {
  return Taking(code, vhlo, functions).take(callers_first, entry);
}

}  // namespace postern::internal::imported
