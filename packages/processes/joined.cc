// Joining a cluster, and how its processes agree that a run has failed.
#include "joined.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>
#include <utility>

#include "exchange.h"
#include "watcher.h"

namespace postern::internal::clusters {

namespace {

using Clock = std::chrono::steady_clock;

JoinedCluster* made = nullptr;

constexpr int notice_tag = 0, joining_tag = 1, first_link_tag = 2;
constexpr std::uint64_t goodbye = 0;  // in place of a run: the process leaves the cluster

[[noreturn]] void throw_ended(const std::string& text) { throw Error(ErrorCode::aborted, text); }

/// Of UTF-8: it does not begin there.
bool is_within_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

bool wants_memory() {
  const char* const text = std::getenv("POSTERN_CLUSTER_MEMORY");
  return !text || std::string_view(text) != "0";
}

/// Notices that a busy network holds back are kept until they have left.
void keep_for_good(std::unique_ptr<Notice> notice) {
  static auto* const late = new std::vector<std::unique_ptr<Notice>>;
  late->push_back(std::move(notice));
}

/// Single numbers, while the cluster is joined.
class Talk {
 public:
  explicit Talk(const Transport& transport) : transport_(transport) {}

  void send(int to, const std::int64_t& value) {
    Transport::Request request;
    must_go(transport_.send(to, joining_tag, &value, sizeof value, &request));
    wait(request);
  }
  std::int64_t receive(int from) {
    std::int64_t value = 0;
    Transport::Request request;
    must_go(transport_.receive(from, joining_tag, &value, sizeof value, &request));
    wait(request);
    return value;
  }

 private:
  static void must_go(const char* error) {
    if (error)
      throw PluginError(ErrorCode::unavailable, fmt::format("joining the cluster: {}", error));
  }
  void wait(Transport::Request request) {
    for (bool through = false; !through;) must_go(transport_.test(&request, &through));
  }

  const Transport& transport_;
};

}  // namespace

JoinedCluster* JoinedCluster::join(const Transport* transport) {
  made = new JoinedCluster(transport);
  if (made->size() > 1) begin_watching(*made);
  return made;
}

JoinedCluster::JoinedCluster(const Transport* transport) : Cluster(transport) {
  for (std::atomic<int>& w : waiting_) w = -1;
  if (!transport_) return;
  machine_ = std::make_unique<Machine>(*transport_, wants_memory());
  heard_.resize(machine_->ranks().size());
  if (Seat* const seat = machine_->seat(rank())) seat->process = ::getpid();
  agree_on_job();
  align_clocks();
  transport_->before_end(before_end);
  std::atexit(before_end);
}

/// Others are not to wait for what does not come any more.
void JoinedCluster::before_end() {
  JoinedCluster* const c = made;
  if (!c) return;                         // the process ends while it joins
  if (::getpid() != c->process_) return;  // a child that was forked off: the cluster is not its own
  const std::scoped_lock lock(c->guard_);
  if (std::exchange(c->left_, true)) return;
  if (Seat* const seat = c->machine_->seat(c->rank())) seat->process = 0;
  c->tell(goodbye, "");
  for (Lane& lane : c->lanes_)
    if (!lane.taken.test_and_set()) lane.links.clear();  // and nobody takes it any more
}

Link& JoinedCluster::link(int peer, int lane_number) {
  std::unique_ptr<Link>& link = lane(lane_number).links[peer];
  if (!link) link = link_by_memory(*machine_, rank(), peer, lane_number);
  if (!link) link = link_by_messages(*transport_, peer, first_link_tag + lane_number);
  return *link;
}

std::uint64_t JoinedCluster::claim(const WatchedFor& watched_for) {
  std::vector<Ended> ended;
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(guard_);
    number = claimed_ + 1;
    runs_.emplace(number, Run{watched_for(number)});
    claimed_ = number;
    if (const auto early = early_.extract(number))
      ended.push_back(fail(number, early.mapped()));
    else
      fail_if_past(number, ended);
  }
  tell_watched(ended);
  wake_watcher();
  return number;
}

std::uint64_t JoinedCluster::meet(const Meeting& m) {
  Rendezvous rendezvous(*this, m.run, m.lane, m.subject, m.stopped);
  run_collective(m.collective, m.group, m.type, m.x, m.y, rendezvous, m.device);
  return rendezvous.number();
}

void JoinedCluster::enter(std::uint64_t run, int lane) {
  if (lane < 0 || lane >= most_lanes)
    throw Error(ErrorCode::unimplemented,
                fmt::format("collectives over processes: a process takes part with at most {} "
                            "devices, this is number {} of its mesh, from 0 on",
                            most_lanes - 1, lane - 1));
  if (!is_over(run)) return;
  const std::scoped_lock lock(guard_);
  if (!runs_.contains(run)) throw_ended(why(run));
  if (runs_.begin()->first != run)
    throw Error(ErrorCode::failed_precondition,
                "another run of this process is in collectives over processes; wait for its end "
                "first, for processes would meet in any order");
  if (const char* const error = transport_->ended()) throw Error(ErrorCode::unavailable, error);
  if (!dead_.empty()) throw Error(ErrorCode::unavailable, dead_);
  active_.store(run, std::memory_order_release);
}

void JoinedCluster::over(std::uint64_t run) {
  runs_.erase(run);
  if (active_.load(std::memory_order_relaxed) == run) active_.store(0, std::memory_order_release);
  if (Seat* const seat = machine_ ? machine_->seat(rank()) : nullptr)
    seat->first.store(runs_.empty() ? claimed_ + 1 : runs_.begin()->first,
                      std::memory_order_release);
}

/// Nothing ends well anywhere before all have called it: where it is over, it has failed. A process
/// that rested may have missed the notice, of which only the last ones are kept.
void JoinedCluster::fail_if_past(std::uint64_t run, std::vector<Ended>& ended) {
  for (const int peer : machine_->ranks()) {
    if (peer == rank() || !is_over_at(peer, run)) continue;
    read_notices(ended);
    if (runs_.contains(run))
      ended.push_back(fail(run, fmt::format("the run had failed on process {} before it was called "
                                            "on process {}",
                                            peer, rank())));
    return;
  }
}

/// Ends a run that lives, or, where memory is short, changes nothing. Who watches it is to be told,
/// and let go of, when the lock has been left.
JoinedCluster::Ended JoinedCluster::fail(std::uint64_t run, const std::string& text) {
  constexpr std::size_t remembered = 64;
  Ended out{nullptr, text};
  whys_.emplace_back(run, text);
  if (whys_.size() > remembered) whys_.pop_front();
  out.watched = std::move(runs_.at(run).watched);
  over(run);
  return out;
}

void JoinedCluster::tell_watched(const std::vector<Ended>& ended) {
  for (const Ended& e : ended) e.watched->ended_elsewhere(e.why);
}

void JoinedCluster::came_to_end(std::uint64_t run, std::size_t devices) {
  const std::scoped_lock lock(guard_);
  const auto found = runs_.find(run);
  if (found != runs_.end() && ++found->second.devices_at_end >= devices) over(run);
}

const std::string* JoinedCluster::failure_of(std::uint64_t run) const {
  const auto found = std::ranges::find(whys_, run, [](const auto& w) { return w.first; });
  return found == whys_.end() ? nullptr : &found->second;
}
std::string JoinedCluster::why(std::uint64_t run) const {
  const std::string* const text = failure_of(run);
  return text ? *text : "the run is over";
}
std::string JoinedCluster::why_over(std::uint64_t run) {
  const std::scoped_lock lock(guard_);
  return why(run);
}

bool JoinedCluster::has_failed(std::uint64_t run) {
  const std::scoped_lock lock(guard_);
  return failure_of(run) != nullptr;
}

void JoinedCluster::listen() noexcept {
  try {
    std::vector<Ended> ended;
    {
      const std::scoped_lock lock(guard_);
      read_notices(ended);
    }
    tell_watched(ended);
  } catch (...) {
    log_line("a run over processes failed elsewhere, and there was no memory to say so");
  }
}

bool JoinedCluster::has_runs() {
  const std::scoped_lock lock(guard_);
  return !runs_.empty();
}

std::shared_ptr<Watched> JoinedCluster::current() {
  const std::scoped_lock lock(guard_);
  return runs_.empty() ? nullptr : runs_.begin()->second.watched;
}

void JoinedCluster::end_all(const std::string& why) noexcept {
  try {
    std::vector<Ended> ended;
    {
      const std::scoped_lock lock(guard_);
      ended.reserve(runs_.size());  // so that what has failed is told of
      while (!runs_.empty()) ended.push_back(fail(runs_.begin()->first, why));
    }
    tell_watched(ended);
  } catch (...) {
    log_line("runs over processes failed, and there was no memory to tell them:");
    log_line(why);
  }
}

void JoinedCluster::end_for_good(const std::string& why) noexcept {
  try {
    const std::scoped_lock lock(guard_);
    dead_ = why;
  } catch (...) {  // later runs find out by themselves
  }
  end_all(why);
}

void JoinedCluster::heed(int from, const Notice& notice, std::vector<Ended>& ended) {
  if (notice.run == goodbye) {
    gone_.insert(from);
    return;
  }
  const std::string text(notice.text.data(), ::strnlen(notice.text.data(), notice.text.size()));
  if (notice.run > claimed_)
    early_.emplace(notice.run, text);
  else if (runs_.contains(notice.run))
    ended.push_back(fail(notice.run, text));
}

void JoinedCluster::read_notices(std::vector<Ended>& ended) {
  if (!transport_ || left_) return;
  for (std::size_t i = 0; machine_->shares() && i < heard_.size(); ++i) {
    const int from = machine_->ranks()[i];
    const Seat& seat = *machine_->seat(from);
    const std::uint64_t written = seat.notices.load(std::memory_order_acquire);
    if (from == rank()) continue;
    heard_[i] = std::max(heard_[i], written - std::min(written, std::uint64_t{Seat::kept}));
    for (; heard_[i] < written; ++heard_[i]) {
      const Notice notice = seat.notice[heard_[i] % Seat::kept];
      const std::uint64_t now = seat.notices.load(std::memory_order_acquire);
      if (now - heard_[i] < Seat::kept)
        heed(from, notice, ended);  // else it may be half another one
    }
  }
  bool there = std::ssize(machine_->ranks()) < size();
  while (there) {
    int from = 0;
    std::size_t bytes = 0;
    if (transport_->look(notice_tag, &there, &from, &bytes) || !there) break;
    Notice notice;
    Transport::Request request;
    if (transport_->receive(from, notice_tag, &notice, sizeof notice, &request)) break;
    bool through = false;  // it has come, so this ends
    while (!through)
      if (transport_->test(&request, &through)) break;
    heed(from, notice, ended);
  }
}

bool JoinedCluster::has_left(int peer) {
  const std::scoped_lock lock(guard_);
  return gone_.contains(peer);
}

void JoinedCluster::run_failed(std::uint64_t run, const std::string& why) noexcept {
  try {
    Ended ended;  // destroyed unlocked
    const std::scoped_lock lock(guard_);
    if (!runs_.contains(run)) return;
    const std::string text = fmt::format("the run has failed on process {}: {}", rank(), why);
    tell(run, text);  // first: who sees that it is over here finds out why
    ended = fail(run, text);
  } catch (...) {
    log_line("a run over processes failed, and there was no memory to tell the others");
  }
}

void JoinedCluster::tell(std::uint64_t run, const std::string& text) noexcept {
  if (!transport_ || size() < 2) return;
  auto notice = std::make_unique<Notice>();
  notice->run = run;
  std::size_t bytes = std::min(text.size(), notice->text.size() - 1);
  while (bytes < text.size() && is_within_character(text[bytes])) --bytes;
  std::memcpy(notice->text.data(), text.data(), bytes);
  if (Seat* const seat = machine_->seat(rank())) {
    const std::uint64_t written = seat->notices.load(std::memory_order_relaxed);
    seat->notice[written % Seat::kept] = *notice;
    seat->notices.store(written + 1, std::memory_order_release);
  }
  std::vector<Transport::Request> requests;
  for (int to = 0; to < size(); ++to) {
    if (to == rank() || machine_->seat(to)) continue;
    Transport::Request request;
    if (!transport_->send(to, notice_tag, notice.get(), sizeof *notice, &request))
      requests.push_back(request);
  }
  const auto limit = Clock::now() + std::chrono::milliseconds(50);
  while (!requests.empty() && Clock::now() < limit) {
    std::erase_if(requests, [&](Transport::Request& r) {
      bool through = false;
      return transport_->test(&r, &through) || through;
    });
    if (!requests.empty()) std::this_thread::yield();
  }
  if (!requests.empty()) keep_for_good(std::move(notice));
}

bool JoinedCluster::waits_for(int peer) const {
  return std::ranges::any_of(waiting_, [&](const std::atomic<int>& w) { return w.load() == peer; });
}

std::string JoinedCluster::waiting() const {
  for (const std::atomic<int>& w : waiting_)
    if (const int peer = w.load(std::memory_order_relaxed); peer >= 0)
      return fmt::format(" while it waited for process {}", peer);
  return "";
}

void JoinedCluster::agree_on_job() {
  Talk talk(*transport_);
  if (rank() != 0) {
    job_ = static_cast<std::uint64_t>(talk.receive(0));
    return;
  }
  std::random_device random;
  job_ = (std::uint64_t{random()} << 32 | random()) | 1;
  for (int to = 1; to < size(); ++to) talk.send(to, static_cast<std::int64_t>(job_));
}

/// Where clocks may differ, each process asks process 0 what time it is a few times; the answer
/// that came soonest counts.
void JoinedCluster::align_clocks() {
  constexpr int times = 8;
  Talk talk(*transport_);
  const auto now = [] { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); };
  const auto has_this_clock = [&](int rank) {
    return std::ranges::find(machine_->ranks(), rank) != machine_->ranks().end();
  };
  if (rank() == 0) {
    for (int from = 1; from < size(); ++from)
      for (int i = 0; i < times && !has_this_clock(from); ++i) {
        talk.receive(from);
        talk.send(from, now());
      }
    return;
  }
  if (has_this_clock(0)) return;
  clock_error_ = std::chrono::hours(1);
  for (int i = 0; i < times; ++i) {
    const std::int64_t begin = now();
    talk.send(0, begin);
    const std::int64_t there = talk.receive(0), end = now();
    const std::chrono::nanoseconds error((end - begin) / 2);
    if (error >= clock_error_) continue;
    clock_error_ = error;
    clock_offset_ = std::chrono::nanoseconds(there - (begin + (end - begin) / 2));
  }
}

}  // namespace postern::internal::clusters
