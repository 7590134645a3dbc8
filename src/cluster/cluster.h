// The cluster that this process belongs to, and the state that its runs share: which run is in
// collectives, and the epoch.
//
// All processes run the same programs. A run that fails on one of them must fail on all: its
// process sends a notice to the others, and each counts the epoch on. Messages belong to an epoch,
// so nothing that a failed run has left under way is taken for what a later one sends.
#pragma once
#include <postern/cluster.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "cluster/transport.h"

namespace postern::clusters {

/// Of Config, before the cluster is joined. Throws Error(failed_precondition) when another one was.
void choose(const std::string& library, std::chrono::milliseconds patience);
std::chrono::milliseconds patience();

/// The rank, as far as is known: 0 before the cluster is joined.
int rank_now();

/// Where one device of a run is in its collectives.
struct Turn {
  std::uint64_t epoch, sequence;
};

class Cluster {
 public:
  /// Joins it when it is first asked for.
  static Cluster& get();
  /// The one that was joined, or null.
  static Cluster* joined();

  const Transport* transport() const { return transport_; }  // null where the process is alone
  int rank() const { return transport_ ? transport_->rank : 0; }
  int size() const { return transport_ ? transport_->size : 1; }

  /// A device of this run comes to its next collective. Throws when the run has failed elsewhere,
  /// and when another run of this process is in collectives.
  Turn enter(std::uint64_t run, int device);
  /// The run is over.
  void leave(std::uint64_t run);
  /// The run has failed here: tells the others why, unless they are the reason.
  void run_failed(std::uint64_t run, const std::string& why) noexcept;

  /// Throws when another process has ended the epoch.
  void check(std::uint64_t epoch);

  int tag(int kind, int device, std::uint64_t epoch) const;

 private:
  Cluster();
  struct Notice {
    std::uint64_t epoch = 0;
    std::array<char, 2040> text = {};
  };
  void read_notices();
  void tell(std::uint64_t epoch, const std::string& text) noexcept;

  const Transport* transport_ = nullptr;
  std::mutex guard_;
  std::atomic<std::uint64_t> epoch_{0};
  std::deque<Notice> notices_;  // of this epoch and later ones
  std::string ended_by_;        // why the epoch before this one ended
  struct {
    std::uint64_t number = 0, epoch = 0;
    bool active = false;
    std::map<int, std::uint64_t> sequences;  // by device
  } run_;
  std::uint64_t given_up_ = ~std::uint64_t{0};  // the run that another one's failure has ended
};

}  // namespace postern::clusters
