// A process that was forked off one in which the runtime is in use: of its threads only the one
// that forked is here, so whoever waited for another would wait for ever.
#pragma once
#include <atomic>

namespace postern::internal {

extern constinit std::atomic<bool> was_forked;

/// Returns whether this is such a process.
inline bool forked() { return was_forked.load(std::memory_order_relaxed); }

[[noreturn]] void throw_forked();
/// Throws Error(failed_precondition) in such a process: before every lock and wait that another
/// thread may have to end.
inline void refuse_forked() {
  if (forked()) [[unlikely]]
    throw_forked();
}

/// Begins to watch, or no longer does: the runtime is in use.
void watch_forks(bool in_use);

}  // namespace postern::internal
