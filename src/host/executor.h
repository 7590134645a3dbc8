// Executor: host threads for functions that must not run on the device's own thread. They start on
// first use and go when idle.
#pragma once
#include <postern/detail/api.h>

#include <cstdint>
#include <functional>

#include "core/scoped.h"

namespace postern::internal::host {

/// Runs `job` on a thread of its own at once: an idle one, else a new one, which computes as the
/// caller's does (host/float_state). `job` must not throw. Throws Error(resource_exhausted) when
/// the system has no thread.
POSTERN_API void run_on_host_thread(std::function<void()> job);
/// Sees to it that a job's thread has a core, for who has brought the job and goes on computing,
/// and holds no lock that the job takes.
void let_jobs_begin();

inline constexpr std::int64_t max_host_threads = 64;
/// Runs body(0) ... body(n-1) on the calling and on further threads, at most `threads` in all;
/// returns when all are done. `body` must not throw.
POSTERN_API void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body,
                              std::int64_t threads = max_host_threads);

/// The threads of the runtime that the calling thread works for, while this lives: they were at
/// work a moment ago, and are fast to take part.
class Helpers : Scoped<Helpers*> {
 public:
  /// `schedule(from, task, data)` has task(data) called on one of the threads, or says false.
  using Schedule = bool (*)(void* from, void (*task)(void*), void* data);
  Helpers(void* from, Schedule schedule);
  POSTERN_API static bool near();  // whether the calling thread has some

 private:
  friend void compute_for(std::int64_t, const std::function<void(std::int64_t)>&);
  void* const from_;
  const Schedule schedule_;
};

/// Does as parallel_for on few threads, of the helpers where there are some. `body` must wait for
/// nothing and must not throw. A helper that comes when all is done, perhaps after the run, finds
/// that out in memory of its own.
POSTERN_API void compute_for(std::int64_t n, const std::function<void(std::int64_t)>& body);

/// Returns the cores that the process was allowed when somebody first asked.
POSTERN_API std::int64_t core_count();

}  // namespace postern::internal::host
