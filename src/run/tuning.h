// Tuning: whether a compiler may try code on the device.
#pragma once
#include "run/runtime.h"

namespace postern::internal::run {

/// XLA's compiler for GPUs runs what it chooses between, and has the device for itself meanwhile:
/// it waits until no program is being run there, and no other one begins. A run that is inside of a
/// host function would be waited for, also by what that function compiles or runs, for ever. So
/// either no run that calls back is under way, and those that come wait until the compiler is done,
/// or it is told to choose without trying.
class Tuning {
 public:
  explicit Tuning(const platforms::Platform& platform)
      : needed_(platform.tunes_on_device),
        granted_(!needed_ || Runtime::get().try_begin_tuning()) {}
  ~Tuning() {
    if (needed_ && granted_) Runtime::existing().end_tuning();
  }
  Tuning(const Tuning&) = delete;
  bool granted() const { return granted_; }

 private:
  const bool needed_, granted_;
};

}  // namespace postern::internal::run
