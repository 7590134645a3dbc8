// vmap: a program for one element becomes one for a batch.
#pragma once
#include "trace/trace.h"

namespace postern::internal {

/// Batches `program`, whose input i has a batch axis of `size` at `axes[i]` (-1: none), and where
/// their batch axes are; written into the current trace, or run. `mask`: pred[size], the elements
/// that are alive (empty: all): calls and taps run for them, and what is no element's own has no
/// cotangent from others. It has from the mapped inputs: see shielded().
std::pair<Tensors, std::vector<int>> batch_of(const Program& program, TensorSpan x,
                                              std::span<const int> axes, std::int64_t size,
                                              const Tensor& mask = {});

/// Batches a traced function so, whose captures all elements share.
std::pair<Tensors, std::vector<int>> batch_of(const Closed& f, TensorSpan x, std::vector<int> axes,
                                              std::int64_t size, const Tensor& mask = {});

/// Returns whether it matters for which elements of a batch it runs: it calls functions, or has a
/// loop that another element's values may never end.
bool minds_who_runs(const Equation& equation);

/// Returns the batch axis of what is mapped, -1 of all else.
inline int axis_if(bool mapped, int axis = 0) {
  if (mapped) return axis;
  return -1;
}
inline std::vector<int> axes_where(const std::vector<bool>& mapped, int axis = 0) {
  std::vector<int> out;
  for (const bool m : mapped) out.push_back(axis_if(m, axis));
  return out;
}

/// Returns results whose batch axes are all in front.
inline std::pair<Tensors, std::vector<int>> batched_in_front(Tensors results) {
  std::vector<int> axes(results.size(), 0);
  return {std::move(results), std::move(axes)};
}

/// Moves the batch axis of `x` from `from` to `to`; an axis of `size` is made when it has none
/// (-1), for elements that are alive where `mask` is (empty: all).
Tensor move_batch(const Tensor& x, int from, int to, std::int64_t size, const Tensor& mask = {});
/// Moves that of each to the front.
inline void move_to_front(Tensors& x, std::span<const int> from, std::int64_t size,
                          const Tensor& mask = {}) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = move_batch(x[i], from[i], 0, size, mask);
}

}  // namespace postern::internal
