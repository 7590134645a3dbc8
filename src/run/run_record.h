// RunRecord: one execution of a program that calls back: its state, its context with XLA, its lane,
// and who waits for it.
#pragma once
#include <memory>
#include <optional>
#include <span>

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

/// What a run is asked for whose functions are entered on the thread that waits for it.
struct RunRequest {
  /// Throws TypeError for options that are out of range, or name what these sites do not have.
  RunRequest(const RunOptions& options, std::span<const SitePtr> sites);
  /// Gives it to a run that has not begun; where that is a deadline, `until` keeps it.
  template <class Run>
  void give(Run& run, std::optional<host::Deadline>& until) const {
    run.own_functions = own;
    run.context = options.context;
    run.sink = options.sink;
    if (deadline != host::RunState::Clock::time_point::max())
      until.emplace(run.shared_from_this(), deadline);
  }

  const RunOptions& options;
  const host::RunState::Clock::time_point deadline;
  const std::shared_ptr<const host::RunFunctions> own;
};

class RunRecord : public host::RunState, public std::enable_shared_from_this<RunRecord> {
 public:
  explicit RunRecord(const Backend& backend);
  ~RunRecord();

  /// Readies the record for a run of `program`, which stays alive until the run ends.
  void begin(std::shared_ptr<const CompiledProgram> program, Lane& lane);
  void begin(std::shared_ptr<const CompiledProgram> program, LaneGroup group);
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
  /// thread. A record whose run has ended well, and that nobody else has, goes to its lane for the
  /// next run: `record` is then null. `awaited`: waits for a run that is alone, until what it
  /// started has ended too.
  static Finish finish(std::shared_ptr<RunRecord>& record, std::span<const pjrt::Event> complete,
                       bool awaited);
  /// Closes it, as the run is over: its lane is free, functions may go, even if results live on.
  Owner release() noexcept;

  /// What it was given for itself; null: nothing. Until its functions have been found.
  std::shared_ptr<const host::RunFunctions> own_functions;
  /// What its devices may still read of other clients.
  std::shared_ptr<const void> views;

  std::weak_ptr<host::RunState> handle() override {
    if (part_of) return part_of;
    return weak_from_this();
  }

 private:
  friend class CompiledProgram;
  void prepare(std::shared_ptr<const CompiledProgram> program);
  /// What release() does but for leaving the lanes, which it returns.
  struct Left {
    Lane* lane = nullptr;
    std::vector<Lane*> group;
    bool seen_by_none = false;   // no undelivered invocation looks at the record
    std::uint64_t trailing = 0;  // the number of a run that left early
    Owner owner = nullptr;
    void leave() const;
  };
  Left end() noexcept;
  static Finish finish(std::shared_ptr<RunRecord>& record, std::span<const pjrt::Event> complete);
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
  std::vector<Lane*> group_;                   // instead, of a run on several devices
  bool queues_work_ = false;                   // its functions may, on the device
  bool trails_ = false;                        // has left early
  std::atomic<std::size_t> waits_{0};          // for so many devices
  host::timeline::Clock::time_point began_{};  // only while a timeline is recorded
  std::shared_ptr<RunRecord> self_;            // while XLA may call
};

}  // namespace postern::internal::run
