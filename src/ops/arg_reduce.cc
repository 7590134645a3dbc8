// argmax and argmin.
#include "ops/axes.h"
#include "ops/composed.h"
#include "ops/family.h"

namespace postern {
using namespace internal;

namespace {

struct ArgParams {
  std::int64_t axis;
};

Types arg_type(const Params* params, TypeSpan operands) {
  const std::int64_t axis = as<ArgParams>(*params).axis;
  const Type& x = operands[0];
  check(ordered(x.dtype), "argmax and argmin: {} has no order", to_string(x.dtype));
  check(at(x.dims, axis) > 0, "argmax and argmin: axis {} of {} has no elements", axis,
        to_string(x));
  check(at(x.dims, axis) <= std::numeric_limits<std::int32_t>::max(),
        "argmax and argmin: axis {} of {} is too long for s32", axis, to_string(x));
  return {Type{DType::s32, pick(x.dims, other_axes(x.rank(), {axis}))}};
}

Batched arg_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t,
                  const Tensor&) {
  const std::int64_t axis = past(op.as<ArgParams>().axis, axes[0]);
  return {{bind1(op.primitive, make_params(ArgParams{axis}), x)}, {without(axes[0], {axis})}};
}

/// Writes the smallest index of those at which the extremum stands, by two plain reductions: these
/// XLA computes by vectors, unlike a single one that carries the index along.
template <bool largest>
void arg_lower(Lowering& out, const Equation& e) {
  const std::int64_t axis = as<ArgParams>(*e.params).axis;
  lower_as(out, e, [&](TensorSpan operands) {
    const Tensor& x = operands[0];
    const ReduceOptions kept{.axes = Dims{axis}, .keep_dims = true};
    const Tensor extremum = largest ? max(x, kept) : min(x, kept);
    Tensor chosen = equal(x, extremum);
    if (is_float(x.dtype())) chosen = chosen | not_equal(x, x);  // NaN is chosen before all numbers
    const Tensor indices = iota({DType::s32, x.dims()}, axis);
    const Tensor candidates = where(chosen, indices, std::numeric_limits<std::int32_t>::max());
    return Tensors{min(candidates, {.axes = Dims{axis}})};
  });
}

constexpr Primitive argmax_p{.name = "argmax",
                             .type = arg_type,
                             .no_derivative = true,
                             .batch = arg_batch,
                             .lower = arg_lower<true>};
constexpr Primitive argmin_p{.name = "argmin",
                             .type = arg_type,
                             .no_derivative = true,
                             .batch = arg_batch,
                             .lower = arg_lower<false>};

constexpr const Primitive* arg_family[] = {&argmax_p, &argmin_p};
static_assert(complete(arg_family));

Tensor arg_reduced(const char* op, const Primitive& p, const Operand& x, std::int64_t axis) {
  PlaceScope scope(x.place());
  return bind1(p, make_params(ArgParams{normal_axis(op, axis, x.tensor().rank())}), {x.tensor()});
}

}  // namespace

Tensor argmax(const Operand& x, std::int64_t axis) {
  return arg_reduced("argmax", argmax_p, x, axis);
}
Tensor argmin(const Operand& x, std::int64_t axis) {
  return arg_reduced("argmin", argmin_p, x, axis);
}

}  // namespace postern
