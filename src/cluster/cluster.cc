// Joining a cluster, and how its processes agree that a run has failed.
#include "cluster/cluster.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <postern/sharding.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "cluster/join.h"
#include "cluster/watcher.h"
#include "core/log.h"

namespace postern {

Cluster cluster() {
  const clusters::Cluster& c = clusters::Cluster::get();
  return {c.rank(), c.size(), c.transport() ? c.transport()->name : ""};
}

MeshAxis::MeshAxis(std::string axis, Processes count)
    : name(std::move(axis)),
      size(count.count ? count.count : clusters::Cluster::get().size()),
      of_processes(true) {}

}  // namespace postern

namespace postern::clusters {

namespace {

using Clock = std::chrono::steady_clock;

std::atomic<Cluster*> made{nullptr};

constexpr int notice_tag = 0, clock_tag = 1, first_link_tag = 2;

[[noreturn]] void throw_ended(const std::string& text) { throw Error(ErrorCode::aborted, text); }

bool wants_memory() {
  const char* const text = std::getenv("POSTERN_CLUSTER_MEMORY");
  return !text || std::string_view(text) != "0";
}

/// Notices that a busy network holds back are kept until they have left.
void keep_for_good(std::unique_ptr<Notice> notice) {
  static auto* const late = new std::vector<std::unique_ptr<Notice>>;
  late->push_back(std::move(notice));
}

}  // namespace

int rank_now() {
  const Cluster* const c = made.load(std::memory_order_acquire);
  return c ? c->rank() : 0;
}

int size_now() {
  const Cluster* const c = made.load(std::memory_order_acquire);
  return c ? c->size() : 1;
}

Cluster& Cluster::get() {
  // Never destroyed: runs may end after main.
  static Cluster* const cluster = [] {
    auto* const c = new Cluster;
    made.store(c, std::memory_order_release);
    if (c->size() > 1) begin_watching(*c);
    return c;
  }();
  return *cluster;
}
Cluster* Cluster::joined() { return made.load(std::memory_order_acquire); }

Cluster::Cluster() : transport_(open_cluster()) {
  for (std::atomic<int>& w : waiting_) w = -1;
  if (!transport_) return;
  machine_ = std::make_unique<Machine>(*transport_, wants_memory());
  heard_.resize(machine_->ranks().size());
  if (Seat* const seat = machine_->seat(rank())) seat->process = ::getpid();
  align_clocks();
  transport_->before_end(before_end);
  std::atexit(before_end);
}

/// Others are not to wait for what does not come any more.
void Cluster::before_end() {
  Cluster* const c = joined();
  if (!c || !c->transport_) return;
  const std::scoped_lock lock(c->guard_);
  if (std::exchange(c->left_, true)) return;
  if (Seat* const seat = c->machine_->seat(c->rank())) seat->process = 0;
  for (Lane& lane : c->lanes_)
    if (!lane.taken.test_and_set()) lane.links.clear();  // and nobody takes it any more
}

Link& Cluster::link(int peer, int device) {
  std::unique_ptr<Link>& link = lane(device).links[peer];
  if (!link) link = link_by_memory(*machine_, rank(), peer, device);
  if (!link) link = link_by_messages(*transport_, peer, first_link_tag + device);
  return *link;
}

bool Cluster::has_ended(std::uint64_t execution) const {
  return std::ranges::find(ended_, execution) != ended_.end();
}

/// The run that is active, or the next one, has failed; `execution`: here, if it is known.
void Cluster::end_run(std::uint64_t execution) {
  constexpr std::size_t remembered = 64;
  if (execution) ended_.push_back(execution);
  if (ended_.size() > remembered) ended_.pop_front();
  active_.store(0);
  next_.fetch_add(1);
}

void Cluster::watch(std::uint64_t run, std::shared_ptr<Watched> watched) {
  if (size() < 2) return;
  {
    const std::scoped_lock lock(guard_);
    watched_[run] = std::move(watched);
  }
  wake_watcher();
}

void Cluster::starts(std::uint64_t ticket) {
  if (size() < 2) return;
  const std::scoped_lock lock(guard_);
  starting_.insert(ticket);
}

void Cluster::begins(std::uint64_t ticket) noexcept {
  if (size() < 2) return;
  const std::scoped_lock lock(guard_);
  starting_.erase(ticket);
}

Turn Cluster::enter(std::uint64_t run, int device) {
  if (device < 0 || device >= most_devices)
    throw Error(ErrorCode::unimplemented,
                fmt::format("collectives over processes: a process takes part with at most {} "
                            "devices, this is device {}",
                            most_devices, device));
  std::atomic<std::uint64_t>& number = numbers_[static_cast<std::size_t>(device)];
  if (active_.load() == run) {
    const Turn turn{next_.load(), number.load(std::memory_order_relaxed)};
    if (active_.load() == run) {  // all the while
      number.store(turn.number + 1, std::memory_order_relaxed);
      return turn;
    }
  }
  std::unique_lock lock(guard_);
  for (int i = 0; i < 10'000 && active_.load() != run && !starting_.empty(); ++i) {
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    lock.lock();
  }
  if (has_ended(run)) throw_ended(why_);
  if (active_.load() != run) {
    if (active_.load() != 0)
      throw Error(ErrorCode::failed_precondition,
                  "another run of this process is in collectives over processes; wait for its end "
                  "first, for processes would meet in any order");
    if (const char* const error = transport_ ? transport_->ended() : nullptr)
      throw Error(ErrorCode::unavailable, error);
    if (!dead_.empty()) throw Error(ErrorCode::unavailable, dead_);
    read_notices();
    if (!notices_.empty() && notices_.front().run == next_.load()) {
      why_ = notices_.front().text.data();
      notices_.pop_front();
      end_run(run);
      throw_ended(why_);
    }
    for (std::atomic<std::uint64_t>& n : numbers_) n.store(0, std::memory_order_relaxed);
    devices_at_end_ = 0;
    active_.store(run);
  }
  return {next_.load(), number.fetch_add(1)};
}

void Cluster::came_to_end(std::uint64_t run, std::size_t devices) {
  const std::scoped_lock lock(guard_);
  if (active_.load() != run || ++devices_at_end_ < devices) return;
  watched_.erase(run);
  end_run(run);  // what fails from here on is no other process's concern
}

void Cluster::leave(std::uint64_t run) noexcept {
  const std::scoped_lock lock(guard_);
  watched_.erase(run);
  if (active_.load() != run) return;
  active_.store(0);
  next_.fetch_add(1);
}

std::string Cluster::why_over() {
  const std::scoped_lock lock(guard_);
  return why_;
}

void Cluster::listen() noexcept {
  try {
    std::vector<Ended> ended;
    {
      const std::scoped_lock lock(guard_);
      read_notices();
      ended = settle();
    }
    for (const Ended& e : ended) e.watched->ended_elsewhere(e.why);
  } catch (...) {
    // no memory: the next time
  }
}

bool Cluster::has_runs() {
  const std::scoped_lock lock(guard_);
  return !watched_.empty();
}

std::shared_ptr<Watched> Cluster::current() {
  const std::scoped_lock lock(guard_);
  const std::uint64_t active = active_.load();
  const auto found = active ? watched_.find(active) : watched_.begin();
  if (found == watched_.end() || (!active && watched_.size() > 1)) return nullptr;
  return found->second;
}

void Cluster::end_current(const std::string& why) noexcept {
  try {
    std::vector<Ended> ended;
    {
      const std::scoped_lock lock(guard_);
      Notice notice;
      notice.run = next_.load();
      std::memcpy(notice.text.data(), why.data(), std::min(why.size(), notice.text.size() - 1));
      if (active_.load()) keep(notice);
      ended = settle();
    }
    for (const Ended& e : ended) e.watched->ended_elsewhere(e.why);
  } catch (...) {
    // no memory: the next time
  }
}

void Cluster::end_for_good(const std::string& why) noexcept {
  {
    const std::scoped_lock lock(guard_);
    dead_ = why;
  }
  end_current(why);
}

void Cluster::keep(const Notice& notice) {
  if (notice.run < next_.load()) return;
  notices_.insert(std::ranges::upper_bound(notices_, notice.run, {}, &Notice::run), notice);
}

/// Keeps what has come, of the earliest run first; of runs that are over nothing.
void Cluster::read_notices() {
  if (!transport_ || left_) return;
  for (std::size_t i = 0; machine_->shares() && i < heard_.size(); ++i) {
    const Seat& seat = *machine_->seat(machine_->ranks()[i]);
    const std::uint64_t told = seat.notices.load(std::memory_order_acquire);
    if (machine_->ranks()[i] == rank()) continue;
    heard_[i] = std::max(heard_[i], told - std::min(told, std::uint64_t{Seat::kept}));
    for (; heard_[i] < told; ++heard_[i]) keep(seat.notice[heard_[i] % Seat::kept]);
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
    notice.text.back() = '\0';
    keep(notice);
  }
  while (!notices_.empty() && notices_.front().run < next_.load()) notices_.pop_front();
}

/// Ends the runs that notices are for, as far as it is known which they are: the active one, or the
/// only one that has begun.
std::vector<Cluster::Ended> Cluster::settle() {
  std::vector<Ended> out;
  while (!notices_.empty() && notices_.front().run == next_.load()) {
    std::uint64_t run = active_.load();
    if (!run && watched_.size() == 1) run = watched_.begin()->first;
    if (!run || has_ended(run)) break;
    why_ = notices_.front().text.data();
    notices_.pop_front();
    end_run(run);
    const auto watched = watched_.extract(run);
    if (watched) out.push_back({watched.mapped(), why_});
  }
  return out;
}

void Cluster::run_failed(std::uint64_t run, const std::string& why) noexcept {
  try {
    Ended other;
    {
      const std::scoped_lock lock(guard_);
      if (has_ended(run)) return;
      why_ = fmt::format("the run has failed on process {}: {}", rank(), why);
      const std::uint64_t active = active_.load(), number = next_.load();
      if (active && active != run) {
        ended_.push_back(active);
        if (const auto watched = watched_.extract(active)) other = {watched.mapped(), why_};
      }
      end_run(run);
      tell(number, why_);
    }
    if (other.watched) other.watched->ended_elsewhere(other.why);
  } catch (...) {
    log_line("a run over processes failed, and there was no memory to tell the others");
  }
}

void Cluster::tell(std::uint64_t run, const std::string& text) noexcept {
  if (!transport_ || size() < 2) return;
  auto notice = std::make_unique<Notice>();
  notice->run = run;
  std::memcpy(notice->text.data(), text.data(), std::min(text.size(), notice->text.size() - 1));
  if (Seat* const seat = machine_->seat(rank())) {
    const std::uint64_t told = seat->notices.load(std::memory_order_relaxed);
    seat->notice[told % Seat::kept] = *notice;
    seat->notices.store(told + 1, std::memory_order_release);
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

bool Cluster::waits_for(int peer) const {
  return std::ranges::any_of(waiting_, [&](const std::atomic<int>& w) { return w.load() == peer; });
}

std::string Cluster::waiting() const {
  for (const std::atomic<int>& w : waiting_)
    if (const int peer = w.load(std::memory_order_relaxed); peer >= 0)
      return fmt::format(" while it waited for process {}", peer);
  return "";
}

/// Where clocks may differ, each process asks process 0 what time it is a few times; the answer
/// that came soonest counts.
void Cluster::align_clocks() {
  constexpr int times = 8;
  const auto wait = [&](Transport::Request request) {
    for (bool through = false; !through;)
      if (const char* const error = transport_->test(&request, &through))
        throw PluginError(ErrorCode::unavailable, fmt::format("joining the cluster: {}", error));
  };
  const auto send = [&](int to, const std::int64_t& value) {
    Transport::Request request;
    if (const char* const error = transport_->send(to, clock_tag, &value, sizeof value, &request))
      throw PluginError(ErrorCode::unavailable, fmt::format("joining the cluster: {}", error));
    wait(request);
  };
  const auto receive = [&](int from) {
    std::int64_t value = 0;
    Transport::Request request;
    if (const char* error = transport_->receive(from, clock_tag, &value, sizeof value, &request))
      throw PluginError(ErrorCode::unavailable, fmt::format("joining the cluster: {}", error));
    wait(request);
    return value;
  };
  const auto now = [] { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); };
  const auto has_this_clock = [&](int rank) {
    return std::ranges::find(machine_->ranks(), rank) != machine_->ranks().end();
  };
  if (rank() == 0) {
    for (int from = 1; from < size(); ++from)
      for (int i = 0; i < times && !has_this_clock(from); ++i) {
        receive(from);
        send(from, now());
      }
    return;
  }
  if (has_this_clock(0)) return;
  clock_error_ = std::chrono::hours(1);
  for (int i = 0; i < times; ++i) {
    const std::int64_t begin = now();
    send(0, begin);
    const std::int64_t there = receive(0), end = now();
    const std::chrono::nanoseconds error((end - begin) / 2);
    if (error >= clock_error_) continue;
    clock_error_ = error;
    clock_offset_ = std::chrono::nanoseconds(there - (begin + (end - begin) / 2));
  }
}

}  // namespace postern::clusters
