// The cluster that this process has joined, and its runs that have collectives over processes. The
// contract of these runs, by which none of them waits for one that does not come:
//
// 1. A run has its number from where it is called or started, in the order of calls, on the calling
//    thread (`claim`). All processes make the same calls, so a number is the same run everywhere,
//    also before it has begun.
// 2. A run lives until it is over, once: its devices have come to its end together with those of
//    all processes, or it has failed.
// 3. Where a run fails that lives - a function throws, it is cancelled before it begins or later,
//    its deadline passes, an exception comes in between - its process tells all others the number
//    and why.
// 4. Who is told of a run that lives fails it; of one that is not called yet, fails it when it is
//    called; of one that is over, does nothing.
// 5. Each piece of data has its run's number. A rendezvous skips pieces of runs before its own.
//    One of a later run says that its sender's is over, and so does a seat: a notice is on its way,
//    and if that got lost, since only the last ones are kept, the run fails without it.
// 6. One run of a process meets at a time: a later one fails where an earlier one lives.
#pragma once
#include <unistd.h>
#include <array>

#include <atomic>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "link.h"
#include "machine.h"
#include "spi.h"

namespace postern::internal::clusters {

class JoinedCluster final : public Cluster {
 public:
  /// Each device that takes part has a lane, by its place in the mesh, which the devices that it
  /// meets have in theirs: lane 1 is the first one's. Lane 0 is of collectives outside of a mesh of
  /// devices.
  static constexpr int most_lanes = 1 + 64;

  /// Joins it, once; null: the process is alone.
  static JoinedCluster* join(const Transport* transport);

  std::uint64_t claim(const WatchedFor& watched_for) override;
  std::uint64_t meet(const Meeting& meeting) override;
  void came_to_end(std::uint64_t run, std::size_t devices) override;
  void run_failed(std::uint64_t run, const std::string& why) noexcept override;
  bool has_failed(std::uint64_t run) override;
  std::string waiting() const override;
  Store& store() override;
  void say_count(std::uint64_t what, std::int64_t done) noexcept override;
  std::vector<std::int64_t> counts_of(std::uint64_t what) override;
  std::vector<std::string> gather_on_first(const std::string& who, const std::string& mine,
                                           std::chrono::milliseconds limit) override;

  /// Begins a collective of this run on a lane. Throws when it is over or an earlier one lives.
  void enter(std::uint64_t run, int lane);
  /// Returns whether a run that was entered is over, and why.
  bool is_over(std::uint64_t run) const { return active_.load(std::memory_order_acquire) != run; }
  std::string why_over(std::uint64_t run);
  /// Returns whether it is over on that process, as its seat says; all that it sent is there.
  bool is_over_at(int peer, std::uint64_t run) const {
    const Seat* const seat = machine_->seat(peer);
    return seat && seat->first.load(std::memory_order_acquire) > run;
  }
  /// Reads what others tell, and ends runs by it. The watcher does so every few milliseconds.
  void listen() noexcept;

  /// Tells the watcher: whether any run lives; the one that meets, or the first one; and the end of
  /// all that live, for now or for good.
  bool has_runs();
  std::shared_ptr<Watched> current();
  void end_all(const std::string& why) noexcept;
  void end_for_good(std::string why) noexcept;
  const Machine& machine() const { return *machine_; }
  /// Returns the process that joined: children that it forks off are none of the cluster's.
  pid_t process() const { return process_; }

  /// Returns a lane's way to its like on another process. One thread at a time has a lane's links,
  /// who has taken it: a failed run may still be leaving its last rendezvous as the next begins.
  Link& link(int peer, int lane);
  struct Lane {
    std::atomic_flag taken;
    std::map<int, std::unique_ptr<Link>> links;
    struct Count {
      std::uint64_t run = 0, collectives = 0;
    };
    /// How many the lane came to in the run, by group: others may come to more or fewer.
    std::map<std::string, Count> counts;
    struct Scratch {
      std::unique_ptr<std::byte[]> memory;
      std::size_t bytes = 0;
    };
    std::array<Scratch, 2> scratch;
  };
  Lane& lane(int number) { return lanes_[static_cast<std::size_t>(number)]; }

  /// Notes that who has the lane has waited for this process for a while; -1: it does not wait.
  void waits(int lane, int peer) {
    waiting_[static_cast<std::size_t>(lane)].store(peer, std::memory_order_relaxed);
    looks_.fetch_add(1, std::memory_order_release);
  }
  /// Returns how often who waits has looked whether somebody came.
  std::uint32_t looks() const { return looks_.load(std::memory_order_acquire); }
  bool waits_for(int peer) const;
  /// Returns whether that process has said that it leaves.
  bool has_left(int peer);

 private:
  explicit JoinedCluster(const Transport* transport);
  struct Run {
    std::shared_ptr<Watched> watched;
    std::size_t devices_at_end = 0;
  };
  struct Ended {  // otherwise than by coming to its end
    std::shared_ptr<Watched> watched;
    std::string why;
  };
  /// A notice on its way by messages.
  struct Told {
    explicit Told(int most) { requests.reserve(static_cast<std::size_t>(most)); }
    Notice notice;
    std::vector<Transport::Request> requests;  // that are not through
    std::unique_ptr<Told> before;              // an earlier one with such
  };
  void read_notices(std::vector<Ended>& ended);
  void heed(int from, const Notice& notice, std::vector<Ended>& ended);
  void fail(std::uint64_t run, const std::string& why, std::vector<Ended>& ended);
  void remember(std::uint64_t run, const std::string& why) noexcept;
  void over(std::uint64_t run);
  void fail_if_past(std::uint64_t run, std::vector<Ended>& ended);
  const std::string* failure_of(std::uint64_t run) const;  // null: none is remembered
  std::string why(std::uint64_t run) const;
  static void tell_watched(const std::vector<Ended>& ended);
  void tell(std::uint64_t run, std::string_view text) noexcept;
  bool all_here() const { return std::ssize(machine_->ranks()) == size(); }
  void agree_on_job();
  void align_clocks();
  static void before_end();

  std::unique_ptr<Machine> machine_;
  const pid_t process_ = ::getpid();
  Mutex guard_;
  std::uint64_t claimed_ = 0;                   // the last number that was given
  std::map<std::uint64_t, Run> runs_;           // that live
  std::atomic<std::uint64_t> active_{0};        // the one that meets; 0: none
  std::map<std::uint64_t, std::string> early_;  // why runs fail that are still to come
  std::array<std::pair<std::uint64_t, std::string>, 64> whys_;  // of the last ones that have failed
  std::size_t failed_ = 0;                                      // how many
  std::unique_ptr<Told> spare_, late_;
  Notice come_;                       // by a message,
  int come_from_ = -1;                // and not heeded yet; -1: none
  std::vector<std::uint64_t> heard_;  // of notices in the machine's memory, by process there
  std::set<int> gone_;                // processes that have said that they leave
  std::array<std::atomic<int>, most_lanes> waiting_;
  std::atomic<std::uint32_t> looks_{0};
  std::array<Lane, most_lanes> lanes_;
  std::string dead_;   // why no run can go on any more
  bool left_ = false;  // the cluster
};

}  // namespace postern::internal::clusters
