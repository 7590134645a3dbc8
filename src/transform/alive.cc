// Two primitives that are their first operand, and differ in derivatives.
#include "transform/alive.h"

#include <postern/ops.h>

#include <algorithm>

#include "core/lists.h"
#include "lower/lowering.h"
#include "trace/literal.h"
#include "transform/batch.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

/// Operands: x, mask. By axis of the mask: which axis of x it is, in their order; -1: x is shared
/// along it, and is alive if any element is. So {1} of x[3,8] and mask[8] says that x[:,i] is of
/// element i.
struct ShieldParams {
  Dims axes;
};

Types shield_type(const Params*, TypeSpan operands) { return {operands[0]}; }

Tensor zero_if_dead(const Dims& axes, const Tensor& x, const Tensor& mask) {
  Dims shared;                          // axes of the mask that x has not
  Dims alive_dims(x.dims().size(), 1);  // x's, with extent 1 for what the mask has not
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] < 0)
      shared.push_back(static_cast<std::int64_t>(i));
    else
      alive_dims[size_of(axes[i])] = mask.dims()[i];
  }
  Tensor alive = mask;
  if (!shared.empty()) alive = any(mask, {.axes = shared});
  alive = reshape(alive, alive_dims);
  return where(broadcast_to(alive, x.dims()), x, zeros_of(x.type()));
}

Tensors shield_transpose(const Op& op, TensorSpan ct, TensorSpan x, TypeSpan) {
  return {zero_if_dead(op.as<ShieldParams>().axes, ct[0], x[1]), Tensor()};
}

std::pair<Tensors, Tensors> factor_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  const Dims& axes = op.as<ShieldParams>().axes;
  return {{zero_if_dead(axes, x[0], x[1])}, {zero_if_dead(axes, dx[0], x[1])}};
}

std::pair<Tensors, std::vector<int>> shield_batch(const Op& op, TensorSpan x,
                                                  std::span<const int> axes, std::int64_t size,
                                                  const Tensor&) {
  Dims mask_axes = op.as<ShieldParams>().axes;
  Tensor value = x[0], mask = x[1];
  int batch_axis = axes[0];
  if (batch_axis < 0) {  // then the mask is mapped, and each element has its own result
    value = move_batch(value, -1, 0, size);
    batch_axis = 0;
  }
  for (std::int64_t& axis : mask_axes)
    if (axis >= batch_axis) ++axis;
  if (axes[1] >= 0) {  // the mask's batch axis goes where it keeps the order of x's axes
    const auto place =
        std::ranges::find_if(mask_axes, [&](std::int64_t axis) { return axis > batch_axis; });
    mask = move_batch(mask, axes[1], static_cast<int>(place - mask_axes.begin()), size);
    mask_axes.insert(place, batch_axis);
  }
  return {{bind1(op.primitive, make_params(ShieldParams{mask_axes}), {value, mask})}, {batch_axis}};
}

void shield_lower(Lowering& out, const Equation& e) { out.define(e, 0, out.operand(e, 0)); }
Tensors shield_evaluate(const Op&, TensorSpan x) { return {x[0]}; }

constexpr Primitive shield_p{.name = "shield",
                             .type = shield_type,
                             .transpose = shield_transpose,
                             .linear = Linear::jointly,
                             .batch = shield_batch,
                             .lower = shield_lower,
                             .evaluate = shield_evaluate};
constexpr Primitive shielded_factor_p{.name = "shielded_factor",
                                      .type = shield_type,
                                      .jvp = factor_jvp,
                                      .transpose = shield_transpose,
                                      .linear = Linear::first,
                                      .batch = shield_batch,
                                      .lower = shield_lower,
                                      .evaluate = shield_evaluate};
constexpr const Primitive* shield_family[] = {&shield_p, &shielded_factor_p};
static_assert(complete(shield_family));

Tensor shield(const Primitive& p, const Tensor& x, int axis, const Tensor& mask) {
  if (!is_differentiable(x.dtype())) return x;
  return bind1(p, make_params(ShieldParams{{axis}}), {x, mask});
}

}  // namespace

bool keeps_zeros(const Equation& e) {
  return e.primitive->linear == Linear::jointly && (!e.params || programs_of(*e.params).empty());
}

Tensor zero_if_dead(const Tensor& x, int axis, const Tensor& mask) {
  return zero_if_dead(Dims{axis}, x, mask);
}

Tensor shielded(const Tensor& x, int axis, const Tensor& mask) {
  return shield(shield_p, x, axis, mask);
}
Tensors shielded(Tensors x, std::span<const int> axes, const Tensor& mask) {
  for (std::size_t i = 0; i < x.size(); ++i)
    if (axes[i] >= 0) x[i] = shielded(x[i], axes[i], mask);
  return x;
}
Tensor shielded_factor(const Tensor& x, int axis, const Tensor& mask) {
  return shield(shielded_factor_p, x, axis, mask);
}

}  // namespace postern::internal
