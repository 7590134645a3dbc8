// Calls of XLA FFI handlers by name.
#include "block/target.h"

#include <algorithm>
#include <numeric>

#include "block/block.h"
#include "core/check.h"
#include "ops/family.h"

namespace postern::blocks {

void TargetParams::fields(FieldSink& sink) const {
  sink("target", target->name);
  if (!target->attributes.items().empty()) sink("attributes", target->attributes);
  sink("results", results);
  for (const Dims& d : target->operand_layouts) sink("operand_layout", d);
  for (const Dims& d : target->result_layouts) sink("result_layout", d);
  for (const auto& [result, operand] : target->aliases)
    sink("alias", fmt::format("{}<-{}", result, operand));
}

namespace {

std::string float_text(double value) {
  return fmt::format("0x{:016X}", std::bit_cast<std::uint64_t>(value));
}

struct AttributeText {
  const std::string& name;
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(std::int64_t v) const { return fmt::format("{} : i64", v); }
  std::string operator()(double v) const { return float_text(v) + " : f64"; }
  std::string operator()(const std::string& v) const { return Lowering::string(v); }
  std::string operator()(const std::vector<std::int64_t>& v) const {
    return array("i64", v, [](std::int64_t e) { return fmt::format("{}", e); });
  }
  std::string operator()(const std::vector<double>& v) const {
    return array("f64", v, [](double e) { return float_text(e); });
  }
  std::string operator()(const std::vector<bool>& v) const {
    return array("i1", v, [](bool e) { return std::string(e ? "true" : "false"); });
  }
  std::string operator()(const std::vector<std::string>&) const {
    throw_type_error(
        fmt::format("attribute '{}' is a list of strings, which XLA's FFI cannot carry", name));
  }
  template <class List, class Text>
  static std::string array(const char* type, const List& list, Text text) {
    std::string out = fmt::format("array<{}", type);
    for (std::size_t i = 0; i < list.size(); ++i) out += (i ? ", " : ": ") + text(list[i]);
    return out + ">";
  }
};

std::string layouts_text(const std::vector<Dims>& given, std::span<const std::int64_t> ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size(); ++i)
    out += (i ? ", " : "") + Lowering::layout(ranks[i], given.empty() ? Dims() : given[i]);
  return out;
}

Types target_type(const Params* params, TypeSpan) { return as<TargetParams>(*params).results; }

Jvp target_jvp(const Op& op, std::span<const Tensor>, std::span<const Tensor>) {
  throw_type_error(
      fmt::format("target '{}' has no derivative, and an operand is differentiated: give it a rule "
                  "with custom_vjp or custom_jvp, or say "
                  "with stop_gradient that none is meant",
                  op.as<TargetParams>().target->name));
}

Batched target_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes,
                     std::int64_t size, const Tensor&) {
  TargetParams p = op.as<TargetParams>();
  check(p.vmap.has_value(),
        "vmap: target '{}' has no batching method; give it expand_dims or broadcast_all",
        p.target->name);
  check(p.target->operand_layouts.empty() && p.target->result_layouts.empty(),
        "vmap: target '{}' has layouts of its own, for its own ranks only", p.target->name);
  Tensors moved;
  for (std::size_t i = 0; i < x.size(); ++i)
    moved.push_back(axes[i] < 0 && *p.vmap == VmapMethod::expand_dims
                        ? expand_dims(x[i], 0)
                        : batch_front(x[i], axes[i], size));
  for (Type& t : p.results) t.dims.insert(t.dims.begin(), size);
  const std::size_t results = p.results.size();
  return {bind_n(op.primitive, make_params(std::move(p)), moved), std::vector<int>(results, 0)};
}

void target_lower(Lowering& out, const Equation& e) {
  const auto& p = as<TargetParams>(*e.params);
  const FfiTarget& target = *p.target;
  require_handler(target.name, out.platform());
  std::string ins, in_types, outs, out_types, attributes;
  std::vector<std::int64_t> in_ranks, out_ranks;
  for (std::size_t i = 0; i < e.operands.size(); ++i) {
    ins += fmt::format("{}%{}", i ? ", " : "", out.operand(e, i).id);
    in_types += (i ? ", " : "") + Lowering::type(out.operand_type(e, i));
    in_ranks.push_back(out.operand_type(e, i).rank());
  }
  for (int i = 0; i < e.results; ++i) {
    const Ssa r = out.fresh();
    out.define(e, i, r);
    outs += fmt::format("{}%{}", i ? ", " : "", r.id);
    out_types += (i ? ", " : "") + Lowering::type(out.result_type(e, i));
    out_ranks.push_back(out.result_type(e, i).rank());
  }
  for (const auto& [name, value] : target.attributes.items())
    attributes += fmt::format("{}{} = {}", attributes.empty() ? "" : ", ", Lowering::string(name),
                              std::visit(AttributeText{name}, value));
  out.write(
      "    {} = \"stablehlo.custom_call\"({}) {{call_target_name = {}, api_version = 4 : i32, "
      "backend_config = {{{}}}",
      outs, ins, Lowering::string(target.name), attributes);
  out.write(", operand_layouts = [{}], result_layouts = [{}]",
            layouts_text(target.operand_layouts, in_ranks),
            layouts_text(target.result_layouts, out_ranks));
  std::string aliases;
  for (const auto& [result, operand] : target.aliases)
    aliases += fmt::format(
        "{}#stablehlo.output_operand_alias<output_tuple_indices = [{}], operand_index = {}, "
        "operand_tuple_indices = []>",
        aliases.empty() ? "" : ", ", e.results > 1 ? std::to_string(result) : "", operand);
  if (!aliases.empty()) out.write(", output_operand_aliases = [{}]", aliases);
  out.write("}} : ({}) -> ({})\n", in_types, out_types);
}

/// A layout names each axis once; an empty one is row-major.
void require_layout(const std::string& target, const char* what, std::size_t i, const Dims& layout,
                    const Dims& dims) {
  Dims sorted = layout, axes(dims.size());
  std::ranges::sort(sorted);
  std::iota(axes.begin(), axes.end(), 0);
  check(layout.empty() || sorted == axes,
        "ffi_call '{}': the layout of {} {} must name the axes 0 to {} once each, got [{}]", target,
        what, i, static_cast<std::int64_t>(dims.size()) - 1, fmt::join(layout, ", "));
}

}  // namespace

constexpr Primitive target_p{.name = "ffi_call",
                             .type = target_type,
                             .jvp = target_jvp,
                             .batch = target_batch,
                             .lower = target_lower};
static_assert(complete(target_p));

}  // namespace postern::blocks

namespace postern::detail {

Leaves ffi_call(const FfiTarget& target, const std::vector<Type>& out, const Leaves& operands,
                std::optional<VmapMethod> vmap) {
  check(!target.name.empty(), "ffi_call: the target has no name");
  check(!out.empty(), "ffi_call '{}': a target without results could never be observed",
        target.name);
  check(target.operand_layouts.empty() || target.operand_layouts.size() == operands.size(),
        "ffi_call '{}': {} operand layouts for {} operands", target.name,
        target.operand_layouts.size(), operands.size());
  check(target.result_layouts.empty() || target.result_layouts.size() == out.size(),
        "ffi_call '{}': {} result layouts for {} results", target.name,
        target.result_layouts.size(), out.size());
  for (std::size_t i = 0; i < target.operand_layouts.size(); ++i)
    blocks::require_layout(target.name, "operand", i, target.operand_layouts[i],
                           operands[i].dims());
  for (std::size_t i = 0; i < target.result_layouts.size(); ++i)
    blocks::require_layout(target.name, "result", i, target.result_layouts[i], out[i].dims);
  for (const auto& [result, operand] : target.aliases)
    check(result >= 0 && static_cast<std::size_t>(result) < out.size() && operand >= 0 &&
              static_cast<std::size_t>(operand) < operands.size(),
          "ffi_call '{}': alias of result {} to operand {}, there are {} and {}", target.name,
          result, operand, out.size(), operands.size());
  check(!vmap || *vmap == VmapMethod::expand_dims || *vmap == VmapMethod::broadcast_all,
        "ffi_call '{}': vmap is expand_dims or broadcast_all", target.name);
  blocks::TargetParams p{std::make_shared<const FfiTarget>(target), {}, vmap};
  for (const Type& t : out) p.results.push_back({t.dtype, t.dims});
  return bind_n(blocks::target_p, make_params(std::move(p)), operands);
}

}  // namespace postern::detail
