// Puts a program's memory in the place of a module's parameters, for one call at a time.
#include "bound.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>

#include "types.h"

namespace postern::torch {

namespace {

using Mutex = std::recursive_timed_mutex;

struct Held {
  std::vector<const void*> tensors;
  std::weak_ptr<void> lock;
};

}  // namespace

std::vector<std::shared_ptr<void>> locks_for(const std::vector<detail::Parameter>& parameters) {
  static std::mutex mutex;
  static std::vector<Held> held;  // from the oldest on, of tensors that no other one has
  std::vector<const void*> tensors;
  for (const detail::Parameter& p : parameters) tensors.push_back(p.tensor.unsafeGetTensorImpl());
  std::vector<std::shared_ptr<void>> locks;
  const std::scoped_lock alone(mutex);
  std::erase_if(held, [](const Held& h) { return h.lock.expired(); });
  for (const Held& h : held) {
    std::shared_ptr<void> lock = h.lock.lock();
    const auto covered = [&](const void* t) {
      return std::find(h.tensors.begin(), h.tensors.end(), t) != h.tensors.end();
    };
    if (lock && std::erase_if(tensors, covered)) locks.push_back(std::move(lock));
  }
  if (tensors.empty()) return locks;
  locks.push_back(std::make_shared<Mutex>());
  held.push_back({std::move(tensors), locks.back()});
  return locks;
}

void Bound::lock(const StopToken& stop) {
  using namespace std::chrono_literals;
  int tries = 0;
  for (const std::shared_ptr<void>& mutex : f_.locks) {
    locks_.emplace_back(*static_cast<Mutex*>(mutex.get()), std::defer_lock);
    for (; !locks_.back().try_lock_for(20ms); ++tries)
      if (stop.stop_requested() || tries == 3000)
        throw Error(ErrorCode::unavailable,
                    "another call has been inside the module for a minute, or the run was stopped "
                    "meanwhile; a module whose parameters are operands does one call at a time, "
                    "and must not wait for another call of itself");
  }
}

Bound::Bound(const Erased& f, TorchTensors& inputs, const StopToken& stop) : f_(f) {
  if (f.parameters.empty()) return;
  lock(stop);
  for (std::size_t i = 0; i < f.parameters.size(); ++i) {
    memory_.push_back(inputs[i]);
    inputs[i] = f.parameters[i].tensor;
  }
  bind();
}

Bound::Bound(const Erased& f, const TorchTensors&, const TorchTensors& memory,
             const StopToken& stop)
    : f_(f), memory_(memory) {
  if (f.parameters.empty()) return;
  lock(stop);
  bind();
}

void Bound::bind() {
  const std::size_t count = f_.parameters.size();
  before_.reserve(count);
  wanted_graph_.reserve(count);
  versions_.reserve(count);
  try {
    for (std::size_t i = 0; i < count; ++i) {
      const at::Tensor& p = f_.parameters[i].tensor;
      at::Tensor own = p.variable_data();
      wanted_graph_.push_back(p.requires_grad());
      versions_.push_back(p.is_inference() ? -1 : p._version());  // which counts nothing
      before_.push_back(std::move(own));
      p.set_data(memory_[i]);
      if (at::GradMode::is_enabled() && differentiable(p)) p.requires_grad_(true);
    }
  } catch (...) {  // of a module half of which is the program's memory nothing may be left
    restore();
    throw;
  }
}

void Bound::restore() noexcept {
  for (std::size_t i = 0; i < before_.size(); ++i) {
    const at::Tensor& p = f_.parameters[i].tensor;
    p.requires_grad_(wanted_graph_[i]);
    p.set_data(before_[i]);
  }
}

Bound::~Bound() { restore(); }

void Bound::check_unchanged() const {
  for (std::size_t i = 0; i < versions_.size(); ++i)
    if (versions_[i] >= 0 && f_.parameters[i].tensor._version() != versions_[i])
      throw Error(ErrorCode::failed_precondition,
                  "the module has written to its parameter '" + f_.parameters[i].name +
                      "', which is the program's memory; what it updates must be a buffer, or be "
                      "written outside of the call");
}

}  // namespace postern::torch
