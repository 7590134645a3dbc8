// Reverse mode: a function near a point as its value and a linear map, which can be pushed forward
// or pulled back.
#pragma once
#include <postern/transforms.h>

#include "trace/trace.h"

namespace postern::internal {

struct Linearized {
  Tensors results;  // the function's value
  ProgramPtr map;   // residuals, tangents of the moving inputs -> tangents of the moving results
  Tensors residuals;
  std::vector<bool> inputs_move, results_move;
  Types input_types;

  /// Computes tangents of the results (empty: zero) for those of the inputs.
  Tensors push(TensorSpan dx) const;
  /// Computes cotangents of the inputs (empty: zero) for those of the results.
  Tensors pull(TensorSpan ct) const;
};

/// Linearizes `f` at `x`; its known half is written into the current trace, or run. Only inputs
/// that `active` marks, and that are differentiable, move; of the results only those that `wanted`
/// marks.
Linearized linearized(const Closed& f, TensorSpan x, const std::vector<bool>& active,
                      const std::vector<bool>& wanted);

}  // namespace postern::internal

/// What vjp, linearize and linear_transpose return holds; `what` is for errors.
struct postern::detail::LinearMap {
  const char* what;
  internal::Linearized of;
};
