// Batching, equation by equation.
#include "transform/batch.h"

#include <postern/ops.h>

#include "core/check.h"
#include "transform/axis.h"
#include "transform/walk.h"

namespace postern::internal {

Tensor move_batch(const Tensor& x, int from, int to, std::int64_t size) {
  if (from == to) return x;
  if (from < 0) {
    Dims dims = x.dims();
    dims.insert(dims.begin() + to, size);
    return broadcast_to(expand_dims(x, to), dims);
  }
  Dims order;
  for (std::int64_t i = 0; i < x.rank(); ++i)
    if (i != from) order.push_back(i);
  order.insert(order.begin() + to, from);
  return transpose(x, order);
}

std::pair<Tensors, std::vector<int>> batch_of(const Program& program, TensorSpan x,
                                              std::span<const int> axes, std::int64_t size,
                                              const Tensor& mask) {
  Env env(program);
  env.set(program.inputs, x);
  std::vector<int> axis_of(program.types.size(), -1);
  for (std::size_t i = 0; i < axes.size(); ++i) axis_of[at(program.inputs[i])] = axes[i];
  Tensors operands;
  std::vector<int> operand_axes;
  const auto& axis = BatchScope::current();
  for (const Equation& e : program.equations) {
    PlaceScope::Replace place(e.place);
    env.get(e.operands, operands);
    operand_axes.clear();
    for (ValueId v : e.operands) operand_axes.push_back(axis_of[at(v)]);
    const bool mapped = std::ranges::any_of(operand_axes, [](int a) { return a >= 0; });
    // What no element can tell apart is done once; but each element wants its own effects, only
    // live ones may call, and what names the axis tells them apart.
    const bool inner =
        e.primitive->site || e.primitive->may_call || (e.params && !programs_of(*e.params).empty());
    const bool apart = inner && (mask.has_value() || effect_of(e) != Effect::pure);
    if (!mapped && !apart && !(axis && names_axis(e, *axis))) {
      env.set(e, bind_n(*e.primitive, e.params, operands));
      continue;
    }
    check(e.primitive->batch != nullptr, "vmap: {} has no batching rule", e.primitive->name);
    auto [results, result_axes] =
        e.primitive->batch({*e.primitive, e.params}, operands, operand_axes, size, mask);
    env.set(e, std::move(results));
    std::ranges::copy(result_axes, axis_of.begin() + e.first);
  }
  std::vector<int> output_axes;
  for (ValueId v : program.outputs) output_axes.push_back(axis_of[at(v)]);
  return {env.get(program.outputs), std::move(output_axes)};
}

}  // namespace postern::internal
