// vmap: a program for one element becomes one for a batch.
#pragma once
#include "trace/trace.h"

namespace postern::internal {

/// Outputs of `program`, whose input i has a batch axis of `size` at `axes[i]` (-1: none), and
/// where their batch axes are; written into the current trace, or run. `mask`: pred[size], the
/// elements for which calls and taps run; empty: all.
std::pair<Tensors, std::vector<int>> batch_of(const Program& program, TensorSpan x,
                                              std::span<const int> axes, std::int64_t size,
                                              const Tensor& mask = {});

/// The batch axis of what is mapped, -1 of all else.
inline int axis_if(bool mapped, int axis = 0) {
  if (mapped) return axis;
  return -1;
}
inline std::vector<int> axes_where(const std::vector<bool>& mapped, int axis = 0) {
  std::vector<int> out;
  for (const bool m : mapped) out.push_back(axis_if(m, axis));
  return out;
}

/// `x` with its batch axis moved from `from` to `to`; an axis of `size` is made when it has none
/// (-1).
Tensor move_batch(const Tensor& x, int from, int to, std::int64_t size);
/// The same of each, to the front.
inline void move_to_front(Tensors& x, std::span<const int> from, std::int64_t size) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = move_batch(x[i], from[i], 0, size);
}

}  // namespace postern::internal
