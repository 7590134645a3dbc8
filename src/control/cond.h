// cond: binding it, and its split.
#pragma once
#include "control/control.h"
#include "transform/split.h"

namespace postern::internal {

/// Binds a cond of branches, which take what they captured, then `operands`.
Tensors bind_cond(const Tensor& index, std::vector<Closed> branches, TensorSpan operands);

/// Adds what `more` marks to `mask`, which may be empty yet.
inline void join(std::vector<bool>& mask, const std::vector<bool>& more) {
  mask.resize(more.size());
  for (std::size_t i = 0; i < more.size(); ++i) mask[i] = mask[i] || more[i];
}

Primitive::SplitResult cond_split(const Op& op, TensorSpan x, const std::vector<bool>& wanted);

}  // namespace postern::internal
