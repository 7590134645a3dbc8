// Stopping, and waiting for what another thread does, for a stop or for a time, whichever comes
// first. Each of them wakes who waits, so that nobody looks again and again.
#pragma once
#include <postern/detail/api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stop_token>
#include <string>

#include "core/mutex.h"

namespace postern::detail {

/// What a StopToken looks at, and where end_run leaves its first caller's name; no name where the
/// run was to stop by then. A flag beside the standard's source is read at each invocation.
struct StopState {
  std::atomic<bool> stop{false};
  std::atomic<const void*> end{nullptr};
  std::stop_source source;  // wakes who waits

  void request_stop() noexcept {
    stop.store(true, std::memory_order_release);
    source.request_stop();
  }
};

}  // namespace postern::detail

namespace postern::internal::host {

/// Returns the run that the calling thread works for; null: none.
POSTERN_API const detail::StopState* surrounding_run();

/// Returns the text of any exception: what() or its type's name.
POSTERN_API std::string describe(const std::exception_ptr& error);

/// Why a wait is over.
enum class Woken : std::uint8_t { done, stopped, late };

inline constexpr auto never = std::chrono::steady_clock::time_point::max();

/// Waits under a lock until `done` is true, who has the state (null: nobody) is to stop, or the
/// limit has passed; returns the first of them that holds.
template <class Done>
Woken wait_at(StopCondition& changed, std::unique_lock<Mutex>& lock, const detail::StopState* state,
              const Done& done, std::chrono::steady_clock::time_point limit = never) {
  const std::stop_token stop = state ? state->source.get_token() : std::stop_token();
  if (changed.wait_until(lock, stop, limit, done)) return Woken::done;
  return stop.stop_requested() ? Woken::stopped : Woken::late;
}

}  // namespace postern::internal::host
