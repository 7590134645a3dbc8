// Joining a cluster, and how its processes agree that a run has failed.
#include "joined.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
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

void write(Notice& notice, std::uint64_t run, std::string_view text) {
  std::size_t bytes = std::min(text.size(), notice.text.size() - 1);
  while (bytes < text.size() && is_within_character(text[bytes])) --bytes;
  notice.run = run;
  notice.text.fill(0);
  std::memcpy(notice.text.data(), text.data(), bytes);
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
  if (!all_here()) spare_ = std::make_unique<Told>(size());
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

/// Also where it throws the number is given, since the others count the run too.
std::uint64_t JoinedCluster::claim(const WatchedFor& watched_for) {
  std::vector<Ended> ended;
  std::exception_ptr error;
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(guard_);
    number = ++claimed_;
    try {
      runs_[number].watched = watched_for(number);
      if (const auto early = early_.find(number); early != early_.end())
        fail(number, early->second, ended);
      else
        fail_if_past(number, ended);
    } catch (...) {
      error = std::current_exception();
      tell(number, "there was no memory for the run on another process");
      over(number);
    }
    early_.erase(number);
  }
  tell_watched(ended);
  if (error) std::rethrow_exception(error);
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
  if (!transport_ || transport_->ended() || !dead_.empty()) return;  // enter() says so
  for (const int peer : machine_->ranks()) {
    if (peer == rank() || !is_over_at(peer, run)) continue;
    read_notices(ended);
    if (runs_.contains(run))
      fail(run,
           fmt::format("the run had failed on process {} before it was called on process {}", peer,
                       rank()),
           ended);
    return;
  }
}

/// Ends a run that lives, or, where memory is short, changes nothing. Who watches it is to be told,
/// and let go of, when the lock has been left.
void JoinedCluster::fail(std::uint64_t run, const std::string& text, std::vector<Ended>& ended) {
  Ended& out = ended.emplace_back(Ended{nullptr, text});
  remember(run, text);
  out.watched = std::move(runs_.at(run).watched);
  over(run);
}

void JoinedCluster::remember(std::uint64_t run, const std::string& text) noexcept {
  auto& [number, why] = whys_[failed_++ % whys_.size()];
  number = run;
  try {
    why = text;
  } catch (...) {
    why = "out of memory";  // so short that it takes none
  }
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
  std::vector<Ended> ended;
  try {
    const std::scoped_lock lock(guard_);
    read_notices(ended);
  } catch (...) {  // what was not heeded is read again
    log_line("there was no memory to read which runs over processes have failed elsewhere");
  }
  tell_watched(ended);
}

bool JoinedCluster::has_runs() {
  const std::scoped_lock lock(guard_);
  return !runs_.empty();
}

std::shared_ptr<Watched> JoinedCluster::current() {
  const std::scoped_lock lock(guard_);
  return runs_.empty() ? nullptr : runs_.begin()->second.watched;
}

/// One after another, which takes no memory.
void JoinedCluster::end_all(const std::string& why) noexcept {
  while (true) {
    std::shared_ptr<Watched> watched;
    {
      const std::scoped_lock lock(guard_);
      if (runs_.empty()) return;
      const auto first = runs_.begin();
      remember(first->first, why);
      watched = std::move(first->second.watched);
      over(first->first);
    }
    watched->ended_elsewhere(why);
  }
}

void JoinedCluster::end_for_good(std::string why) noexcept {
  {
    const std::scoped_lock lock(guard_);
    dead_ = std::move(why);
  }
  end_all(dead_);  // which the caller alone, the watcher, writes
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
    fail(notice.run, text, ended);
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
  for (bool there = !all_here(); there;) {
    if (come_from_ >= 0) heed(come_from_, come_, ended);
    int from = come_from_ = -1;
    std::size_t bytes = 0;
    if (transport_->look(notice_tag, &there, &from, &bytes) || !there) break;
    Transport::Request request;
    if (transport_->receive(from, notice_tag, &come_, sizeof come_, &request)) break;
    bool through = false;  // it has come, so this ends
    while (!through)
      if (transport_->test(&request, &through)) return;
    come_from_ = from;  // until it is heeded, for which memory may be short
  }
}

bool JoinedCluster::has_left(int peer) {
  const std::scoped_lock lock(guard_);
  return gone_.contains(peer);
}

void JoinedCluster::run_failed(std::uint64_t run, const std::string& why) noexcept {
  std::shared_ptr<Watched> watched;  // destroyed unlocked
  const std::scoped_lock lock(guard_);
  const auto found = runs_.find(run);
  if (found == runs_.end()) return;
  try {
    const std::string text = fmt::format("the run has failed on process {}: {}", rank(), why);
    remember(run, text);
    tell(run, text);  // first: who sees that it is over here finds out why
  } catch (...) {
    remember(run, why);
    tell(run, "the run has failed on a process that has no memory to say why");
  }
  watched = std::move(found->second.watched);
  over(run);
}

/// Takes no memory but what the last one has left, which is made for the next one.
void JoinedCluster::tell(std::uint64_t run, std::string_view text) noexcept {
  if (!transport_ || size() < 2) return;
  if (Seat* const seat = machine_->seat(rank())) {
    const std::uint64_t written = seat->notices.load(std::memory_order_relaxed);
    write(seat->notice[written % Seat::kept], run, text);
    seat->notices.store(written + 1, std::memory_order_release);
  }
  if (all_here()) return;
  std::unique_ptr<Told> told = std::move(spare_);
  try {
    spare_ = std::make_unique<Told>(size());
  } catch (...) {  // the next one tries again
  }
  if (!told) told = std::move(spare_);
  if (!told) return log_line("a run over processes has failed, without memory to tell the others");
  write(told->notice, run, text);
  for (int to = 0; to < size(); ++to) {
    if (to == rank() || machine_->seat(to)) continue;
    Transport::Request request;
    if (!transport_->send(to, notice_tag, &told->notice, sizeof told->notice, &request))
      told->requests.push_back(request);
  }
  const auto limit = Clock::now() + std::chrono::milliseconds(50);
  while (!told->requests.empty() && Clock::now() < limit) {
    std::erase_if(told->requests, [&](Transport::Request& r) {
      bool through = false;
      return transport_->test(&r, &through) || through;
    });
    if (!told->requests.empty()) std::this_thread::yield();
  }
  if (told->requests.empty()) return;
  told->before = std::move(late_);  // a busy network holds it back: it is kept for good
  late_ = std::move(told);
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
