// Reverse mode's last step: a linear program run backwards.
#pragma once
#include "trace/trace.h"

namespace postern::internal {

/// Computes cotangents (empty: zero) of the inputs that are empty in `known`, in which the program
/// is linear, for those of its outputs; written into the current trace, or run. The entries of
/// known inputs are empty.
Tensors transpose_of(const Program& program, TensorSpan known, TensorSpan cotangents);

/// Computes the same for tensors without gaps: from the inputs that `known` marks and the
/// cotangents of the outputs that `arrives` marks to those of the inputs that `gets` then marks.
Tensors packed_transpose(const Program& program, TensorSpan in, const std::vector<bool>& known,
                         const std::vector<bool>& arrives, std::vector<bool>& gets);

/// The transpose of an operation that is its own transpose.
Tensors self_transpose(const Op& op, TensorSpan ct, TensorSpan, TypeSpan);

}  // namespace postern::internal
