// Waiting for everything, and the end of the process.
#pragma once
#include <chrono>

namespace postern::internal::run {

/// Drains when the process ends, by returning from main, std::exit, or an exception that nobody
/// catches: waits at most so long for runs in flight and undelivered taps, then prints the
/// unobserved failures. Called once.
void drain_at_exit(std::chrono::milliseconds limit);

/// A use of XLA's compiler, or of XLA as it begins, which crashes where the process's statics go
/// beneath it. The end of the process waits for it, at most that long; one that another thread
/// begins later waits for the process to be gone, and throws Error (failed_precondition) where it
/// is not in that time.
class Compilation {
 public:
  Compilation();
  ~Compilation();
  Compilation(const Compilation&) = delete;
};

/// Registers the exit handler anew. XLA makes statics when it first compiles and runs a kind of
/// thing, and what is made last is destroyed first: after such moments the wait is registered anew,
/// to come before they go, for a process that another thread than the main one ends.
void drain_before_what_is_new();

}  // namespace postern::internal::run
