// Steps of torch's graph that are not torch's own: classes derived from torch::autograd::Function,
// and compiled parts of scripts.
#pragma once
#include <ATen/core/Tensor.h>
#include <postern/error.h>

#include <vector>

namespace postern::torch {

/// Torch's forward mode would lose something; twice its reverse mode does not.
struct NoForwardMode : Error {
  using Error::Error;
};

/// Whether torch's graph has a path from one of y to one of x.
bool depends(const std::vector<at::Tensor>& y, const std::vector<at::Tensor>& x);

/// Where a thread's graph begins, for what it adds to it.
std::uint64_t graph_position();

/// Whether y depends on such steps. Those that this thread has made since `began` throw from then
/// on where the derivative that they give should have one in its turn, and has none.
bool foreign_steps(const std::vector<at::Tensor>& y, std::uint64_t began);

}  // namespace postern::torch
