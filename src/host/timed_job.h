// A firing with a time limit: copies of the leaves that outlive the run, and the thread that works
// on them.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <vector>

#include "core/mutex.h"
#include "host/run_state.h"

namespace postern::internal::host {

struct TimedJob : detail::StopState {
  HostSite site;  // a copy: the program may go before the late function returns
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> data;
  Mutex guard;
  Condition finished;
  std::atomic<bool> done{false};
  // Under the guard, from here on.
  bool abandoned = false, ok = false;
  std::exception_ptr error;
  ErrorCode code = ErrorCode::ok;

  /// Copies the operands.
  TimedJob(const HostSite& s, void* const* operands);
};

/// Enters the job's function on a host thread that is told of the nesting around it by name only:
/// the run's own chain may be gone when the function is late.
void start(const std::shared_ptr<TimedJob>& job, const TapInfo& info, const RunState& run,
           int device);

/// Waits until the function has returned, until the limit, or until the run is stopped. The lock is
/// the guard's.
std::unique_lock<Mutex> wait_for(TimedJob& job, const RunState& run,
                                 RunState::Clock::time_point limit);

}  // namespace postern::internal::host
