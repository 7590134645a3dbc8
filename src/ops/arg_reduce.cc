// argmax and argmin.
#include "ops/axes.h"
#include "ops/family.h"
#include "ops/reduce.h"

namespace postern {

namespace {

struct ArgParams {
  std::int64_t axis;
  void fields(FieldSink& sink) const { sink("axis", axis); }
};

Types arg_type(const Params* params, TypeSpan operands) {
  const std::int64_t axis = as<ArgParams>(*params).axis;
  const Type& x = operands[0];
  check(integral(x.dtype) || is_float(x.dtype), "argmax and argmin: {} has no order", to_string(x.dtype));
  check(at(x.dims, axis) > 0, "argmax and argmin: axis {} of {} has no elements", axis, to_string(x));
  check(at(x.dims, axis) <= std::numeric_limits<std::int32_t>::max(), "argmax and argmin: axis {} of {} is too long for s32", axis,
        to_string(x));
  return {Type{DType::s32, pick(x.dims, other_axes(x.rank(), {axis}))}};
}

Batched arg_batch(const Op& op, std::span<const Tensor> x, std::span<const int> axes, std::int64_t, const Tensor&) {
  const std::int64_t axis = past(op.as<ArgParams>().axis, axes[0]);
  return {{bind1(op.primitive, make_params(ArgParams{axis}), x)}, {axes[0] - (axis < axes[0])}};
}

/// Of two elements with their indices the one that comes first in order, the lower index among equals. NaN comes before all numbers.
template <bool largest>
std::vector<Lowering::Typed> choose(Lowering& out, std::span<const Ssa> a, const Type& element) {
  const Type index{DType::s32, {}}, pred{DType::pred, {}};
  const auto compare = [&](const char* direction, Ssa x, Ssa y, const Type& t) {
    return out.op("compare", {x, y}, {&t, &t}, pred, fmt::format("comparison_direction = #stablehlo<comparison_direction {}>", direction));
  };
  const auto both = [&](const char* hlo, Ssa x, Ssa y) { return out.op(hlo, {x, y}, {&pred, &pred}, pred); };
  const Ssa x = a[0], i = a[1], y = a[2], j = a[3];
  Ssa first = compare(largest ? "GT" : "LT", x, y, element), same = compare("EQ", x, y, element);
  if (is_float(element.dtype)) {
    const Ssa x_nan = compare("NE", x, x, element), y_nan = compare("NE", y, y, element), y_number = compare("EQ", y, y, element);
    first = both("or", first, both("and", x_nan, y_number));
    same = both("or", same, both("and", x_nan, y_nan));
  }
  first = both("or", first, both("and", same, compare("LT", i, j, index)));
  return {{out.op("select", {first, x, y}, {&pred, &element, &element}, element), Lowering::type(element)},
          {out.op("select", {first, i, j}, {&pred, &index, &index}, index), Lowering::type(index)}};
}

template <bool largest>
void arg_lower(Lowering& out, const Equation& e) {
  const std::int64_t axis = as<ArgParams>(*e.params).axis;
  const Type &x = out.operand_type(e, 0), indices{DType::s32, x.dims}, element{x.dtype, {}}, index{DType::s32, {}};
  const Number neutral = largest ? lowest_of(x.dtype) : highest_of(x.dtype);
  const Ssa places = out.op("iota", {}, {}, indices, fmt::format("iota_dimension = {} : i64", axis));
  const Ssa start = out.constant(literal_text(neutral, x.dtype), element), zero = out.constant("0", index);
  const Ssa values = out.fresh(), result = out.fresh();
  out.write("    %{}, %{} = \"stablehlo.reduce\"(%{}, %{}, %{}, %{}) (", values.id, result.id, out.operand(e, 0).id, places.id, start.id,
            zero.id);
  const std::string e_text = Lowering::type(element), i_text = Lowering::type(index), x_text = Lowering::type(x),
                    p_text = Lowering::type(indices);
  // The arguments are the accumulated pair, then the new one.
  out.region({e_text, i_text, e_text, i_text}, [&](std::span<const Ssa> a) { return choose<largest>(out, a, element); });
  out.write(") {{dimensions = array<i64: {}>}} : ({}, {}, {}, {}) -> ({}, {})\n", axis, x_text, p_text, e_text, i_text,
            Lowering::type({x.dtype, out.result_type(e).dims}), Lowering::type(out.result_type(e)));
  out.define(e, 0, result);
}

constexpr Primitive argmax_p{.name = "argmax", .type = arg_type, .no_derivative = true, .batch = arg_batch, .lower = arg_lower<true>};
constexpr Primitive argmin_p{.name = "argmin", .type = arg_type, .no_derivative = true, .batch = arg_batch, .lower = arg_lower<false>};

constexpr const Primitive* arg_family[] = {&argmax_p, &argmin_p};
static_assert(complete(arg_family));

Tensor arg_reduced(const char* op, const Primitive& p, const Operand& x, std::int64_t axis) {
  PlaceScope scope(x.place());
  return bind1(p, make_params(ArgParams{normal_axis(op, axis, x.tensor().rank())}), {x.tensor()});
}

}  // namespace

Tensor argmax(const Operand& x, std::int64_t axis) { return arg_reduced("argmax", argmax_p, x, axis); }
Tensor argmin(const Operand& x, std::int64_t axis) { return arg_reduced("argmin", argmin_p, x, axis); }

}  // namespace postern
