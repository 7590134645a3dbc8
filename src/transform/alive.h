// Elements of a batch that are not alive: a branch that they did not take, a loop that has ended
// for them. They are computed with the others, and what comes of it is thrown away. But reverse
// mode goes back through it with a cotangent of 0, and 0 times an infinite slope is nan.
#pragma once
#include "trace/trace.h"

namespace postern::internal {

/// Shields `x`, with the batch axis `axis` (-1: all elements share it), for elements of which those
/// of `mask` are alive: no cotangent comes back from the others.
Tensor shielded(const Tensor& x, int axis, const Tensor& mask);
/// Shields those of `x` that have a batch axis.
Tensors shielded(Tensors x, std::span<const int> axes, const Tensor& mask);

/// Shields a factor of what all elements share: in derivatives it is 0 for those that are not
/// alive, since their own number may be infinite.
Tensor shielded_factor(const Tensor& x, int axis, const Tensor& mask);

/// Returns whether a cotangent of 0 is 0 behind it, whatever its operands are.
bool keeps_zeros(const Equation& equation);

/// Returns `x`, 0 for the elements along that axis that are not alive.
Tensor zero_if_dead(const Tensor& x, int axis, const Tensor& mask);

}  // namespace postern::internal
