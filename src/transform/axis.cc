// Gathering and exchanging between the elements of a batch.
#include "transform/axis.h"

#include <postern/ops.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "lower/lowering.h"
#include "transform/batch.h"
#include "transform/transpose.h"

namespace postern::internal {

namespace {

thread_local const AxisScope* innermost = nullptr;
thread_local BatchAxisPtr batched_over;

struct AxisParams {
  BatchAxisPtr axis;
  auto fields(Fields sink) const {
    return sink.by([&](FieldSink& s) {
      s("axis", axis->name);
      s("size", axis->size);
      s.identity("vmap", axis.get());
    });
  }
};

using Batched = std::pair<Tensors, std::vector<int>>;

/// Returns whether the batching that is going on is over the axis of this equation.
bool is_over(const Op& op) { return op.as<AxisParams>().axis == batched_over; }

Types gathered_type(const Params* params, TypeSpan x) {
  Type out{x[0].dtype, x[0].dims};
  out.dims.insert(out.dims.begin(), as<AxisParams>(*params).axis->size);
  return {out};
}
Types exchanged_type(const Params* params, TypeSpan x) {
  const BatchAxis& axis = *as<AxisParams>(*params).axis;
  check(!x[0].dims.empty() && x[0].dims[0] == axis.size,
        "vmap: {} needs a row for each of the {} elements of '{}'", to_string(x[0]), axis.size,
        axis.name);
  return {{x[0].dtype, x[0].dims}};
}
Types position_type(const Params*, TypeSpan) { return {Type{DType::s32, {}}}; }

Tensors gathered_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan) {
  return {sum(exchanged(op.as<AxisParams>().axis, ct[0]), {.axes = Dims{0}})};
}

Batched gathered_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                       const Tensor&) {
  if (is_over(op)) return {{move_batch(x[0], axes[0], 0, size)}, {-1}};
  int axis = axes[0];
  if (axis >= 0) ++axis;
  return {bind_n(op.primitive, op.params, x), {axis}};
}
Batched exchanged_batch(const Op& op, TensorSpan x, std::span<const int> axes, std::int64_t size,
                        const Tensor&) {
  if (is_over(op)) {
    // If all have the same x, element i's row j is row i of x, whatever j is: i is axis 0, j
    // axis 1. Else element j's row i of x is at [j, i], with the batch axis in front: i is axis 1.
    if (axes[0] < 0) return {{move_batch(x[0], -1, 1, size)}, {0}};
    return {{move_batch(x[0], axes[0], 0, size)}, {1}};
  }
  if (axes[0] < 0) return {bind_n(op.primitive, op.params, x), {-1}};
  return {{bind1(op.primitive, op.params, {move_batch(x[0], axes[0], 1, size)})}, {1}};
}
Batched position_batch(const Op& op, TensorSpan, std::span<const int>, std::int64_t size,
                       const Tensor&) {
  if (is_over(op)) return {{iota(Type{DType::s32, {size}}, 0)}, {0}};
  return {bind_n(op.primitive, op.params, {}), {-1}};
}

void refuse_lowering(Lowering&, const Equation& e) {
  throw_type_error(fmt::format("vmap: what names the axis '{}' is used where that vmap is over",
                               as<AxisParams>(*e.params).axis->name));
}

constexpr Primitive gathered_p{.name = "gather_batch",
                               .type = gathered_type,
                               .transpose = gathered_transpose,
                               .linear = Linear::jointly,
                               .batch = gathered_batch,
                               .lower = refuse_lowering};
constexpr Primitive exchanged_p{.name = "exchange_batch",
                                .type = exchanged_type,
                                .transpose = self_transpose,
                                .linear = Linear::jointly,
                                .batch = exchanged_batch,
                                .lower = refuse_lowering};
constexpr Primitive position_p{.name = "batch_index",
                               .type = position_type,
                               .no_derivative = true,
                               .batch = position_batch,
                               .lower = refuse_lowering};
constexpr const Primitive* all_p[] = {&gathered_p, &exchanged_p, &position_p};
static_assert(complete(all_p));

ParamsPtr params_of(const BatchAxisPtr& axis) { return make_params(AxisParams{axis}); }

}  // namespace

AxisScope::AxisScope(BatchAxisPtr axis) : Scoped(innermost, this), axis_(std::move(axis)) {}
std::vector<BatchAxisPtr> AxisScope::all() {
  std::vector<BatchAxisPtr> out;
  for (const AxisScope* s = innermost; s; s = s->before())
    if (s->axis_) out.push_back(s->axis_);
  return out;
}

NoAxes::NoAxes() : Scoped(innermost, nullptr) {}

BatchScope::BatchScope(BatchAxisPtr axis) : Scoped(batched_over, std::move(axis)) {}
const BatchAxisPtr& BatchScope::current() { return batched_over; }

bool names_axis(const Equation& equation, const BatchAxis& axis) {
  return any_equation(equation, [&](const Equation& e) {
    return std::ranges::find(all_p, e.primitive) != std::end(all_p) &&
           as<AxisParams>(*e.params).axis.get() == &axis;
  });
}

Tensor gathered(const BatchAxisPtr& axis, const Tensor& x) {
  return bind1(gathered_p, params_of(axis), {x});
}
Tensor exchanged(const BatchAxisPtr& axis, const Tensor& x) {
  return bind1(exchanged_p, params_of(axis), {x});
}
Tensor position_along(const BatchAxisPtr& axis) { return bind1(position_p, params_of(axis), {}); }

}  // namespace postern::internal
