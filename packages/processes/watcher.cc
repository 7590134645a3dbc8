// The watcher looks every few milliseconds while there are runs over processes, and for a second
// after the last; then it sleeps until the next begins.
#include "watcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "joined.h"

namespace postern::internal::clusters {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

JoinedCluster* watched = nullptr;
std::atomic<bool> asleep{false};
/// Never destroyed: the watcher may wait there when the process ends.
struct Sleep {
  Mutex guard;
  Condition begun;
};
Sleep& resting() {
  static auto* const s = new Sleep;
  return *s;
}

/// Where this process is, for the log: in the machine's memory, where others find it too.
std::array<char, 256> own_site{};
std::array<char, 256>& site_of_this() {
  Seat* const seat = watched->machine().seat(watched->rank());
  return seat ? seat->site : own_site;
}

void note_site() {
  const auto run = watched->current();
  if (!run) return;
  const std::string site = run->site_now();
  if (site.empty()) return;
  std::array<char, 256>& to = site_of_this();
  std::memset(to.data() + std::min(site.size(), to.size() - 1), 0,
              to.size() - std::min(site.size(), to.size() - 1));
  std::memcpy(to.data(), site.data(), std::min(site.size(), to.size() - 1));
}

bool is_dead(const Seat& seat) {
  const int process = seat.process.load();
  return process > 0 && ::kill(process, 0) != 0 && errno == ESRCH;
}

/// What the watcher has seen of the others.
struct Seen {
  struct Peer {
    bool was_here = false;
    int times = 0;
  };
  std::vector<int> dead;
  std::map<int, Peer> peers;
  std::uint32_t looks = 0;
};

/// mpirun ends the job when a process dies; where it does not, runs must still end.
void look_for_the_dead(std::vector<int>& known) {
  for (const int rank : watched->machine().ranks()) {
    const Seat* const seat = watched->machine().seat(rank);
    if (!seat || !is_dead(*seat) || std::ranges::find(known, rank) != known.end()) continue;
    const std::string site(seat->site.data(), ::strnlen(seat->site.data(), seat->site.size()));
    const std::string text =
        site.empty() ? fmt::format("process {} has died", rank)
                     : fmt::format("process {} has died; it was last at {}", rank, site);
    log(LogLevel::warning, "{}", text);
    watched->end_for_good(text);
    known.push_back(rank);  // last: where memory is short all of it is tried again
  }
}

/// Nobody comes any more who has left, as its seat or a message says. What was sent before that may
/// still be on its way, or be there while who waits has no core to see it.
void look_for_the_gone(Seen& seen) {
  constexpr int enough = 8;
  const std::uint32_t before = std::exchange(seen.looks, watched->looks());
  if (before == seen.looks) return;
  for (int rank = 0; rank < watched->size(); ++rank) {
    const Seat* const seat = watched->machine().seat(rank);
    Seen::Peer& peer = seen.peers[rank];
    const bool is_here = seat ? seat->process.load() != 0 : !watched->has_left(rank);
    peer.was_here = peer.was_here || is_here || !seat;
    const bool in_vain = peer.was_here && !is_here && watched->waits_for(rank);
    peer.times = in_vain ? peer.times + 1 : 0;
    if (peer.times >= enough)
      watched->end_for_good(fmt::format("process {} has left the cluster", rank));
  }
}

void watch_others() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);
  constexpr auto pause = 4ms;
  auto last = Clock::now();
  Seen seen;
  for (unsigned round = 0;; ++round) {
    if (watched->has_runs()) last = Clock::now();
    if (Clock::now() - last > 1s) {
      std::unique_lock lock(resting().guard);
      asleep = true;
      resting().begun.wait(lock, [] { return watched->has_runs(); });
      asleep = false;
    }
    std::this_thread::sleep_for(pause);
    watched->listen();
    try {
      if (round % 16 == 0) {
        look_for_the_dead(seen.dead);
        look_for_the_gone(seen);
      }
      if (const char* const error = watched->transport()->ended()) watched->end_all(error);
      note_site();
    } catch (...) {  // no memory: it looks again in a moment
    }
  }
}

/// A line that a signal's handler may write.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const std::size_t n = std::min(text.size(), sizeof text_ - size_ - 1);
    std::memcpy(text_ + size_, text.data(), n);
    size_ += n;
    return *this;
  }
  Line& operator<<(int number) {
    char digits[12];
    std::size_t n = sizeof digits;
    do digits[--n] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << std::string_view(digits + n, sizeof digits - n);
  }
  void write() {
    text_[size_++] = '\n';
    static_cast<void>(!::write(STDERR_FILENO, text_, size_));
  }

 private:
  char text_[512];
  std::size_t size_ = 0;
};

std::string_view text_in(const std::array<char, 256>& site) {
  return {site.data(), ::strnlen(site.data(), site.size())};
}

/// mpirun ends all processes when one has died. Each says where it was, and the first of a machine
/// where those were that cannot any more.
void on_termination(int signal) {
  const int before = errno;
  if (::getpid() != watched->process()) {  // a child that was forked off
    ::raise(signal);
    return;
  }
  const Machine& machine = watched->machine();
  Line line;
  line << "postern: process " << watched->rank() << " is told to end";
  const std::string_view site = text_in(site_of_this());
  if (!site.empty()) line << "; it was last at " << site;
  line.write();
  bool first = true;
  for (const int rank : machine.ranks()) {
    Seat* const seat = machine.seat(rank);
    if (!seat || rank == watched->rank()) continue;
    const bool lives = seat->process.load() != 0 && !is_dead(*seat);
    if (lives && rank < watched->rank()) first = false;
  }
  for (const int rank : machine.ranks()) {
    Seat* const seat = machine.seat(rank);
    if (!first || !seat || !is_dead(*seat)) continue;
    Line dead;
    dead << "postern: process " << rank << " has died";
    if (!text_in(seat->site).empty()) dead << "; it was last at " << text_in(seat->site);
    dead.write();
    seat->process = 0;  // said once
  }
  if (Seat* const seat = machine.seat(watched->rank())) seat->process = 0;
  errno = before;
  ::raise(signal);  // whose handler was this one, once
}

void say_where_at_the_end() {
  struct sigaction now {};
  if (log_level() == LogLevel::off || sigaction(SIGTERM, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler != SIG_DFL) return;  // the application's
  struct sigaction ours {};
  ours.sa_handler = on_termination;
  ours.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGTERM, &ours, nullptr);
}

}  // namespace

void begin_watching(JoinedCluster& cluster) {
  watched = &cluster;
  say_where_at_the_end();
  std::thread(watch_others).detach();
}

void wake_watcher() {
  if (!asleep.load()) return;
  const std::scoped_lock lock(resting().guard);
  resting().begun.notify_all();
}

}  // namespace postern::internal::clusters
