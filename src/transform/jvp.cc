// Forward mode.
#include "transform/jvp.h"

#include <algorithm>

#include <postern/ops.h>

#include "core/check.h"
#include "trace/literal.h"
#include "transform/walk.h"

namespace postern::internal {

Type tangent_type(const Type& type) {
  if (is_differentiable(type.dtype)) return type;
  return {DType::pred, type.dims};
}
Tensor no_tangent(const Type& type) { return zeros_of({DType::pred, type.dims}); }
Tensor shown_tangent(const Tensor& t, const Type& type) {
  if (is_differentiable(type.dtype)) return or_zeros_of(t, type);
  return no_tangent(type);
}

Tensors filled(Tensors derivatives, const Types& types, const std::vector<bool>& wanted) {
  for (std::size_t i = 0; i < types.size(); ++i)
    if (!derivatives[i].has_value() && (wanted.empty() || wanted[i]))
      derivatives[i] = shown_tangent({}, types[i]);
  return derivatives;
}

namespace {

/// Tangents in the place of the differentiable operands; the others stay.
Tensors linear_jvp(const Op& op, TensorSpan x, TensorSpan dx) {
  Tensors operands(x.begin(), x.end());
  if (op.primitive.linear == Linear::jointly) {
    for (std::size_t i = 0; i < x.size(); ++i)
      if (is_differentiable(x[i].dtype())) operands[i] = or_zeros_of(dx[i], x[i].type());
    return bind_n(op.primitive, op.params, operands);
  }
  Tensors out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!dx[i].has_value()) continue;
    operands[i] = dx[i];
    Tensors term = bind_n(op.primitive, op.params, operands);
    operands[i] = x[i];
    if (out.empty())
      out = std::move(term);
    else
      for (std::size_t r = 0; r < out.size(); ++r) out[r] = add(out[r], term[r]);
  }
  return out;
}

}  // namespace

std::pair<Tensors, Tensors> jvp_of(const Op& op, TensorSpan x, TensorSpan dx) {
  const Primitive& p = op.primitive;
  if (p.jvp && has_any(dx)) {
    auto [y, dy] = p.jvp(op, x, dx);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (!dy[i].has_value()) continue;
      if (!is_differentiable(y[i].dtype()))
        dy[i] = Tensor();
      else
        check(alike(dy[i].type(), y[i].type()),
              "jvp: the rule of {} gives a tangent {} for a value {}", p.name,
              to_string(dy[i].type()), to_string(y[i].type()));
    }
    return {std::move(y), std::move(dy)};
  }
  Tensors y = bind_n(p, op.params, x);
  const bool matters =
      std::ranges::any_of(y, [](const Tensor& t) { return is_differentiable(t.dtype()); });
  if (!matters || p.no_derivative || !has_any(dx)) {
    const std::size_t count = y.size();
    return {std::move(y), Tensors(count)};
  }
  check(p.linear != Linear::no, "jvp: {} has no derivative rule", p.name);
  return {std::move(y), linear_jvp(op, x, dx)};
}

std::pair<Tensors, Tensors> jvp_of(const Program& program, TensorSpan x, TensorSpan dx) {
  Env env(program), tangents(program);
  env.set(program.inputs, x);
  for (std::size_t i = 0; i < dx.size(); ++i)
    if (is_differentiable(program.type(program.inputs[i]).dtype))
      tangents[program.inputs[i]] = dx[i];
  Tensors operands, moves;
  for (const Equation& e : program.equations) {
    PlaceScope::Replace at(e.place);
    env.get(e.operands, operands);
    tangents.get(e.operands, moves);
    auto [y, dy] = jvp_of({*e.primitive, e.params}, operands, moves);
    env.set(e, std::move(y));
    tangents.set(e, std::move(dy));
  }
  return {env.get(program.outputs), tangents.get(program.outputs)};
}

Tensors packed_jvp(const Program& program, TensorSpan in, const std::vector<bool>& moves,
                   std::vector<bool>& results_move) {
  const std::size_t inputs = moves.size();
  const auto [y, dy] = jvp_of(program, in.first(inputs), placed(moves, in.subspan(inputs)));
  results_move = present(dy);
  return joined({y, kept(dy)});
}

}  // namespace postern::internal
