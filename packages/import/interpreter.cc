// Interpreting a module: its operations one after another, each by a rule. What has no rule, or one
// that finds something it has no way for, becomes an operation that is known by its text.
// Operations on small integers that are known run at once: sizes are computed so.
#include "interpreter.h"

#include <postern/transforms.h>

#include <algorithm>
#include <stdexcept>

#include "from_vhlo.h"
#include "rules.h"

namespace postern::internal::imported {

namespace {

const Rule* rule_of(std::string_view name) {
  static const Rules* const all = [] {
    auto* out = new Rules;
    for (const Rules* rules : {&elementwise_rules(), &shape_rules(), &index_rules(),
                               &product_rules(), &control_rules(), &lapack_rules()})
      out->insert(rules->begin(), rules->end());
    return out;
  }();
  const auto found = all->find(name);
  if (found == all->end()) return nullptr;
  return &found->second;
}

/// Sizes, and what is computed of them.
bool is_known_size(const Tensor& x) {
  constexpr std::int64_t most = 64;
  return is_known(x) && (is_integer(x.dtype()) || x.dtype() == DType::pred) && x.size() <= most;
}

bool is_open(std::string_view type) { return type.find('?') != type.npos; }

/// Whether the results are what the text says.
bool as_declared(const Step& step, const Values& results) {
  const std::vector<std::string_view> types = step.module().result_types(step.node);
  if (types.size() != results.size()) return true;  // the short form says less
  for (std::size_t i = 0; i < types.size(); ++i)
    if (results[i].has_value() && types[i].starts_with("tensor<") && !is_open(types[i])) {
      const Type wanted = mlir_type(types[i]);
      if (wanted.dtype != results[i].dtype() || wanted.dims != results[i].dims()) return false;
    }
  return true;
}

bool has_bodies(std::string_view name) {
  return name == "while" || name == "case" || name == "if" || name == "call" ||
         name == "composite" || name == "custom_call";
}

}  // namespace

Type Step::result(std::size_t i) const {
  const std::vector<std::string_view> types = module().result_types(node);
  if (i >= types.size()) throw TypeError(fmt::format("{} has no type {}", node.name, i));
  return mlir_type(types[i]);
}

DType Step::dtype(std::size_t i) const {
  const std::vector<std::string_view> types = module().result_types(node);
  if (i >= types.size()) throw TypeError(fmt::format("{} has no type {}", node.name, i));
  return open_type(types[i]).dtype;
}

std::int64_t Step::integer(std::initializer_list<std::string_view> keys) const {
  const Dims found = integers(keys);
  if (found.size() != 1)
    throw TypeError(fmt::format("{} has no integer {}", node.name, *keys.begin()));
  return found[0];
}

std::string_view Step::only_operation(const NodeRegion& region) {
  if (region.nodes.size() != 2) return {};
  const Node &first = region.nodes[0], &last = region.nodes[1];
  if (last.name != "return" || first.operands != region.arguments ||
      last.operands != first.results || !first.regions.empty())
    return {};
  return first.name;
}

const Tensor& Frame::value(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end())
    throw Error(ErrorCode::invalid_argument, fmt::format("{} has no value where it is used", name));
  return found->second;
}

const Node* Frame::maker(const std::string& name) const {
  const auto found = makers_.find(name);
  if (found == makers_.end()) return nullptr;
  return found->second;
}

Values Frame::run(const NodeRegion& region, std::span<const Tensor> arguments) {
  if (region.arguments.size() != arguments.size())
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("a body takes {} values, {} came", region.arguments.size(), arguments.size()));
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    values_[region.arguments[i]] = arguments[i];
    makers_.erase(region.arguments[i]);  // another region may have used the name
  }
  for (const Node& node : region.nodes) {
    const PlaceScope::Replace at(opened.module.place(node));
    if (node.name == "return") {
      Values out;
      for (const std::string& name : node.operands) out.push_back(value(name));
      return out;
    }
    Values results = shown_step(node);
    if (results.size() < node.results.size())
      throw Error(ErrorCode::internal, fmt::format("{} gave {} values in place of {}", node.name,
                                                   results.size(), node.results.size()));
    for (std::size_t i = 0; i < node.results.size(); ++i)
      values_[node.results[i]] = std::move(results[i]);
  }
  throw Error(ErrorCode::invalid_argument, "a body does not return");
}

namespace {

/// A name behind the names that lead to it, but for those that it has itself.
std::string joined(const std::string& path, const std::string& name) {
  const std::string first = path.substr(0, path.find('/'));
  if (path.empty() || (name.starts_with(first) && name.substr(first.size()).starts_with("/")))
    return name;
  return name.empty() ? path : fmt::format("{}/{}", path, name);
}

LoadedOperation described(const Module& module, const Node& node, const std::string& path,
                          bool constant) {
  const bool of_func = node.name == "call" || node.name == "func" || node.name == "return";
  std::string operation = fmt::format("{}.{}", of_func ? "func" : "stablehlo", node.name);
  if (!node.symbol.empty()) operation += fmt::format(" @{}", node.symbol);
  const Location at = module.location(node);
  std::vector<Type> results;
  for (const std::string_view type : module.result_types(node))
    if (type != mlir_token) results.push_back(open_type(type));
  return {at.name.empty() ? "" : joined(path, at.name), std::move(operation), std::move(results),
          constant, module.place(node)};
}

}  // namespace

bool Constants::take(const Node& node) {
  const auto known = [this](const std::string& name) { return known_.contains(name); };
  if (!node.regions.empty() || !node.symbol.empty() || node.name.starts_with("rng") ||
      !std::ranges::all_of(node.operands, known)) {
    // Regions beside each other may use a name again.
    for (const std::string& result : node.results) known_.erase(result);
    return false;
  }
  known_.insert(node.results.begin(), node.results.end());
  return true;
}

Frame Frame::called_by(const Node& node) const {
  if (!opened.around) return Frame(opened);
  Frame out(opened, joined(path_, opened.module.location(node).name));
  out.applied_ = applied_;
  return out;
}

Frame Frame::around(const Node& node) const {
  Frame out(opened, path_);
  out.applied_ = applied_;
  for (const std::string& name : opened.module.uses(node)) {
    const auto value = values_.find(name);
    const auto made = makers_.find(name);
    if (value != values_.end()) out.values_.insert(*value);
    if (made != makers_.end()) out.makers_.insert(*made);
  }
  return out;
}

void Frame::set(const Node& node, const Values& operands) {
  for (std::size_t i = 0; i < operands.size(); ++i) values_[node.operands.at(i)] = operands[i];
}

/// What took an operation's place did not make its results: no rule may look at the operation.
Values Frame::shown_step(const Node& node) {
  const Node* maker = &node;
  Values out;
  if (!opened.around || applied_) {
    out = checked_step(node);
  } else {
    maker = nullptr;
    out = opened.around(described(opened.module, node, path_, constants_.take(node)),
                        operands_of(node), [&] {
                          applied_ = applies_bodies(node.name);
                          Values own = checked_step(node);
                          applied_ = false;
                          maker = &node;
                          return own;
                        });
  }
  for (const std::string& result : node.results) makers_[result] = maker;
  return out;
}

/// What XLA has not seen may lack operands, attributes and bodies.
Values Frame::checked_step(const Node& node) {
  try {
    return step(node);
  } catch (const std::out_of_range&) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("load: {}: a {} lacks something that it must have",
                            opened.module.name(), node.name));
  }
}

Values Frame::operands_of(const Node& node) const {
  std::size_t stride = 1;  // of a loop half of the names may be its bodies'
  if (node.name == "while" &&
      opened.module.region(node.regions.at(0)).arguments.size() * 2 == node.operands.size())
    stride = 2;
  Values out;
  for (std::size_t i = stride - 1; i < node.operands.size(); i += stride)
    out.push_back(value(node.operands[i]));
  return out;
}

Values Frame::step(const Node& node) {
  const Values x = operands_of(node);
  const Rule* const rule = rule_of(node.name);
  const Step step{*this, node, x};
  if (!rule) return as_written(step);
  if (has_bodies(node.name)) return (*rule)(step);
  std::optional<AtOnce> now;
  if (!x.empty() && node.regions.empty() && std::ranges::all_of(x, is_known_size)) now.emplace();
  try {
    Values results = (*rule)(step);
    if (!results.empty() && as_declared(step, results)) return results;
  } catch (const TypeError&) {  // it takes less than the operation
    if (std::ranges::any_of(opened.module.operand_types(node), is_open)) throw;  // it has no text
  }
  now.reset();
  return as_written(step);
}

/// An operation's text with its operands by new names, and without locations.
static std::string with_new_names(std::string body, const std::vector<std::string>& uses,
                                  const std::string& file) {
  constexpr std::string_view location = " loc(";
  for (std::size_t i = 0; i < body.size();) {
    if (body[i] == '"') {
      i = MlirText(body, file).string_end(i);
    } else if (body.compare(i, location.size(), location) == 0) {
      body.erase(i, MlirText(body, file).bracket_end(i + location.size() - 1) - i);
    } else if (body[i] == '%') {
      std::size_t end = i + 1;
      while (end < body.size() && (MlirText::is_word(body[end]) || body[end] == '#')) ++end;
      const auto use = std::ranges::find(uses, body.substr(i, end - i));
      if (use != uses.end()) {
        const std::string name = fmt::format("%operand_{}", use - uses.begin());
        body.replace(i, end - i, name);
        end = i + name.size();
      }
      i = end;
    } else {
      ++i;
    }
  }
  return body;
}

/// A sort's text with one operand more, `%places`, that goes along.
static std::string with_places(std::string body, const std::string& type, const std::string& file) {
  const auto insert = [&](std::size_t open, const std::string& text) {
    body.insert(MlirText(body, file).bracket_end(open) - 1, text);
  };
  insert(body.find("(%"), ", %places");
  insert(body.find('(', body.find("^")), ", %place_a: tensor<i32>, %place_b: tensor<i32>");
  const std::size_t types = body.rfind(" : (");
  const std::size_t arrow = body.find("->", types);
  if (types == body.npos || arrow == body.npos) throw TypeError("sort: its text can't be read");
  std::size_t results = body.find_first_not_of(' ', arrow + 2);
  if (body[results] == '(')
    insert(results, ", " + type);
  else
    body = fmt::format("{}({}, {})", body.substr(0, results), body.substr(results), type);
  insert(types + 3, ", " + type);
  return body;
}

namespace {

/// What a function says of an operation's results. They have no name where there are none.
struct ResultsText {
  std::string types, assigned, end = "return";
};
ResultsText results_text(const std::vector<Type>& results) {
  ResultsText out;
  std::string returned;
  Separator before_type, before_returned;
  for (std::size_t i = 0; i < results.size(); ++i) {
    out.types += fmt::format("{}{}", before_type(), mlir_text(results[i]));
    returned += fmt::format("{}%result", before_returned());
    if (results.size() > 1) returned += fmt::format("#{}", i);
  }
  if (results.empty()) return out;
  out.assigned = "%result = ";
  if (results.size() > 1) out.assigned = fmt::format("%result:{} = ", results.size());
  out.end = fmt::format("return {} : {}", returned, out.types);
  return out;
}

}  // namespace

Values as_written(const Step& step, const AsWritten& how) {
  const Module& module = step.module();
  const Node& node = step.node;
  std::vector<std::string_view> types = module.operand_types(node);
  for (const std::string_view t : module.result_types(node)) types.push_back(t);
  if (std::ranges::any_of(types, is_open))
    throw Error(
        ErrorCode::unimplemented,
        fmt::format("{}: no such operation can be computed at sizes that are open", node.name));
  WrittenOperation out{fmt::format("stablehlo.{}", node.name), {}, {}, how.handlers};
  if (node.name == "rng" || node.attribute("has_side_effect") == "true")
    out.effect = Effect::unordered;
  std::string parameters, constants;
  Values operands;
  Separator before_parameter;
  const std::vector<std::string> uses = module.uses(node);
  for (std::size_t i = 0; i < uses.size(); ++i) {
    // Bodies may hold constants from outside, and no other values.
    if (const Node* made = step.frame.maker(uses[i]); made && made->name == "constant") {
      constants +=
          fmt::format("%operand_{} = {}\n    ", i,
                      with_new_names(std::string(module.text_of(*made)), {}, module.name()));
      continue;
    }
    const Tensor& value = step.frame.value(uses[i]);
    if (!value.has_value())
      throw Error(ErrorCode::unimplemented,
                  fmt::format("{}: a token can't be handed to such an operation", node.name));
    parameters += fmt::format("{}%operand_{}: {}", before_parameter(), i, mlir_text(value.type()));
    operands.push_back(how.constant ? stop_gradient(value) : value);
  }
  for (std::size_t i = 0; i < node.results.size(); ++i) out.results.push_back(step.result(i));
  if (how.places_along) {
    out.results.push_back({DType::s32, out.results.at(0).dims});
    operands.push_back(iota(out.results.back(), *how.places_along));
    parameters += fmt::format("{}%places: {}", before_parameter(), mlir_text(out.results.back()));
  }
  const ResultsText results = results_text(out.results);
  std::string body = with_new_names(std::string(module.text_of(node)), uses, module.name());
  if (how.places_along)
    body = with_places(std::move(body), mlir_text(out.results.back()), module.name());
  const std::string others = module.functions_named(body, fmt::format("{}_", placeholder));
  out.function = fmt::format("  func.func private @{}({}) -> ({}) {{\n    {}{}{}\n    {}\n  }}\n{}",
                             placeholder, parameters, results.types, constants, results.assigned,
                             body, results.end, others);
  return written(out, operands);
}

static bool is_portable(const std::string& text) { return text.find("\"vhlo.") != text.npos; }

Opened::Opened(const std::string& text, std::string name,
               std::vector<std::shared_ptr<const SiteSpec>> s, Around a)
    : module(is_portable(text) ? from_vhlo(text) : text, std::move(name), !is_portable(text)),
      sites(std::move(s)),
      around(std::move(a)) {}

std::vector<LoadedOperation> operations_in(const std::string& text, const std::string& name) {
  constexpr std::size_t most = 1'000'000;
  const Opened opened(text, name);
  const Module& module = opened.module;
  std::vector<LoadedOperation> out;
  const auto add = [&](const auto& self, const NodeRegion& region, const std::string& path,
                       Constants& constants) -> void {
    for (const Node& node : region.nodes) {
      if (node.name == "return") continue;
      if (out.size() == most)
        throw Error(ErrorCode::resource_exhausted,
                    fmt::format("load: {}: it has more than {} operations, as often as its "
                                "functions are called",
                                name, most));
      out.push_back(described(module, node, path, constants.take(node)));
      if (node.name == "call" || node.name == "composite") {
        Constants inside;
        self(self, module.function(node.symbol), joined(path, module.location(node).name), inside);
      }
      if (!applies_bodies(node.name))
        for (const std::size_t r : node.regions) self(self, module.region(r), path, constants);
    }
  };
  Constants constants;
  add(add, module.function("main"), "", constants);
  return out;
}

Function open_module(const std::string& text, std::vector<std::shared_ptr<const SiteSpec>> sites,
                     const std::string& name, std::vector<Change> changes) {
  const auto opened =
      std::make_shared<const Opened>(text, name, std::move(sites), around_of(std::move(changes)));
  return [opened](std::span<const Tensor> arguments) {
    return Frame(*opened).run(opened->module.function("main"), arguments);
  };
}

}  // namespace postern::internal::imported
