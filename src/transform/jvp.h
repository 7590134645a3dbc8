// Forward mode: a program's values and tangents together.
#pragma once
#include "trace/trace.h"

namespace postern {

/// Values and tangents of the outputs, written into the current trace, or run. An empty Tensor is a
/// zero tangent; what is not differentiable (integers, pred) has none.
std::pair<Tensors, Tensors> jvp_of(const Program& program, std::span<const Tensor> x,
                                   std::span<const Tensor> dx);

/// The same for one equation.
std::pair<Tensors, Tensors> jvp_of(const Op& op, std::span<const Tensor> x,
                                   std::span<const Tensor> dx);

/// Zeros of that type.
Tensor zeros_of(const Type& type);
inline Tensor or_zeros_of(const Tensor& t, const Type& type) {
  return t.has_value() ? t : zeros_of(type);
}

/// What stands for the tangent of a value that has none, where a Tensor must be shown: pred zeros
/// of its shape (JAX's float0).
Tensor no_tangent(const Type& type);

}  // namespace postern
