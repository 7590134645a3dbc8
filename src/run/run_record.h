// RunRecord: one execution of a program that calls back: its state, its context with XLA, its lane,
// and who waits for it.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "core/scoped.h"
#include "host/deadline.h"
#include "host/registry.h"
#include "host/run_state.h"
#include "host/timeline.h"
#include "pjrt/event.h"
#include "pjrt/ffi.h"
#include "run/runtime.h"

namespace postern::internal {
struct Module;
}

namespace postern::internal::run {

class CompiledProgram;

/// Returns what XLA is told to call a run. Scattered, so that whoever else starts programs through
/// the plug-in, and counts, does not meet it. Negative when it is not the only run that was ever
/// called so; never 0.
int mark_of(std::uint64_t number);

/// What the next run of a thread is a part of, though its program is one of its own; null: nothing.
struct WholeRun {
  std::shared_ptr<host::RunState> run;
  std::shared_ptr<host::RunObserver> observer;  // of its parts
};
/// Makes it the thread's for a scope, until a run begins that is a part of it.
class WholeRunScope : Scoped<const WholeRun*> {
 public:
  explicit WholeRunScope(const WholeRun& whole);
  /// Returns the calling thread's, which is no longer the next run's then.
  static WholeRun take();
};

/// What a run is asked for whose functions are entered on the thread that waits for it.
class RunRequest {
 public:
  /// Throws TypeError for options that are out of range, or name what these sites do not have.
  RunRequest(const RunOptions& options, std::span<const SitePtr> sites);
  /// Of a part of that run, until both are over.
  explicit RunRequest(WholeRun whole) : whole_(std::move(whole)) {}
  /// Gives it to a run that has not begun; where that is a deadline, `until` keeps it.
  template <class Run>
  void give(Run& run, std::optional<host::Deadline>& until) {
    if (whole_.run) {
      run.observer = whole_.observer;
      part_.emplace(*whole_.run, run.shared_from_this());
    }
    if (!options_) return;
    run.own_functions = own_;
    run.context = options_->context;
    run.sink = options_->sink;
    if (deadline_ != host::RunState::Clock::time_point::max())
      until.emplace(run.shared_from_this(), deadline_);
  }

 private:
  const RunOptions* options_ = nullptr;
  host::RunState::Clock::time_point deadline_ = host::RunState::Clock::time_point::max();
  std::shared_ptr<const host::RunFunctions> own_;
  WholeRun whole_;
  std::optional<host::RunState::Part> part_;
};

class RunRecord : public host::RunState, public std::enable_shared_from_this<RunRecord> {
 public:
  explicit RunRecord(const Backend& backend);
  ~RunRecord();

  /// Readies the record for a run of `program`, which stays alive until the run ends.
  void begin(std::shared_ptr<const CompiledProgram> program, Lane& lane);
  void begin(std::shared_ptr<const CompiledProgram> program, Lanes lanes);
  const pjrt::ExecuteContext& execute_context() const { return execute_context_; }

  /// What keeps the program of a run alive for who ran it: the run no longer does when it has
  /// ended, and a function that it called may have dropped the program's last other owner.
  using Owner = std::shared_ptr<const void>;
  struct Finish {
    bool ended;
    Owner owner;
  };
  /// Waits for `complete`, of each device, if host functions may be at work until then that the
  /// caller must not leave behind, or if the run is a part of another. To XLA's mind they cost
  /// nothing, so whether it runs a program on this thread says nothing of them.
  void await_functions(std::span<const pjrt::Event> complete) const;
  /// Ends the run when `complete`, of each device, says so: now if it is ready, else from XLA's
  /// thread. A record whose run on one device has ended well, and that nobody else has, goes to its
  /// lane for the next run: `record` is then null. With `awaited` it waits until the run, and what
  /// that started, has ended, unless the run is a part of another.
  static Finish finish(std::shared_ptr<RunRecord>& record, std::span<const pjrt::Event> complete,
                       bool awaited);
  /// Closes it, as the run is over: its lane is free, functions may go, even if results live on.
  Owner release() noexcept;

  /// What its devices may still read of other clients.
  std::shared_ptr<const void> views;

  std::shared_ptr<RunState> self() override { return weak_from_this().lock(); }

 private:
  friend class CompiledProgram;
  void prepare(std::shared_ptr<const CompiledProgram> program);  // the rest of begin()
  void number_devices_of_group();
  /// What release() does but for leaving the lanes, which it returns.
  struct Left {
    Lane* lane = nullptr;
    Lanes group;
    bool seen_by_none = false;   // no undelivered invocation looks at the record
    std::uint64_t trailing = 0;  // the number of a run that left early
    Owner owner = nullptr;
    void leave() const;
  };
  Left end() noexcept;
  static Finish end_or_leave_to_xla(std::shared_ptr<RunRecord>& record,
                                    std::span<const pjrt::Event> complete);
  /// Leaves the lane of a run of which only kernels in the device's queue are left: who comes next
  /// may queue behind them. The runtime knows of it until it ends. Not where functions have queued
  /// work of their own, behind which ordered effects of the host would have to wait.
  void leave_early() noexcept;
  static void completed(void* user, const pjrt::Failure* failure) noexcept;
  static void wait_for_calls(const std::shared_ptr<RunRecord>& record) noexcept;
  static void over(RunRecord* record) noexcept;

  const platforms::Platform* platform_;
  pjrt::ExecuteContext execute_context_;
  const Module* module_ = nullptr;  // lives as long as `owner`
  Lane* lane_ = nullptr;
  Lanes group_;                                // instead, of a run on several devices
  bool queues_work_ = false;                   // its functions may, on the device
  bool trails_ = false;                        // has left early
  std::atomic<std::size_t> waits_{0};          // for so many devices
  host::timeline::Clock::time_point began_{};  // only while a timeline is recorded
  std::shared_ptr<RunRecord> self_;            // while XLA may call
};

}  // namespace postern::internal::run
