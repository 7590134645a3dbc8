// Deadlines of runs whose functions are entered on the threads of those who wait: a thread of ours
// tells a run that is late to stop.
#pragma once
#include <memory>

#include "host/run_state.h"

namespace postern {
struct RunOptions;
}

namespace postern::internal::host {

/// Returns when a run must be over that starts now; never: max(). Throws TypeError.
RunState::Clock::time_point deadline_of(const RunOptions& options);

/// As long as it lives, fails the run when `at` passes. Costs about as much as a lock: the thread
/// that looks is woken only for one that passes before all that it knew of.
class Deadline {
 public:
  Deadline(std::shared_ptr<RunState> run, RunState::Clock::time_point at);
  /// Never waits for what that thread does with a run: it shares the run's state.
  ~Deadline();
  Deadline(const Deadline&) = delete;

 private:
  friend class Deadlines;
  const std::shared_ptr<RunState> run_;
  const RunState::Clock::time_point at_;
  bool told_ = false;
  Deadline *before_ = nullptr, *after_ = nullptr;  // in the list of all
};

}  // namespace postern::internal::host
