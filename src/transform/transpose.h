// Reverse mode's last step: a linear program run backwards.
#pragma once
#include "trace/trace.h"

namespace postern::internal {

/// Computes cotangents (empty: zero) of the inputs that are empty in `known`, in which the program
/// is linear, for those of its outputs; written into the current trace, or run. The entries of
/// known inputs are empty.
Tensors transpose_of(const Program& program, TensorSpan known, TensorSpan cotangents);

}  // namespace postern::internal
