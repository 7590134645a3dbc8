// Batching, equation by equation.
#include "transform/batch.h"

#include <postern/ops.h>

#include "core/check.h"
#include "transform/alive.h"
#include "transform/axis.h"
#include "transform/walk.h"

namespace postern::internal {

Tensor move_batch(const Tensor& x, int from, int to, std::int64_t size, const Tensor& mask) {
  if (from == to) return x;
  if (from < 0) {
    Dims dims = x.dims();
    dims.insert(dims.begin() + to, size);
    const Tensor each = broadcast_to(expand_dims(x, to), dims);
    if (mask.has_value()) return shielded(each, to, mask);
    return each;
  }
  Dims order;
  for (std::int64_t i = 0; i < x.rank(); ++i)
    if (i != from) order.push_back(i);
  order.insert(order.begin() + to, from);
  return transpose(x, order);
}

bool minds_who_runs(const Equation& equation) {
  return any_equation(equation, [](const Equation& e) {
    const Primitive& p = *e.primitive;
    return p.site || p.calls || p.may_call || p.control == ControlFlow::while_loop ||
           (p.effect && effect_of(e) != Effect::pure);
  });
}

namespace {

/// Operands of an equation with their batch axes, and whether each is shared by all elements and
/// may have a cotangent.
struct Operands {
  Tensors x;
  std::vector<int> axes;
  std::vector<bool> shared;

  bool any_shared() const { return std::ranges::find(shared, true) != shared.end(); }
};

/// Shields the operands of an equation that is done once for all elements, in case none is alive.
void shield_once(const Equation& e, Operands& of, const Tensor& mask) {
  if (keeps_zeros(e)) return;
  for (std::size_t i = 0; i < of.x.size(); ++i)
    if (of.shared[i]) of.x[i] = shielded(of.x[i], -1, mask);
}

/// Shields shared operands where they meet mapped ones. If the equation is linear in the shared
/// ones they stay one for all elements, such as large weights: the mapped operands are their
/// factors, which are shielded, and so have to be the results. Else each element gets a copy of its
/// own. Returns whether the results have yet to be shielded.
bool shield_mixed(const Primitive& p, Operands& of, std::int64_t size, const Tensor& mask) {
  int mapped_axis = -1;  // of the first that is mapped
  bool mapped_differentiable = false;
  for (std::size_t i = 0; i < of.x.size(); ++i) {
    if (of.axes[i] < 0) continue;
    if (mapped_axis < 0) mapped_axis = of.axes[i];
    mapped_differentiable = mapped_differentiable || is_differentiable(of.x[i].dtype());
  }
  const bool linear_in_shared =
      p.linear == Linear::separately || (p.linear != Linear::no && !mapped_differentiable);
  if (linear_in_shared) {
    for (std::size_t i = 0; i < of.x.size(); ++i)
      if (of.axes[i] >= 0) of.x[i] = shielded_factor(of.x[i], of.axes[i], mask);
    return true;
  }
  for (std::size_t i = 0; i < of.x.size(); ++i) {
    if (!of.shared[i]) continue;
    of.axes[i] = std::min(mapped_axis, static_cast<int>(of.x[i].rank()));
    of.x[i] = move_batch(of.x[i], -1, of.axes[i], size, mask);
  }
  return false;
}

}  // namespace

// Goes from equation to equation with each value and the axis that it is mapped over, -1 for those
// that all elements share. What nothing tells apart is done once; all else by the primitive's rule.
// Under a mask what dead elements share with live ones is shielded on its way in, or, where the
// equation is linear in it, what comes out.
std::pair<Tensors, std::vector<int>> batch_of(const Program& program, TensorSpan x,
                                              std::span<const int> axes, std::int64_t size,
                                              const Tensor& mask) {
  Env env(program);
  env.set(program.inputs, x);
  std::vector<int> axis_of(program.types.size(), -1);
  for (std::size_t i = 0; i < axes.size(); ++i) axis_of[at(program.inputs[i])] = axes[i];
  std::vector<bool> moves(program.types.size());  // by value: it may have a cotangent
  for (const ValueId v : program.inputs) moves[at(v)] = is_differentiable(program.type(v).dtype);
  Operands of;
  const auto& axis = BatchScope::current();
  for (const Equation& e : program.equations) {
    PlaceScope::Replace place(e.place);
    const Primitive& p = *e.primitive;
    env.get(e.operands, of.x);
    of.axes.clear();
    of.shared.clear();
    bool mapped = false;
    for (const ValueId v : e.operands) {
      const int a = axis_of[at(v)];
      of.axes.push_back(a);
      of.shared.push_back(a < 0 && moves[at(v)]);
      mapped = mapped || a >= 0;
      for (int i = 0; moves[at(v)] && !p.no_derivative && i < e.results; ++i)
        moves[at(e.first + i)] = is_differentiable(program.type(e.first + i).dtype);
    }
    const bool shields = mask.has_value() && of.any_shared();
    // What no element can tell apart is done once; but each element wants its own effects, only
    // live ones may call, and what names the axis tells them apart.
    const bool inner =
        p.site || p.may_call || p.effect || (e.params && !programs_of(*e.params).empty());
    const bool only_for_live = inner && mask.has_value() && minds_who_runs(e);
    const bool apart = inner && (only_for_live || effect_of(e) != Effect::pure);
    if (!mapped && !apart && !(axis && names_axis(e, *axis))) {
      if (shields) shield_once(e, of, mask);
      env.set(e, bind_n(p, e.params, of.x));
      continue;
    }
    check(p.batch != nullptr, "vmap: {} has no batching rule", p.name);
    // A program is shielded equation by equation, but for rules in its place.
    const bool whole = !inner || (p.has_rules && p.has_rules(e.params.get()));
    const bool after = shields && mapped && whole && shield_mixed(p, of, size, mask);
    auto [results, result_axes] = p.batch({p, e.params}, of.x, of.axes, size, mask);
    for (std::size_t i = 0; after && i < results.size(); ++i)
      if (result_axes[i] >= 0) results[i] = shielded(results[i], result_axes[i], mask);
    env.set(e, std::move(results));
    std::ranges::copy(result_axes, axis_of.begin() + e.first);
  }
  std::vector<int> output_axes;
  for (ValueId v : program.outputs) output_axes.push_back(axis_of[at(v)]);
  return {env.get(program.outputs), std::move(output_axes)};
}

std::pair<Tensors, std::vector<int>> batch_of(const Closed& f, TensorSpan x, std::vector<int> axes,
                                              std::int64_t size, const Tensor& mask) {
  axes.resize(x.size() + f.captures.size(), -1);
  return batch_of(*f.program, joined({x, f.captures}), axes, size, mask);
}

}  // namespace postern::internal
