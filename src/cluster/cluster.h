// The cluster that this process belongs to, and the state that its runs share: which run is in
// collectives, and which have failed where.
//
// All processes run the same programs, and count the runs that have collectives over processes. One
// that fails on one of them must fail on all: its process sends a notice with the run's number to
// the others. Data belongs to a run's number too, so nothing that a failed run has left under way
// is taken for what a later one sends.
#pragma once
#include <postern/cluster.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "cluster/link.h"
#include "cluster/machine.h"
#include "cluster/transport.h"
#include "cluster/watched.h"

namespace postern::clusters {

/// Of Config, before the cluster is joined. Throws Error(failed_precondition) when another one was.
void choose(const std::string& library, std::chrono::milliseconds patience);
std::chrono::milliseconds patience();

/// The rank and the number of processes, as far as is known: 0 and 1 before the cluster is joined.
int rank_now();
int size_now();

/// Where one device of a run is in its collectives.
struct Turn {
  std::uint64_t run, number;
};

class Cluster {
 public:
  static constexpr int most_devices = 64;  // of a process that take part

  /// Joins it when it is first asked for.
  static Cluster& get();
  /// The one that was joined, or null.
  static Cluster* joined();

  const Transport* transport() const { return transport_; }  // null where the process is alone
  int rank() const { return transport_ ? transport_->rank : 0; }
  int size() const { return transport_ ? transport_->size : 1; }

  /// A run was started that has not begun, and one that has begun or never will. Runs begin in any
  /// order, but one that is cancelled before it begins must be told of before the next one meets.
  void starts(std::uint64_t ticket);
  void begins(std::uint64_t ticket) noexcept;
  /// A run with collectives begins here; its number is that of its execution.
  void watch(std::uint64_t run, std::shared_ptr<Watched> watched);
  /// A device of this run comes to its next collective. Throws when the run has failed elsewhere,
  /// and when another run of this process is in collectives.
  Turn enter(std::uint64_t run, int device);
  /// A device of the run, of so many, has come to its end together with all other processes. With
  /// the last of them the run is over for the others, although its results may not be there yet.
  void came_to_end(std::uint64_t run, std::size_t devices);
  /// The run is over.
  void leave(std::uint64_t run) noexcept;
  /// The run has failed here: tells the others why, unless they are the reason.
  void run_failed(std::uint64_t run, const std::string& why) noexcept;

  /// Whether the run of this turn is over, and why.
  bool is_over(const Turn& turn) const { return next_.load(std::memory_order_acquire) > turn.run; }
  std::string why_over();
  /// Reads what others tell, and ends runs by it. The watcher does so every few milliseconds.
  void listen() noexcept;

  /// For the watcher: whether runs have begun that are not over; the one that is in collectives, or
  /// the only one; and its end, for now or for good.
  bool has_runs();
  std::shared_ptr<Watched> current();
  void end_current(const std::string& why) noexcept;
  void end_for_good(const std::string& why) noexcept;
  const Machine& machine() const { return *machine_; }

  /// The way to a device's like on another process. One thread at a time has a device's links, who
  /// has its lane: a run that has failed may still be leaving its last meeting when the next
  /// begins.
  Link& link(int peer, int device);
  struct Lane {
    std::atomic_flag taken;
    std::map<int, std::unique_ptr<Link>> links;
    struct Scratch {
      std::unique_ptr<std::byte[]> memory;
      std::size_t bytes = 0;
    };
    std::array<Scratch, 2> scratch;
  };
  Lane& lane(int device) { return lanes_[static_cast<std::size_t>(device)]; }

  /// The device has waited for this process for a while; -1: it does not wait.
  void waits(int device, int peer) {
    waiting_[static_cast<std::size_t>(device)].store(peer, std::memory_order_relaxed);
  }
  bool waits_for(int peer) const;
  /// " while it waited for process 3", where a device of it does.
  std::string waiting() const;

  /// What to add to this process's clock to have that of process 0, and how wrong that may be.
  std::chrono::nanoseconds clock_offset() const { return clock_offset_; }
  std::chrono::nanoseconds clock_error() const { return clock_error_; }

 private:
  Cluster();
  struct Ended {  // by the notice of another one
    std::shared_ptr<Watched> watched;
    std::string why;
  };
  void read_notices();
  void keep(const Notice& notice);
  std::vector<Ended> settle();
  void tell(std::uint64_t run, const std::string& text) noexcept;
  bool has_ended(std::uint64_t run) const;
  void end_run(std::uint64_t run);
  void align_clocks();
  static void before_end();

  const Transport* transport_ = nullptr;
  std::unique_ptr<Machine> machine_;
  std::mutex guard_;
  std::atomic<std::uint64_t> next_{0};  // the number of the next run, or of the one that is active
  std::atomic<std::uint64_t> active_{0};  // its execution; 0: none is in collectives
  std::array<std::atomic<std::uint64_t>, most_devices> numbers_{};
  std::map<std::uint64_t, std::shared_ptr<Watched>> watched_;
  std::deque<Notice> notices_;        // of runs that are not over here
  std::deque<std::uint64_t> ended_;   // executions that have failed, the last ones
  std::string why_;                   // the last one has
  std::vector<std::uint64_t> heard_;  // of notices in the machine's memory, by process there
  std::array<std::atomic<int>, most_devices> waiting_;
  std::array<Lane, most_devices> lanes_;
  std::chrono::nanoseconds clock_offset_{0}, clock_error_{0};
  std::size_t devices_at_end_ = 0;  // of the active run
  std::set<std::uint64_t> starting_;
  std::string dead_;   // why no run can go on any more
  bool left_ = false;  // the cluster
};

}  // namespace postern::clusters
