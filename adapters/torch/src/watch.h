// Whether a function of torch leaves torch's graph while it runs.
#pragma once
#include <ATen/record_function.h>

#include <optional>

namespace postern::torch {

/// While it lives: whether an operation of this thread ran where autograd is off, as inside of a
/// class derived from torch::autograd::Function, or a compiled script was entered.
class Watch {
 public:
  Watch();
  ~Watch();
  Watch(const Watch&) = delete;
  bool seen() const { return seen_; }
  void see() { seen_ = true; }

 private:
  Watch* const around_;
  bool seen_ = false;
  const at::RecordFunctionGuard recording_;
  std::optional<at::CallbackHandle> callback_;
};

/// While it lives this thread's watch sees nothing: for steps that have a derivative nevertheless.
class Unwatched {
 public:
  Unwatched();
  ~Unwatched();
  Unwatched(const Unwatched&) = delete;

 private:
  Watch* const watch_;
};

}  // namespace postern::torch
