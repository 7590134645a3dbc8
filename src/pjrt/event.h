// A PJRT event: work that is under way, which ends well or with an error.
#pragma once
#include "pjrt/failure.h"
#include "pjrt/owned.h"

#include <chrono>
#include <optional>

namespace postern::internal::pjrt {

/// Called once when an event is ready, on the thread that completes it (at once if it was ready).
/// `failure` is null when all went well and is gone when the call returns.
using ReadyCallback = void (*)(void* user, const Failure* failure) noexcept;

/// Who lets go of an event forgets it, not the work: a callback already given still comes.
class Event {
 public:
  Event() = default;
  /// Takes ownership of `handle`.
  Event(const PJRT_Api* api, PJRT_Event* handle) : handle_(handle, Free{api}) {}

  explicit operator bool() const { return handle_ != nullptr; }
  PJRT_Event* handle() const { return handle_.get(); }

  /// Returns whether it has finished, well or not.
  bool is_ready() const;
  /// Waits without a limit; throws Error if the work failed.
  void await() const;
  /// Waits at most that long; true when finished, well or not (then ask error() or await()).
  [[nodiscard]] bool wait_for(std::chrono::nanoseconds limit) const;
  /// Returns the error of a finished event; nothing if it ended well or is not ready.
  std::optional<Failure> error() const;
  /// Throws Error when XLA takes no callback; none comes then.
  void on_ready(ReadyCallback callback, void* user) const;
  /// Calls back whatever happens: where XLA takes none, this thread waits and calls it.
  void surely_on_ready(ReadyCallback callback, void* user) const noexcept;

 private:
  const PJRT_Api* api() const { return handle_.get_deleter().api; }

  Owned<PJRT_Event> handle_;
};

}  // namespace postern::internal::pjrt
