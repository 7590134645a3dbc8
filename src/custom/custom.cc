// What functions with rules of their own share; stop_gradient.
#include "custom/custom.h"

#include <postern/transforms.h>

#include "core/lists.h"
#include "transform/axis.h"
#include "transform/transpose.h"

namespace postern::internal {

Types program_type(const char* what, const Program& program, TypeSpan operands) {
  check(operands.size() == program.inputs.size(), "{}: {} operands for a program of {} inputs",
        what, operands.size(), program.inputs.size());
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Type& type = program.type(program.inputs[i]);
    check(alike(operands[i], type), "{}: operand {} must be {}, got {}", what, i, to_string(type),
          to_string(operands[i]));
  }
  return program.output_types();
}

Types element_types(TensorSpan x, std::span<const int> axes) {
  Types out;
  for (std::size_t i = 0; i < x.size(); ++i) {
    out.push_back(x[i].type());
    if (axes[i] >= 0) out.back().dims.erase(out.back().dims.begin() + axes[i]);
  }
  return out;
}

void refuse_handles(const char* what, const Program& body) {
  const auto moves = [](const Type& t) { return is_differentiable(t.dtype); };
  for (const Equation& e : body.equations) {
    const SiteSpec* const site = site_of(e);
    if (!site || site->call.role != SiteCall::Role::start) continue;
    check(
        std::ranges::find(body.outputs, e.first) == body.outputs.end() ||
            std::ranges::none_of(site->operands, moves) ||
            std::ranges::none_of(site->call.later, moves),
        "{}: the function gives the Pending of call '{}', which has no derivative: wait inside of "
        "the function, or use start_call_with_vjp in its place",
        what, site->name);
  }
}

Closed batched_body(const char* what, const Program& body, TensorSpan x, std::span<const int> axes,
                    std::int64_t size, const Tensor& mask) {
  Types types = types_of(x);
  if (mask.has_value()) types.push_back(mask.type());
  return batched_body(what, body, types, axes, size, mask.has_value());
}

Closed batched_body(const char* what, const Program& body, const Types& types,
                    std::span<const int> axes, std::int64_t size, bool masked) {
  return trace_inner(what, types, [&](TensorSpan in) {
    const Tensor mask = at_if(masked, in, in.size() - 1);
    auto [y, from] = batch_of(body, in.first(axes.size()), axes, size, mask);
    move_to_front(y, from, size, mask);
    return std::move(y);
  });
}

TensorFunction batched_function(const char* what, TensorFunction f, Types types,
                                std::vector<int> axes, std::int64_t size, bool masked,
                                std::size_t mask_place, std::vector<int> out_axes) {
  return [=, axis = BatchScope::current()](TensorSpan leaves) {
    std::vector<bool> given;  // by output: f gives it; an empty Tensor is zero
    const AxisScope named(axis);
    const Closed closed = trace_user(what, types, [&](TensorSpan in) {
      const Tensors y = f(in);
      given = present(y);
      return kept(y);
    });
    const BatchScope batching(axis);
    const Tensor mask = at_if(masked, leaves, mask_place);
    const Tensors x = joined({leaves.first(mask_place), leaves.subspan(mask_place + masked)});
    const auto [y, from] = batch_of(closed, std::span(x).first(axes.size()), axes, size, mask);

    Tensors out(given.size());
    for (std::size_t i = 0, next = 0; i < out.size(); ++i) {
      if (!given[i]) continue;
      const bool is_summed = out_axes[i] < 0;
      const int to = is_summed ? 0 : out_axes[i];
      out[i] = move_batch(y[next], from[next], to, size, mask);
      ++next;
      if (!is_summed) continue;
      if (masked) out[i] = zero_if_dead(out[i], 0, mask);
      if (is_differentiable(out[i].dtype()))
        out[i] = sum(out[i], {.axes = Dims{0}});
      else
        out[i] = any(out[i], {.axes = Dims{0}});
    }
    return out;
  };
}

ProgramPtr with_mask_at(const Program& program, std::size_t place) {
  Program moved = program;
  std::rotate(nth(moved.inputs, place), moved.inputs.end() - 1, moved.inputs.end());
  return std::make_shared<const Program>(std::move(moved));
}

void refuse_captured(const char* what, TensorSpan dx, std::size_t count) {
  check(!has_any(dx.first(count)),
        "{}: a tensor that the function captures is differentiated, but its rule knows only its "
        "arguments; pass it as an argument",
        what);
}

// The new body takes the operands and behind them the tangents that there are.
Jvp body_jvp(const char* what, const Op& op, const Program& body, TensorSpan x, TensorSpan dx,
             Rebind rebind) {
  const std::vector<bool> moves = present(dx);
  const Tensors operands = joined({x, kept(dx)});
  std::vector<bool> results_move;
  const Closed with_tangents = trace_inner(what, types_of(operands), [&](TensorSpan in) {
    return packed_jvp(body, in, moves, results_move);
  });
  const Tensors both = rebind(op, with_tangents, operands, false);  // results, then their tangents
  const std::size_t results = results_move.size();
  return {head(both, results), placed(results_move, std::span(both).subspan(results))};
}

Tensors body_transpose(const char* what, const Op& op, const Program& body, TensorSpan ct,
                       TensorSpan x, Rebind rebind) {
  const std::vector<bool> known = present(x), arrives = present(ct);
  const Tensors operands = joined({kept(x), kept(ct)});
  std::vector<bool> gets;
  const Closed backward = trace_inner(what, types_of(operands), [&](TensorSpan in) {
    return packed_transpose(body, in, known, arrives, gets);
  });
  return placed(gets, rebind(op, backward, operands, true));
}

Batched body_batch(const char* what, const Op& op, const Program& body, TensorSpan x,
                   std::span<const int> axes, std::int64_t size, const Tensor& mask,
                   Rebind rebind) {
  const Closed batched = batched_body(what, body, x, axes, size, mask);
  const Tensors operands = joined({x, list_of(mask)});
  return batched_in_front(rebind(op, batched, operands, false));
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

Types stop_type(const Params*, TypeSpan operands) { return {operands[0]}; }
void stop_lower(Lowering& out, const Equation& e) { out.define(e, 0, out.operand(e, 0)); }
Tensors stop_evaluate(const Op&, TensorSpan x) { return {x[0]}; }
constexpr Primitive stop_gradient_p{.name = "stop_gradient",
                                    .type = stop_type,
                                    .no_derivative = true,
                                    .batch = elementwise_batch,
                                    .lower = stop_lower,
                                    .evaluate = stop_evaluate};
static_assert(complete(stop_gradient_p));

}  // namespace

Tensor detail::stop_gradient(const Tensor& x, const Place& place) {
  PlaceScope at(place);
  check(x.has_value(), "stop_gradient: an empty Tensor, one that was never given a value");
  if (is_differentiable(x.dtype())) return bind1(stop_gradient_p, nullptr, {x});
  return x;
}

}  // namespace postern
