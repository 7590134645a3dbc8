// Calls of XLA FFI handlers by name.
#include "block/target.h"

#include <postern/control.h>

#include <algorithm>
#include <numeric>

#include "block/block.h"
#include "block/sharding_rule.h"
#include "core/enum.h"
#include "core/lists.h"
#include "core/text.h"
#include "ops/family.h"
#include "ops/shape.h"
#include "transform/batch.h"
#include "transform/walk.h"

namespace postern::internal::blocks {

FieldChain<3> TargetParams::fields(Fields sink) const {
  const auto tell_target = [&](FieldSink& s) {
    s("target", target->name);
    if (!target->attributes.items().empty()) s("attributes", target->attributes);
  };
  const auto tell_rest = [&](FieldSink& s) {
    const auto& [name, attributes, operand_layouts, result_layouts, aliases, operand_dtypes,
                 result_dtypes, sharding, side_effect, place] = *target;
    static_cast<void>(operand_dtypes);  // what is bound is of these
    static_cast<void>(result_dtypes);
    static_cast<void>(place);  // says nothing of what it does
    for (const Dims& d : operand_layouts) s("operand_layout", d);
    for (const Dims& d : result_layouts) s("result_layout", d);
    if (side_effect) s("side_effect", true);
    for (const auto& [result, operand] : aliases)
      s("alias", fmt::format("{}<-{}", result, operand));
    if (!sharding.empty()) s("sharding", sharding);
    if (vmap) s("vmap", text_of(*vmap));
  };
  return sink.by(tell_target).field("results", results).by(tell_rest);
}

namespace {

std::string float_text(double value) {
  return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(value));
}

struct AttributeText {
  std::string operator()(bool v) const { return bool_text(v); }
  std::string operator()(std::int64_t v) const { return fmt::format("{} : i64", v); }
  std::string operator()(double v) const { return float_text(v) + " : f64"; }
  std::string operator()(const std::string& v) const { return Lowering::string(v); }
  std::string operator()(const std::vector<std::int64_t>& v) const {
    return array("i64", v, [](std::int64_t e) { return fmt::format("{}", e); });
  }
  std::string operator()(const std::vector<double>& v) const {
    return array("f64", v, [](double e) { return float_text(e); });
  }
  // Refused before: XLA's FFI cannot carry them.
  std::string operator()(const std::vector<bool>&) const { return ""; }
  std::string operator()(const std::vector<std::string>&) const { return ""; }
  template <class List, class Text>
  static std::string array(const char* type, const List& list, Text text) {
    Separator comma(", ", ": ");
    std::string out = fmt::format("array<{}", type);
    for (const auto& item : list) out += fmt::format("{}{}", comma(), text(item));
    return out + ">";
  }
};

std::string layouts_text(const std::vector<Dims>& given, std::span<const std::int64_t> ranks) {
  Separator comma;
  std::string out;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Dims axes;
    if (!given.empty()) axes = given[i];
    out += fmt::format("{}{}", comma(), Lowering::layout(ranks[i], axes));
  }
  return out;
}

std::string attributes_text(const FfiTarget& target) {
  Separator comma;
  std::string out;
  for (const auto& [name, value] : target.attributes.items())
    out += fmt::format("{}{} = {}", comma(), Lowering::string(name),
                       std::visit(AttributeText(), value));
  return out;
}

std::string aliases_text(const FfiTarget& target, int results) {
  Separator comma;
  std::string out;
  for (const auto& [result, operand] : target.aliases)
    out += fmt::format("{}{}", comma(), Lowering::alias(result, results, operand));
  return out;
}

Types target_type(const Params* params, TypeSpan) { return as<TargetParams>(*params).results; }

Jvp target_jvp(const Op& op, TensorSpan, TensorSpan) {
  throw_type_error(
      fmt::format("target '{}' has no derivative, and an operand is differentiated: give it a rule "
                  "with custom_vjp or custom_jvp, or put "
                  "stop_gradient around its operands if none is meant",
                  op.as<TargetParams>().target->name));
}

/// Adds a factor for the batch to the rule, "i -> batch i"; "_" for an operand of one element.
std::shared_ptr<const FfiTarget> with_batch_axis(const TargetParams& p, TensorSpan operands,
                                                 std::int64_t size) {
  const FfiTarget& target = *p.target;
  auto out = std::make_shared<FfiTarget>(target);
  ShardingRule rule = parse_sharding(target.name, target.sharding);
  if (p.results.empty()) rule.results.clear();
  std::string factor = "batch";
  while (target.sharding.find(factor) != std::string::npos) factor += '_';
  std::vector<bool> mapped;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    mapped.push_back(operands[i].dims()[0] == size);
    if (!mapped[i]) rule.operands[i].insert(rule.operands[i].begin(), "_");
  }
  out->sharding = to_string(with_axis_in_front(std::move(rule), factor, mapped));
  return out;
}

Batched target_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                     const Tensor& mask) {
  TargetParams p = op.as<TargetParams>();
  const FfiTarget& target = *p.target;
  check(p.vmap.has_value(),
        "vmap: target '{}' has no batching method; give it sequential, expand_dims or "
        "broadcast_all",
        target.name);
  if (*p.vmap == VmapMethod::sequential)
    return one_by_one(op, p.results, x, axes, size, target.side_effect ? mask : Tensor());
  check(!target.side_effect || !mask.has_value(),
        "vmap: target '{}' has a side effect, and elements end at different times; give it "
        "sequential",
        target.name);
  check(target.operand_layouts.empty() && target.result_layouts.empty(),
        "vmap: target '{}' has layouts of its own, for its own ranks only", target.name);
  auto written_over = [&](std::size_t operand) {
    return std::ranges::any_of(
        target.aliases, [&](const auto& a) { return a.second == static_cast<int>(operand); });
  };
  Tensors moved;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (axes[i] < 0 && *p.vmap == VmapMethod::expand_dims && !written_over(i))
      moved.push_back(expand_dims(x[i], 0));
    else
      moved.push_back(batch_front(x[i], axes[i], size));
  }
  for (Type& t : p.results) t.dims.insert(t.dims.begin(), size);
  if (!target.sharding.empty()) p.target = with_batch_axis(p, moved, size);
  const std::size_t results = p.results.size();
  return {bind_n(op.primitive, make_params(std::move(p)), moved), std::vector<int>(results, 0)};
}

/// Writes the custom call. Its sharding rule is not written: kernel_parts has cut by it before.
void target_lower(Lowering& out, const Equation& e) {
  const auto& p = as<TargetParams>(*e.params);
  const FfiTarget& target = *p.target;
  const platforms::Platform* platform = platforms::lowered_for(out);  // null: for a file
  check(platform != nullptr,
        "the FFI target '{}' belongs to one platform: a program that calls it outside of a block "
        "cannot be saved",
        target.name);
  handler_access.require(target.name, *platform);
  std::vector<Ssa> operands, results;
  std::vector<std::string> operand_types, result_types;
  std::vector<std::int64_t> operand_ranks, result_ranks;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    operands.push_back(out.operand(e, i));
    operand_types.push_back(Lowering::type(out.operand_type(e, i)));
    operand_ranks.push_back(out.operand_type(e, i).rank());
  }
  for (int i = 0; i < e.results; ++i) {
    results.push_back(out.fresh());
    out.define(e, i, results.back());
    result_types.push_back(Lowering::type(out.result_type(e, i)));
    result_ranks.push_back(out.result_type(e, i).rank());
  }
  out.write("    {}\"stablehlo.custom_call\"({}) {{call_target_name = {}, api_version = 4 : i32",
            Lowering::assigned(results), Lowering::list(operands), Lowering::string(target.name));
  out.write(", backend_config = {{{}}}", attributes_text(target));
  if (target.side_effect)
    out.write(", has_side_effect = true{}", out.where_it_runs(results.size(), -1));
  out.write(", operand_layouts = [{}], result_layouts = [{}]",
            layouts_text(target.operand_layouts, operand_ranks),
            layouts_text(target.result_layouts, result_ranks));
  if (!target.aliases.empty())
    out.write(", output_operand_aliases = [{}]", aliases_text(target, e.results));
  out.write("}} : ({}) -> ({})\n", fmt::join(operand_types, ", "), fmt::join(result_types, ", "));
}

/// Checks that each layout names each axis once, or none: an empty one is row-major.
void check_layouts(const std::string& target, const char* word, const std::vector<Dims>& layouts,
                   const Types& types) {
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    Dims sorted = layouts[i], axes(types[i].dims.size());
    std::ranges::sort(sorted);
    std::iota(axes.begin(), axes.end(), 0);
    check(layouts[i].empty() || sorted == axes,
          "ffi_call '{}': the layout of {} {} must name the axes 0 to {} once each, got [{}]",
          target, word, i, types[i].rank() - 1, fmt::join(layouts[i], ", "));
  }
}

void check_aliases(const FfiTarget& target, const Types& operands, const Types& results) {
  for (const auto& [result, operand] : target.aliases) {
    check(result >= 0 && size_of(result) < results.size() && operand >= 0 &&
              size_of(operand) < operands.size(),
          "ffi_call '{}': alias of result {} to operand {}, there are {} and {}", target.name,
          result, operand, results.size(), operands.size());
    const Type &to = results[size_of(result)], &from = operands[size_of(operand)];
    check(alike(to, from),
          "ffi_call '{}': result {} is written over operand {} and must be of its type {}, got {}",
          target.name, result, operand, to_string(from), to_string(to));
    const auto of_either = [r = result, o = operand](const auto& a) {
      return a.first == r || a.second == o;
    };
    check(std::ranges::count_if(target.aliases, of_either) == 1,
          "ffi_call '{}': result {} and operand {} can have one alias each", target.name, result,
          operand);
  }
}

Effect target_effect(const Params*) { return Effect::unordered; }

/// Checks what the target says of its operands' and results' dtypes, and how it may be cut.
void check_operands(const FfiTarget& target, const Types& operands, const Types& results) {
  const std::string what = fmt::format("ffi_call '{}'", target.name);
  check_dtypes(what, target.operand_dtypes, operands, target.result_dtypes, results);
  if (target.sharding.empty()) return;
  const ShardingRule rule = parse_sharding(what, target.sharding);
  static_cast<void>(fitted(what, rule, operands, results));
  for (const auto& [result, operand] : target.aliases)
    check(rule.results[size_of(result)] == rule.operands[size_of(operand)],
          "{}: result {} is written over operand {}, and its sharding rule cuts them differently",
          what, result, operand);
}

/// Checks that XLA's FFI can carry them: numbers, bools and strings, and lists of numbers.
void check_attributes(const FfiTarget& target) {
  for (const auto& [name, value] : target.attributes.items()) {
    check(!name.empty(), "ffi_call '{}': an attribute has no name", target.name);
    check(!std::holds_alternative<std::vector<bool>>(value),
          "ffi_call '{}': attribute '{}' is a list of bools, which XLA's FFI cannot carry; give "
          "numbers",
          target.name, name);
    check(!std::holds_alternative<std::vector<std::string>>(value),
          "ffi_call '{}': attribute '{}' is a list of strings, which XLA's FFI cannot carry; give "
          "one string",
          target.name, name);
  }
}

}  // namespace

constexpr Primitive target_p{.name = "ffi_call",
                             .type = target_type,
                             .jvp = target_jvp,
                             .batch = target_batch,
                             .lower = target_lower};
constexpr Primitive effect_target_p{.name = "ffi_call",
                                    .type = target_type,
                                    .jvp = target_jvp,
                                    .batch = target_batch,
                                    .lower = target_lower,
                                    .effect = target_effect,
                                    .may_call = true};
static_assert(complete(target_p) && complete(effect_target_p));

Batched one_by_one(const Op& op, const Types& types, TensorSpan x, std::span<const int> axes,
                   std::int64_t size, const Tensor& mask) {
  Tensors mapped;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (axes[i] >= 0) mapped.push_back(move_batch(x[i], axes[i], 0, size));
  if (mask.has_value()) mapped.push_back(mask);
  if (mapped.empty()) mapped.push_back(zeros({DType::pred, {size}}));  // as many elements
  const auto called = [&](const Tensors& in) { return bind_n(op.primitive, op.params, in); };
  const auto zero_results = [&](const Tensors&) {
    Tensors out;
    for (const Type& t : types) out.push_back(zeros(t));
    return out;
  };
  const auto one = [&](const Tensors& element) {
    Tensors operands(x.begin(), x.end());
    for (std::size_t i = 0, next = 0; i < x.size(); ++i)
      if (axes[i] >= 0) operands[i] = element[next++];
    if (!mask.has_value()) return called(operands);
    return cond(element.back(), called, zero_results, operands);
  };
  return {postern::map(one, mapped, {}, PlaceScope::current()), std::vector<int>(types.size(), 0)};
}

}  // namespace postern::internal::blocks

namespace postern::detail {
using namespace internal;

Tensors ffi_call(const FfiTarget& target, const std::vector<Type>& out, const Tensors& operands,
                 std::optional<VmapMethod> vmap) {
  PlaceScope at(target.place);
  check(!target.name.empty(), "ffi_call: the target has no name");
  check(
      !out.empty() || target.side_effect,
      "ffi_call '{}': a target without results could never be observed; say side_effect if it has "
      "one",
      target.name);
  blocks::check_attributes(target);
  check(target.operand_layouts.empty() || target.operand_layouts.size() == operands.size(),
        "ffi_call '{}': {} operand layouts for {} operands", target.name,
        target.operand_layouts.size(), operands.size());
  check(target.result_layouts.empty() || target.result_layouts.size() == out.size(),
        "ffi_call '{}': {} result layouts for {} results", target.name,
        target.result_layouts.size(), out.size());
  const Types given = types_of(operands);
  // What the handler sees: conversions stand around it.
  const Types taken = blocks::with_dtypes(given, target.operand_dtypes),
              made = blocks::with_dtypes(out, target.result_dtypes);
  blocks::check_layouts(target.name, "operand", target.operand_layouts, taken);
  blocks::check_layouts(target.name, "result", target.result_layouts, made);
  blocks::check_aliases(target, taken, made);
  if (vmap) check_enum("ffi_call: VmapMethod", *vmap, VmapMethod::broadcast_all);
  check(vmap != VmapMethod::parallel,
        "ffi_call '{}': vmap is sequential, expand_dims or broadcast_all", target.name);
  blocks::check_operands(target, given, out);
  blocks::TargetParams p{std::make_shared<const FfiTarget>(target), {}, vmap};
  for (const Type& t : made) p.results.push_back({t.dtype, t.dims});
  const Primitive* primitive = &blocks::target_p;
  if (target.side_effect) primitive = &blocks::effect_target_p;
  return blocks::in_dtypes(target.operand_dtypes, operands, out, [&](TensorSpan x) {
    return bind_n(*primitive, make_params(std::move(p)), x);
  });
}

}  // namespace postern::detail
