// One collective of one device: what it sends to and gets from the others of its group. Data comes
// in pieces that say what they are of, which is compared before anything is made of them.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "joined.h"

namespace postern::internal::clusters {

/// Bytes to or from a process of the cluster.
struct Out {
  int to;
  const void* data;
  std::size_t bytes;
};
struct In {
  int from;
  void* data;
  std::size_t bytes;
};

class Rendezvous {
 public:
  /// Begins the next collective of a run on a lane, which it has as long as it lives. `stopped`:
  /// whether the run wants to end. The subject must live as long as this. Throws as
  /// JoinedCluster::enter does.
  Rendezvous(JoinedCluster& cluster, std::uint64_t run, int lane, const Subject& subject,
             const std::function<bool()>& stopped);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;

  /// Counts those before it in the run on its lane, in the group: the same on all of that.
  std::uint64_t number() const { return number_; }

  /// Compares with every process that is sent to or received from, which do the same, and moves the
  /// data. All functions throw Error when they are about something else, when another process has
  /// failed, and when the run wants to end.
  void exchange(std::span<const Out> out, std::span<const In> in);

  /// One of those it meets with.
  struct Peer {
    Link* link;
    int rank;
  };
  Peer peer(int rank) { return {&cluster_.link(rank, lane_), rank}; }
  using Kind = Head::Kind;
  /// Returns the earliest piece of this rendezvous that has come from there and was not taken.
  Link::Piece front(const Peer& from) {
    const Link::Piece piece = from.link->front();
    if (!piece.head || is_of_this(*piece.head)) [[likely]]
      return piece;
    return front_of_another(from);
  }
  /// Sends a piece of at most so many bytes if there is room, and says how many; -1: no room.
  std::int64_t send(const Peer& to, const void* data, std::size_t bytes, Kind kind = Kind::data);

  /// What a step of `until` says when it does not name the process that it waits for.
  static constexpr int through = -1, moved = -2;
  template <class Step>
  void until(const Step& step) {
    for (int waits_for = step(); waits_for != through; waits_for = step()) {
      if (stopped_() || cluster_.is_over(run_)) give_up();
      if (waits_for == moved)
        waits_since_ = {};
      else
        pause(waits_for);
    }
  }
  /// Lends memory of the lane's for a while, by number; it is kept for the next rendezvous unless
  /// it is large.
  std::byte* scratch(int number, std::size_t bytes);

 private:
  bool is_of_this(const Head& head) const {
    return head.run == run_ && head.fingerprint == subject_.fingerprint &&
           head.number == static_cast<std::uint32_t>(number_) && head.kind != Kind::text;
  }
  /// Returns the lane, once nobody else has it; and which collective this is.
  JoinedCluster::Lane& take_lane();
  std::uint64_t next_number();
  Link::Piece front_of_another(const Peer& from);
  void await_notice(int of);
  [[noreturn]] void disagree(const Peer& with);
  void pause(int waits_for) {
    const auto now = std::chrono::steady_clock::now();
    if (waits_since_ == std::chrono::steady_clock::time_point()) waits_since_ = now;
    if (now - waits_since_ < looks) return relax();
    pause_long(now, waits_for);
  }
  [[noreturn]] void give_up() const;
  void pause_long(std::chrono::steady_clock::time_point now, int waits_for);
  static void relax();

  static constexpr std::chrono::microseconds looks{40};
  JoinedCluster& cluster_;
  const std::uint64_t run_;
  const int lane_;
  const Subject& subject_;
  const std::function<bool()>& stopped_;
  struct Taken {
    JoinedCluster::Lane& lane;
    ~Taken() { lane.taken.clear(std::memory_order_release); }
  } taken_;
  const std::uint64_t number_;
  std::chrono::steady_clock::time_point waits_since_{}, listened_{}, ahead_since_{};
  bool warned_ = false;
};

}  // namespace postern::internal::clusters
