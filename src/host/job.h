// Job: a function that is entered on copies, on a thread of ours. Who asked for it may go before it
// returns.
#pragma once
#include "host/stage.h"

namespace postern::internal::host {

/// How a function has ended.
struct Ended {
  bool ok = false;
  std::exception_ptr error;
  ErrorCode code = ErrorCode::ok;
};

/// What a function needs that outlives its invocation. How it ended is under the lock of its kind.
struct Job : detail::StopState, Ended {
  /// Copies the operands, and makes room for the results.
  explicit Job(const Invocation& i);
  /// Enters the function. The run's own chain may be gone when it is late, so it is told by name
  /// only of what is around it.
  Ended enter() const noexcept;

  const HostSite* site;  // as long as there is the owner
  SitePtr spec;
  std::shared_ptr<const void> owner;
  const int device, depth;
  const bool delivery;  // of an asynchronous tap
  const std::weak_ptr<RunState> around;
  const FloatState floats;
  std::vector<RunName> inside;
  TapInfo info;
  std::unique_ptr<bool[]> mask;
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> data;
  std::atomic<bool> done{false};  // for who looks without the lock
  bool abandoned = false;
};

}  // namespace postern::internal::host
