// jvp, then split.
#include "transform/linearize.h"

#include "core/check.h"
#include "core/lists.h"
#include "transform/jvp.h"
#include "transform/simplify.h"
#include "transform/split.h"
#include "transform/transpose.h"
#include "transform/walk.h"

namespace postern::internal {

namespace {

/// Traces (inputs of f, tangents of the active ones) -> (values, tangents of those wanted results
/// that `moves` then marks). Rules may capture.
Closed jvp_program(const Program& f, const std::vector<bool>& active,
                   const std::vector<bool>& wanted, std::vector<bool>& moves) {
  Types types = f.input_types();
  const std::size_t inputs = types.size();
  append(types, where_marked(f.input_types(), active));
  Closed closed = trace_program(f.name, types, [&](TensorSpan in) {
    Tensors dx = placed(active, in.subspan(inputs));
    dx.resize(inputs);  // the captured ones do not move
    auto [y, dy] = jvp_of(f, in.first(inputs), dx);
    for (std::size_t i = 0; i < dy.size(); ++i)
      if (!wanted[i]) dy[i] = Tensor();
    moves = present(dy);
    return joined({y, kept(dy)});
  });
  closed.program = simplify(*closed.program);
  return closed;
}

}  // namespace

Linearized linearized(const Closed& f, TensorSpan x, const std::vector<bool>& active,
                      const std::vector<bool>& wanted) {
  Linearized out;
  out.input_types = types_of(x);
  std::vector<bool> moving(f.program->inputs.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    moving[i] = active[i] && is_differentiable(out.input_types[i].dtype);
  out.inputs_move = head(moving, x.size());

  // Its inputs: those of f, which are known, tangents, which are not, and what rules captured.
  const Closed both = jvp_program(*f.program, moving, wanted, out.results_move);
  std::vector<bool> unknown(f.program->inputs.size());
  unknown.resize(both.program->inputs.size() - both.captures.size(), true);
  unknown.resize(both.program->inputs.size(), false);
  const Halves halves = split(*both.program, unknown);

  const std::size_t results = f.program->outputs.size();
  const Tensors known = internal::apply(*halves.known, joined({x, f.captures, both.captures}));
  for (std::size_t i = 0; i < results; ++i)
    check(!halves.unknown_outputs[i],
          "{}: the value of result {} depends on a tangent; a rule given to custom_jvp must not do "
          "that",
          f.program->name, i);
  // A tangent that does not depend on the inputs' is zero, since the map is linear.
  std::size_t next_tangent = results;
  for (std::size_t i = 0; i < results; ++i)
    if (out.results_move[i]) out.results_move[i] = halves.unknown_outputs[next_tangent++];
  out.results = head(known, results);
  out.residuals = tail(known, known.size() - halves.residuals);
  out.map = halves.unknown;
  return out;
}

Tensors Linearized::push(TensorSpan dx) const {
  Tensors inputs = residuals;
  append(inputs, or_zeros_like(dx, inputs_move, input_types));
  return placed(results_move, internal::apply(*map, inputs));
}

Tensors Linearized::pull(TensorSpan ct) const {
  Tensors known = residuals;
  known.resize(map->inputs.size());  // the tangents are unknown
  const Tensors into = transpose_of(*map, known, where_marked(ct, results_move));
  return placed(inputs_move, std::span(into).subspan(residuals.size()));
}

}  // namespace postern::internal
