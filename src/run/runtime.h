// Runtime: the platforms in use and their lanes; made on first use, once in a process.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/mutex.h"
#include "host/waits.h"
#include "run/backend.h"
#include "run/staging.h"

namespace postern::internal::run {

class RunRecord;

/// A device on which runs queue. A run that calls back has a lane for itself, so that nothing that
/// its functions start or wait for can ever queue behind it. Lanes of user-visible devices come
/// first, those of all platforms; spare ones are devices of further clients, made when they are
/// needed.
struct alignas(64) Lane {  // what is written for one is not beside what is read for another
  int index = 0;
  int client = 0;           // 0: its platform's main one
  int ordinal = 0;          // what that one calls its device
  bool grouped = false;     // of a client for one run on several devices at a time
  bool for_nested = false;  // only a nested run may take it
  int device = 0;           // what users see: the ordinal of the device that this lane stands for
  int memory = 0;           // lanes with the same number see each other's
  int queue = 0;            // runs of a lane may go to one with the same number
  Backend* backend = nullptr;
  pjrt::Device handle;
  std::atomic<bool> taken{false};     // by a run that calls back
  std::atomic<std::uint64_t> run{0};  // its number
  std::atomic<bool> started{false};   // the run has a number of add_started too
  // By whom it is taken: a run on one device, or one of a group of devices; `plain`: calls nothing.
  enum class Holder : std::uint8_t { single, plain, plain_group, calling_group };
  std::atomic<Holder> holder{Holder::single};
  std::atomic<int> dispatching{
      0};  // runs without calls between looking at `taken` and being queued
  std::shared_ptr<RunRecord> idle;  // for the next run; belongs to who has taken the lane
  Staging staging;

  const pjrt::Client& made_by() const { return backend->clients[client]; }
  bool has_client_of(const Lane& other) const {
    return backend == other.backend && client == other.client;
  }
  const platforms::Platform& platform() const { return backend->platform(); }
};

/// Lanes of one client, one for each device of a program that XLA cut, in the order of its devices.
using Lanes = std::vector<Lane*>;

class Runtime {
 public:
  /// Throws Error(failed_precondition) in a process that was forked off one that has it.
  static Runtime& get();
  /// Returns the one that is there, also in such a process: for what a run gives back.
  static Runtime& existing();
  static bool exists();

  const Config& config() const { return config_; }
  int device_count() const { return static_cast<int>(main_lanes_); }
  /// Returns the platforms in use, the default one first.
  const std::vector<std::unique_ptr<Backend>>& backends() const { return backends_; }
  Backend& backend_of(int device) { return *lane(device).backend; }
  /// Returns that of the device on which this thread's programs are by default.
  Backend& here();

  /// Takes a lane for a run that calls back, or that `start` began, until leave(). Throws
  /// CallbackError(reentry) when a nested run finds none or is too deep.
  Lane& take(int device, bool calls);
  void leave(Lane& lane);
  /// Returns whether the run is no longer on the lane that it took; one that left early may go on.
  static bool has_left(const Lane& lane, std::uint64_t run) {
    return !lane.taken.load() || lane.run.load() != run;
  }
  /// Waits until the run has left that lane and, if it left early, has ended too.
  void wait_for(const Lane& lane, std::uint64_t run);
  /// Takes lanes likewise for a run on several devices at once. It has all its lanes for itself,
  /// also when it calls nothing: two such programs whose parts queued in different orders on their
  /// devices would wait for each other. `calls`: whether the run calls back. XLA has the runs of
  /// one client that are on several devices go one after the other, so no other one shares a client
  /// with a run that is in its calls.
  Lanes take(const std::vector<int>& devices, bool calls);
  /// Returns whether no run is in its calls; then none begins until end_tuning(): run/tuning.h.
  bool try_begin_tuning();
  void end_tuning();
  /// Counts those that spare clients have brought so far, too.
  std::size_t lane_count() const { return lane_count_.load(std::memory_order_acquire); }
  /// Returns that of a device, or of any other index.
  Lane& lane(int index) { return *lanes_[static_cast<std::size_t>(index)]; }
  /// Returns the number of a run that needs no lane: a function called outside of XLA's programs.
  std::uint64_t next_run() { return runs_.fetch_add(1) + 1; }
  /// Adds a run without calls that is under way, or one that Run stands for, from its start on,
  /// also before it has a lane.
  std::uint64_t add_started();
  void remove_started(std::uint64_t started);
  /// Removes it when nobody has what this returns: so long barriers wait.
  static std::shared_ptr<void> keep_open(std::uint64_t started);
  /// Adds a run that has left its lane before its end (RunRecord::leave_early); `started`: it has
  /// such a number too.
  void add_trailing(std::uint64_t run, bool started);
  void remove_trailing(std::uint64_t run);
  /// Waits until the runs that have begun by now have ended, or that time; how many have not.
  /// `but`: those that can't end before the caller goes on, which are not waited for.
  std::size_t wait_for_runs(std::optional<std::chrono::steady_clock::time_point> until,
                            const std::vector<host::RunName>& but = {});

  /// Passes one that does not to a lane; `done_dispatching` when it has been queued.
  Lane& pass(int device);
  static void done_dispatching(Lane& lane) {
    lane.dispatching.fetch_sub(1, std::memory_order_release);
  }
  /// Does that once: when it is told, or at its end.
  struct Passed {
    explicit Passed(Lane& its) : lane(&its) {}
    ~Passed() { leave(); }
    Passed(const Passed&) = delete;
    void leave() {
      if (Lane* const its = std::exchange(lane, nullptr)) done_dispatching(*its);
    }
    Lane* lane;
  };

 private:
  explicit Runtime(Config config);
  Lane* try_take(Lane& lane);
  bool try_take(const Lanes& lanes, Lane::Holder holder);
  void check_depth() const;
  void wait_for_a_lane();  // for a while: it may be taken again at once
  void wait_for_tuning();
  Lane& take_any(int device);
  Lanes take_any(const std::vector<int>& devices, bool calls);
  Lane* try_take_single(Lane& main, bool nested);
  Lane* try_take_spare(const Lane& main, bool nested);
  bool try_take_main(const Lanes& lanes, Lane::Holder as, bool& stuck);
  std::optional<Lanes> try_take_spare(const std::vector<int>& devices, Lane::Holder as,
                                      bool may_add);
  Lane& make_lane(std::size_t index, Backend& backend, std::size_t client, int ordinal);
  /// Adds another client with so many lanes, unless there are more than `seen` by now; returns
  /// false when there can be no more.
  bool add_lanes(Backend& backend, std::size_t lanes, bool grouped, std::size_t seen);

  Config config_;
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // room for all; spare ones are made with their client
  std::size_t main_lanes_ = 0;
  std::atomic<std::size_t> lane_count_{0};
  Mutex adding_, grouping_;
  Mutex guard_;
  Condition freed_;
  alignas(64) std::atomic<int> waiting_{0};         // for a lane to become free; each run reads it
  std::atomic<int> tuning_{0};                      // and this
  alignas(64) std::atomic<std::uint64_t> runs_{0};  // each run writes it
  std::uint64_t last_start_ = 0;
  std::set<std::uint64_t> started_;
  std::map<std::uint64_t, bool> trailing_;  // by number: whether it was started
};

}  // namespace postern::internal::run
