// Run: an execution that was started and can be waited for with a limit, cancelled, and given a
// deadline.
#pragma once
#include <postern/detail/api.h>
#include <postern/host.h>
#include <postern/tensor.h>
#include <postern/tree.h>

#include <chrono>
#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace postern {

/// A function under a name: a listener for the hooks of that name, or what stands for a registered
/// function.
struct HookBinding {
  std::string name;
  Callee fn;
};

struct RunOptions {
  std::chrono::nanoseconds deadline{0};  // over all its calls, from the start; 0: none
  Context context = {};                  // what CallInfo::context shows to its callbacks
  std::ostream* sink = nullptr;          // where its prints go that name no stream; null: std::cout

  // For this run alone: listeners, in place of those that its hooks of these names have, and
  // functions, in place of those that are registered under these names. A hook that may have none
  // is live. A name that the program does not have is a TypeError that lists those that it has.
  std::vector<HookBinding> hooks = {}, functions = {};
};

enum class RunStatus : std::uint8_t { running, done, failed, cancelled, stopped };

namespace detail {
struct StartedRun;
POSTERN_API RunStatus wait_run(StartedRun& run, std::optional<std::chrono::nanoseconds> limit);
POSTERN_API RunStatus status_of(const StartedRun& run);
POSTERN_API void cancel_run(StartedRun& run);
POSTERN_API const std::vector<Tensor>& results_of(StartedRun& run);
/// Calls `act` once when the run has ended, on any thread; it must not wait.
POSTERN_API void at_end_of(StartedRun& run, std::function<void()> act);
}  // namespace detail

/// An execution under way. Copies share it; dropping the last copy neither waits nor cancels. Any
/// number of threads may wait for one run, ask for its results and cancel it at once; a failure is
/// the same for all.
template <class R>
class Run {
 public:
  Run(std::shared_ptr<detail::StartedRun> run, R like)
      : run_(std::move(run)), like_(std::move(like)) {}

  /// Waits for the end: done, or stopped (a host function ended it early). Functions that the run
  /// has started have returned then, unless it was cancelled or its deadline has passed. Throws its
  /// failure; of a cancelled run a CallbackError cancelled. With a limit returns running when it
  /// passes.
  RunStatus wait() const { return detail::wait_run(*run_, {}); }
  RunStatus wait(std::chrono::nanoseconds limit) const { return detail::wait_run(*run_, limit); }
  /// Returns how it is now, without waiting. Throws nothing.
  RunStatus status() const { return detail::status_of(*run_); }

  /// Asks the run to stop: calls that have not begun are skipped, a function that looks at its
  /// StopToken sees it, waiters wake at once with a CallbackError of code cancelled. Harmless after
  /// the end. Safe from a signal handler's thread and from callbacks.
  void cancel() const { detail::cancel_run(*run_); }

  const std::shared_ptr<detail::StartedRun>& internal() const { return run_; }

  /// Waits, and returns the results. Throws as `wait` does; of a run that a host function ended
  /// early a CallbackError cancelled.
  R result() const { return detail::with_leaves(like_, detail::results_of(*run_)); }

 private:
  std::shared_ptr<detail::StartedRun> run_;
  R like_;
};

}  // namespace postern
