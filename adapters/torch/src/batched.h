// A function of torch for a batch: by torch's vmap, or by a loop.
#pragma once
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <postern/torch.h>

#include <optional>

#include "derive.h"

namespace postern::torch {

/// While it lives a vmap of torch under way on this thread is not seen: for calls of a program that
/// a function in a vmap has run.
class Outside {
 public:
  Outside();

 private:
  std::optional<c10::impl::ExcludeDispatchKeyGuard> guard_;
};

/// `in`: each with the batch in front. Results likewise. Where a graph is wanted, a function that
/// leaves it, or draws random numbers, which must be drawn again for its derivative, is a loop.
detail::TorchTensors run_batched(const detail::Erased& f, const detail::TorchTensors& in,
                                 std::int64_t size, Learned& learned);

}  // namespace postern::torch
