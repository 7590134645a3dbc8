// Forward mode: a program's values and tangents together.
#pragma once
#include "trace/literal.h"
#include "trace/trace.h"

namespace postern::internal {

/// Computes values and tangents of the outputs, written into the current trace, or run. An empty
/// Tensor is a zero tangent; what is not differentiable (integers, pred) has none.
std::pair<Tensors, Tensors> jvp_of(const Program& program, TensorSpan x, TensorSpan dx);

/// Computes the same for tensors without gaps: from the inputs and the tangents of those that
/// `moves` marks to the outputs and the tangents of those that `results_move` then marks.
Tensors packed_jvp(const Program& program, TensorSpan in, const std::vector<bool>& moves,
                   std::vector<bool>& results_move);

/// Computes those of one equation.
std::pair<Tensors, Tensors> jvp_of(const Op& op, TensorSpan x, TensorSpan dx);

/// Returns the type of a tangent where a Tensor must be shown: see no_tangent.
Type tangent_type(const Type& type);

/// Returns what stands for the tangent of a value that has none, where a Tensor must be shown: pred
/// zeros of its shape (JAX's float0).
Tensor no_tangent(const Type& type);
/// Shows a tangent or cotangent of a value of that type (empty: zero) as a Tensor.
Tensor shown_tangent(const Tensor& t, const Type& type);
/// Puts zeros so in the place of what is empty; only where `wanted` says so, if it is given.
Tensors filled(Tensors derivatives, const Types& types, const std::vector<bool>& wanted = {});
/// Returns those that `mask` marks, zeros for those among them that are empty.
inline Tensors or_zeros_like(TensorSpan tensors, const std::vector<bool>& mask,
                             const Types& types) {
  Tensors out;
  for (std::size_t i = 0; i < mask.size(); ++i)
    if (mask[i]) out.push_back(or_zeros_of(tensors[i], types[i]));
  return out;
}

}  // namespace postern::internal
