// cond: binding it, and its split.
#pragma once
#include "control/control.h"
#include "transform/split.h"

namespace postern::internal {

/// Binds a cond of branches, which take what they captured, then `operands`.
Tensors bind_cond(const Tensor& index, std::vector<Closed> branches, TensorSpan operands);

Primitive::SplitResult cond_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted);

}  // namespace postern::internal
