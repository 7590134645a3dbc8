// Calls that overlap: functions that a run has started and that somebody waits for later.
#pragma once
#include <cstdint>
#include <deque>
#include <exception>
#include <list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "host/enter.h"
#include "host/job.h"

namespace postern::internal::host {

/// The functions that a run started, or that were started outside of any run. A function works on
/// copies, on a thread of the executor; those of ordered sites enter one after another, and so do
/// the elements of one sequential batch. Those that a started function starts outside of any run
/// keep an order of their own, since it may wait for them. At most `max_host_threads` of them run
/// at a time, without those that wait for others; the rest wait for their turn.
class PendingCalls : public std::enable_shared_from_this<PendingCalls> {
 public:
  /// Makes them for a run. `run`: null for those outside of runs.
  explicit PendingCalls(RunState* run) : run_(run) {}
  PendingCalls(const PendingCalls&) = delete;

  /// Starts the function with copies of the operands, and writes a handle for each element that the
  /// site's result has. Throws what the system throws when it has no memory or thread.
  void start(const Invocation& i);
  /// Waits for what the handle stands for, and copies its results to `data`. False, and the run has
  /// failed, when there is no such call, it failed, is late, or the run stopped.
  bool wait(RunState& run, const HostSite& site, void* const* data, int device);
  /// Wakes who waits, since the run is to stop: who waits looks again, and functions are told.
  void wake();

  /// Returns whether a function has not returned yet.
  bool under_way() const;
  /// Ends them with the run: waits until no function is under way but those that are late, which
  /// fail it, and forgets all handles. What was thrown and nobody waited for goes to barrier().
  void finish(RunState& run) noexcept;
  /// Forgets these handles, of calls outside of runs: nobody will wait for them.
  void forget(std::span<const std::uint64_t> handles) noexcept;

  struct Job;

 private:
  using Lock = std::unique_lock<Mutex>;
  using Clock = RunState::Clock;
  struct Handle {
    std::shared_ptr<Job> job;
    std::size_t element = 0;  // of how the results are cut into
  };

  /// Who enters one after another: a site's (null: all ordered ones) on a device (-1: on all), of
  /// those that one function has started.
  struct Order {
    const HostSite* site = nullptr;
    int device = 0;
    std::uint64_t starter = 0;
    auto operator<=>(const Order&) const = default;
  };

  void enqueue(const Lock& lock, std::shared_ptr<Job> job);
  bool queue_behind_last(const std::shared_ptr<Job>& job);
  void launch(const Lock& lock, std::shared_ptr<Job> job);
  void give_thread(const Lock& lock, std::shared_ptr<Job> job);
  void launch_ready(const Lock& lock);
  void enter_next(Job& job);
  /// Returns whether the run, or the one that it is a part of, is to stop.
  bool is_stopped(const RunState& run) const;
  /// Sleeps until the job is done or abandoned, or the run stops or is late.
  void sleep(Lock& lock, const Job& job, const RunState& run);
  bool end_wait(Lock& lock, Job& job, RunState& run, int device);
  static void work(std::shared_ptr<PendingCalls> calls, std::shared_ptr<Job> job);
  void forget_job(const Lock& lock, const Job& job);
  void ended(const Lock& lock, Job& job);
  void tell_to_stop(const Lock& lock);
  void abandon(const Lock& lock, Job& job, bool by_deadline);
  void abandon_late(const Lock& lock, Job& job);
  static void fail_late(RunState& run, const Job& job) noexcept;
  static void watch(const std::shared_ptr<PendingCalls>& calls);
  static std::exception_ptr in_words(ErrorCode code, const Job& job,
                                     const std::exception_ptr& error) noexcept;
  /// Keeps the failure for barrier(); there is nobody else to tell.
  static void tell_nobody(const Job& job) noexcept;
  std::string unknown(std::uint64_t handle) const;
  static std::string misfit(const Job& job, const HostSite& site);

  RunState* const run_;
  mutable Mutex guard_;
  Condition changed_;
  Condition limits_;                   // for the thread that watches limits
  bool watched_ = false;               // there is one
  Clock::time_point watches_until_{};  // the least limit that it knows
  std::unordered_map<std::uint64_t, Handle> handles_;
  std::list<std::shared_ptr<Job>> jobs_;        // not returned yet, in the order of their starts
  std::deque<std::shared_ptr<Job>> ready_;      // for a thread
  std::map<Order, std::shared_ptr<Job>> last_;  // of what keeps an order
  std::deque<std::pair<std::uint64_t, Place>> used_;  // the last handles, and who waited
  std::vector<std::shared_ptr<Job>> failed_;          // and nobody has waited so far
  int running_ = 0;   // threads in functions that do not wait for others
  int sleeping_ = 0;  // in wait()
};

/// One started function.
struct PendingCalls::Job : host::Job {
  explicit Job(const Invocation& i) : host::Job(i), under_way(i.run.under_way) {}

  std::shared_ptr<void> under_way;  // let go when the function has returned
  std::uint64_t number = 0;         // of all started functions
  std::vector<std::size_t> bytes;   // of a handle's part of each result

  Order order;  // in last_
  bool keeps_order = false;
  std::shared_ptr<Job> next;  // enters behind this one
  Job* before = nullptr;      // which enters behind that one, as long as it is queued so
  std::list<std::shared_ptr<Job>>::iterator at;
  bool counts_as_running = false;  // in running_: it has a thread, and does not wait for others
  bool begun = false;
  bool by_deadline = false;              // why it was abandoned
  bool seen = false, forgotten = false;  // its failure; by all who could wait
  Clock::time_point limit = never;
  std::shared_ptr<Job> left_out_by;  // the late one that it was to enter behind
  std::exception_ptr told;           // the error as barrier() throws it

  bool has_limit() const { return spec->call.timeout.count() > 0; }
  bool failed() const { return abandoned || (done && error); }
  std::string why_late() const { return too_late(*spec, by_deadline); }
};

/// Returns those that were started outside of any run.
const std::shared_ptr<PendingCalls>& calls_outside();

}  // namespace postern::internal::host
