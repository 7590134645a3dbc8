// A batch by torch's vmap, where this thread may enter it, or element by element.
#include "batched.h"

#include <ATen/core/grad_mode.h>
#include <ATen/functorch/BatchedFallback.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/functorch/DynamicLayer.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <mutex>

#include "kept.h"
#include "watch.h"

namespace postern::torch {

namespace {

namespace functorch = at::functorch;
using detail::TorchTensors;

std::mutex in_vmap;  // what torch keeps of its vmaps is the process's
thread_local bool inside = false;

class Vmap {
 public:
  explicit Vmap(std::int64_t size)
      : level_(functorch::initAndPushDynamicLayer(functorch::TransformType::Vmap, size,
                                                  functorch::RandomnessType::Different)) {
    inside = true;
  }
  ~Vmap() {
    inside = false;
    functorch::popDynamicLayerAndDeleteMetadata();
  }
  Vmap(const Vmap&) = delete;
  std::int64_t level() const { return level_; }

 private:
  std::int64_t level_;
};

/// The batch in front; what is the same for all elements is repeated.
at::Tensor unwrapped(const at::Tensor& y, std::int64_t level, std::int64_t size) {
  const auto* const batched = functorch::maybeGetBatchedImpl(y);
  if (batched && batched->level() == level) return batched->value().movedim(batched->bdim(), 0);
  std::vector<std::int64_t> sizes = y.sizes().vec();
  sizes.insert(sizes.begin(), size);
  return y.unsqueeze(0).expand(sizes);
}

TorchTensors by_vmap(const detail::Erased& f, const TorchTensors& in, std::int64_t size) {
  TorchTensors y;
  std::int64_t level = 0;
  {
    const Vmap vmap(size);
    level = vmap.level();
    TorchTensors x;
    for (const at::Tensor& t : in) x.push_back(functorch::makeBatched(t, 0, level));
    y = f.run(x);
    // Still inside, where operations see the wrapped tensors.
  }
  for (at::Tensor& t : y)
    if (t.defined()) t = unwrapped(t, level, size);
  return y;
}

TorchTensors by_loop(const detail::Erased& f, const TorchTensors& in, std::int64_t size) {
  std::vector<TorchTensors> all;  // by result
  for (std::int64_t i = 0; i < size; ++i) {
    TorchTensors x;
    for (const at::Tensor& t : in) x.push_back(t.select(0, i));
    const TorchTensors y = f.run(x);
    all.resize(y.size());
    for (std::size_t r = 0; r < y.size(); ++r) all[r].push_back(y[r]);
  }
  TorchTensors out;
  for (const TorchTensors& elements : all) out.push_back(at::stack(elements));
  return out;
}

bool wants_graph(const TorchTensors& in) {
  return at::GradMode::is_enabled() &&
         std::any_of(in.begin(), in.end(), [](const at::Tensor& t) { return t.requires_grad(); });
}

constexpr c10::DispatchKeySet layers({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                                      c10::DispatchKey::FuncTorchDynamicLayerBackMode});

}  // namespace

Outside::Outside() {
  if (inside) guard_.emplace(layers);
}

TorchTensors run_batched(const detail::Erased& f, const TorchTensors& in, std::int64_t size,
                         Learned& learned) {
  const bool graph = wants_graph(in);
  if (inside || (graph && !learned.vmap)) return by_loop(f, in, size);
  std::unique_lock alone(in_vmap, std::try_to_lock);
  if (!alone) return by_loop(f, in, size);
  if (!graph) return by_vmap(f, in, size);
  const RandomState began = random_state();
  {
    const Watch watch;
    TorchTensors y = by_vmap(f, in, size);
    if (!watch.seen() && random_state() == began) return y;
  }
  alone.unlock();
  learned.vmap = false;
  rewind_random_state(began);
  return by_loop(f, in, size);
}

}  // namespace postern::torch
