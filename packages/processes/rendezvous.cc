// Waiting in one collective, and what is said when processes do not come to the same one. A wait
// looks at what it waits for, at whether the run wants to end here, and at whether another process
// has ended it; none is the network's own.
#include "rendezvous.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <thread>

namespace postern::internal::clusters {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// "call 'psum' at main.cc:12 (sum of f32[3] over processes 0, 1, number 4)".
std::string said(const Subject& s, std::uint64_t number) {
  return fmt::format("{} ({}, number {})", s.place, s.detail, number);
}

}  // namespace

Rendezvous::Rendezvous(JoinedCluster& cluster, std::uint64_t run, int lane, const Subject& subject,
                       const std::function<bool()>& stopped)
    : cluster_(cluster),
      run_(run),
      lane_(lane),
      subject_(subject),
      stopped_(stopped),
      taken_{take_lane()},
      number_(next_number()) {}

Rendezvous::~Rendezvous() {
  cluster_.waits(lane_, -1);
  constexpr std::size_t large = std::size_t{64} << 20;
  for (JoinedCluster::Lane::Scratch& s : taken_.lane.scratch)
    if (s.bytes > large) s = {};
}

JoinedCluster::Lane& Rendezvous::take_lane() {
  cluster_.enter(run_, lane_);
  JoinedCluster::Lane& lane = cluster_.lane(lane_);
  while (lane.taken.test_and_set(std::memory_order_acquire)) {
    if (stopped_() || cluster_.is_over(run_)) give_up();
    if (const char* const error = cluster_.transport()->ended())
      throw Error(ErrorCode::unavailable, error);
    std::this_thread::yield();
  }
  return lane;
}

/// A device that leaves a run that is over must not count in the next one, which may have counted.
std::uint64_t Rendezvous::next_number() {
  if (cluster_.is_over(run_)) give_up();
  JoinedCluster::Lane::Count& c = taken_.lane.counts[subject_.group];
  if (c.run != run_) c = {run_, 0};
  return c.collectives++;
}

void Rendezvous::relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void Rendezvous::give_up() const {
  if (stopped_()) throw Error(ErrorCode::cancelled, "the run ends");
  throw Error(ErrorCode::aborted, cluster_.why_over(run_));
}

/// Others may want the core, so that who is waited for comes; they may keep it for milliseconds.
void Rendezvous::pause_long(Clock::time_point now, int waits_for) {
  std::this_thread::yield();
  const auto waited = now - waits_since_;
  if (waited < 2ms) return;
  cluster_.waits(lane_, waits_for);
  if (now - listened_ > 1ms) {
    listened_ = now;
    cluster_.listen();
    if (cluster_.is_over_at(waits_for, run_)) await_notice(waits_for);
  }
  if (waited > 20ms) std::this_thread::sleep_for(200us);
  if (warned_ || waited < patience()) return;
  warned_ = true;
  log(LogLevel::warning, "{}: process {} has waited for process {} for {:.0f} s", subject_.place,
      cluster_.rank(), waits_for, std::chrono::duration<double>(waited).count());
}

/// What runs before this one have left is passed over. A later run's says that this one is over
/// there, which its sender has told too.
Link::Piece Rendezvous::front_of_another(const Peer& from) {
  while (true) {
    const Link::Piece piece = from.link->front();
    if (!piece.head) return piece;
    if (piece.head->run > run_) {
      await_notice(from.rank);
      return {};
    }
    if (piece.head->run == run_) break;
    from.link->take();
  }
  const Link::Piece piece = from.link->front();
  if (is_of_this(*piece.head)) return piece;
  disagree(from);
}

/// A process that many runs have failed in a moment may have told more than is kept.
void Rendezvous::await_notice(int of) {
  const auto now = Clock::now();
  if (ahead_since_ == Clock::time_point()) ahead_since_ = now;
  if (now - ahead_since_ > 2s)
    throw Error(ErrorCode::aborted,
                fmt::format("the run has failed on process {}, which is past it", of));
}

/// Each tells the other what it is about; the text is the same on both sides.
void Rendezvous::disagree(const Peer& with) {
  const std::string mine = said(subject_, number_);
  std::string theirs;
  bool sent = false;
  const auto limit = Clock::now() + 5s;
  until([&] {
    if (!sent) sent = send(with, mine.data(), mine.size(), Kind::text) >= 0;
    const Link::Piece piece = with.link->front();
    const bool late = Clock::now() > limit;
    if (!piece.head || piece.head->run > run_) return late ? through : with.rank;
    const bool is_text = piece.head->run == run_ && piece.head->kind == Kind::text;
    if (is_text) theirs.assign(reinterpret_cast<const char*>(piece.data), piece.head->bytes);
    with.link->take();
    return is_text && (sent || late) ? through : moved;
  });
  if (theirs.empty()) theirs = "another collective";
  const int rank = cluster_.rank();
  throw Error(
      ErrorCode::failed_precondition,
      fmt::format("processes must come to the same collectives in the same order: process {} is at "
                  "{}, process {} at {}",
                  std::min(rank, with.rank), rank < with.rank ? mine : theirs,
                  std::max(rank, with.rank), rank < with.rank ? theirs : mine));
}

std::int64_t Rendezvous::send(const Peer& to, const void* data, std::size_t bytes, Kind kind) {
  std::byte* const room = to.link->room();
  if (!room) return -1;
  const std::size_t n = std::min(bytes, to.link->capacity);
  if (n > 0) std::memcpy(room, data, n);
  Head head;
  head.run = run_;
  head.fingerprint = subject_.fingerprint;
  head.number = static_cast<std::uint32_t>(number_);
  head.bytes = static_cast<std::uint32_t>(n) & 0xfffffff;
  head.kind = kind;
  to.link->put(head);
  return static_cast<std::int64_t>(n);
}

std::byte* Rendezvous::scratch(int number, std::size_t bytes) {
  JoinedCluster::Lane::Scratch& s = cluster_.lane(lane_).scratch[static_cast<std::size_t>(number)];
  if (s.bytes < bytes) {
    s.memory = std::make_unique_for_overwrite<std::byte[]>(bytes);
    s.bytes = bytes;
  }
  return s.memory.get();
}

// A stream with each process that is sent to or received from; at least one piece goes each way, so
// that both compare. Pieces of all streams move in turn until everything has come and nothing that
// was sent needs this side any more. A stream whose pieces have all come is not looked at again:
// what follows there is of the next collective.
void Rendezvous::exchange(std::span<const Out> out, std::span<const In> in) {
  struct Stream {
    Peer peer;
    const std::byte* from;
    std::byte* to;
    std::size_t out, in, sent, got;
    bool greets, is_greeted;  // one piece goes each way at least
  };
  detail::SmallVector<Stream, 16> streams(out.size() + in.size());
  std::size_t count = 0;
  const auto stream_with = [&](int rank) -> Stream& {
    for (std::size_t i = 0; i < count; ++i)
      if (streams[i].peer.rank == rank) return streams[i];
    streams[count] = {peer(rank), nullptr, nullptr, 0, 0, 0, 0, true, false};
    return streams[count++];
  };
  for (const Out& o : out) {
    Stream& s = stream_with(o.to);
    s.from = static_cast<const std::byte*>(o.data);
    s.out = o.bytes;
  }
  for (const In& i : in) {
    Stream& s = stream_with(i.from);
    s.to = static_cast<std::byte*>(i.data);
    s.in = i.bytes;
  }
  until([&] {
    bool moves = false;
    int waits_for = through;
    for (std::size_t i = 0; i < count; ++i) {
      Stream& s = streams[i];
      if (s.greets || s.sent < s.out) {
        const std::int64_t n = send(s.peer, s.from + s.sent, s.out - s.sent);
        if (n >= 0) {
          s.sent += static_cast<std::size_t>(n);
          s.greets = false;
          moves = true;
        }
      }
      if (!s.is_greeted || s.got < s.in) {
        if (const Link::Piece piece = front(s.peer); piece.head) {
          const std::size_t n = piece.head->bytes;
          if (n > s.in - s.got)
            throw Error(ErrorCode::internal,
                        fmt::format("process {} sends more than the {} bytes that are awaited",
                                    s.peer.rank, s.in));
          if (n > 0) std::memcpy(s.to + s.got, piece.data, n);
          s.got += n;
          s.is_greeted = true;
          s.peer.link->take();
          moves = true;
        }
      }
      const bool waits = s.greets || !s.is_greeted || s.sent < s.out || s.got < s.in;
      if (waits || !s.peer.link->flushed()) waits_for = s.peer.rank;
    }
    return moves && waits_for != through ? moved : waits_for;
  });
}

}  // namespace postern::internal::clusters
