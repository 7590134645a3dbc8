// A module's parameters over the memory of a program.
#pragma once
#include <postern/torch.h>

#include <mutex>

#include "derive.h"

namespace postern::torch {

/// The locks of these parameters, each of which one lock has, in an order that all functions keep.
std::vector<std::shared_ptr<void>> locks_for(const std::vector<detail::Parameter>& parameters);

/// While it lives, the module's parameters are the first inputs' memory, which `inputs` then names
/// by the parameters themselves, and nobody else does so. Waits for that until `stop` says not to,
/// at most a minute (Error, unavailable).
class Bound {
 public:
  Bound(const Erased& f, TorchTensors& inputs, const StopToken& stop);
  /// The same with memory that was bound before.
  Bound(const Erased& f, const TorchTensors& inputs, const TorchTensors& memory,
        const StopToken& stop);
  ~Bound();
  Bound(const Bound&) = delete;
  const TorchTensors& memory() const { return memory_; }
  /// Throws when the function has written to a parameter.
  void check_unchanged() const;

 private:
  void lock(const StopToken& stop);
  void bind();
  void restore() noexcept;

  const Erased& f_;
  TorchTensors memory_, before_;
  std::vector<bool> wanted_graph_;
  std::vector<std::int64_t> versions_;
  std::vector<std::unique_lock<std::recursive_timed_mutex>> locks_;
};

}  // namespace postern::torch
