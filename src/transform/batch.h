// vmap: a program for one element becomes one for a batch.
#pragma once
#include "trace/trace.h"

namespace postern {

/// Outputs of `program`, whose input i has a batch axis of `size` at `axes[i]` (-1: none), and
/// where their batch axes are; written into the current trace, or run. `mask`: pred[size], the
/// elements for which calls and taps run; empty: all.
std::pair<Tensors, std::vector<int>> batch_of(const Program& program, std::span<const Tensor> x,
                                              std::span<const int> axes, std::int64_t size,
                                              const Tensor& mask = {});

/// `x` with its batch axis moved from `from` to `to`; an axis of `size` is made when it has none
/// (-1).
Tensor move_batch(const Tensor& x, int from, int to, std::int64_t size);

}  // namespace postern
