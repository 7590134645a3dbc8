// Collecting events, and writing them.
//
// While nobody has asked for a timeline, `recording` is false and a Span costs one look at it. Else
// each event goes into one book under one lock: its kind's and name's total always, the event
// itself while there is room, so that a long run has right totals and its beginning.
#include "host/timeline.h"

#include <fmt/format.h>
#include <postern/trace.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>

#include "cluster/cluster.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"
#include "host/text_file.h"

namespace postern::internal::host::timeline {

std::atomic<bool> recording{false};

namespace {

struct Book {
  static constexpr std::size_t most = 1'000'000;
  Mutex guard;
  std::vector<Event> events;
  std::map<std::size_t, RendezvousId> rendezvous;  // by event
  std::uint64_t left_out = 0;
  std::map<std::pair<Kind, std::string>, Total> totals;
  Clock::time_point first = Clock::time_point::max(), last = Clock::time_point::min();
  std::string file;  // of the environment

  bool recorded = false;
  int watched = 0;  // by so many
  std::deque<Event> recent;
  void apply() { recording = recorded || watched > 0; }
};
Book& book() { return never_destroyed<Book>(); }

int thread_number() {
  static std::atomic<int> threads{0};
  thread_local const int number = threads.fetch_add(1);
  return number;
}

/// Each of several processes writes a file of its own: "timeline.json" becomes "timeline.3.json",
/// and "{rank}" the rank.
std::string of_this_process(std::string file) {
  if (clusters::size_now() < 2) return file;
  const std::string rank = std::to_string(clusters::rank_now());
  constexpr std::string_view mark = "{rank}";
  if (const std::size_t at = file.find(mark); at != std::string::npos)
    return file.replace(at, mark.size(), rank);
  const std::size_t dot = file.rfind('.'), slash = file.rfind('/');
  const bool has_end = dot != std::string::npos && (slash == std::string::npos || slash < dot);
  return file.insert(has_end ? dot : file.size(), "." + rank);
}

std::string json_text(std::string_view text) { return internal::quoted(one_line(text)); }

std::string json_of(const Book& b) {
  auto micros = [&](Clock::duration d) {
    return std::chrono::duration<double, std::micro>(d).count();
  };
  std::string out = "{\"traceEvents\":[\n";
  int threads = 0;
  for (std::size_t i = 0; i < b.events.size(); ++i) {
    const Event& e = b.events[i];
    threads = std::max(threads, e.thread + 1);
    out += fmt::format(
        "{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"ts\":{:.3f},\"dur\":{:.3f},\"pid\":{},\"tid\":"
        "{}",
        json_text(e.name), to_string(e.kind), micros(e.start - b.first), micros(e.end - e.start),
        ::getpid(), e.thread);
    if (e.device >= 0) {
      out += fmt::format(",\"args\":{{\"device\":{},\"run\":{}", e.device, e.run);
      if (const auto which = b.rendezvous.find(i); which != b.rendezvous.end())
        out += fmt::format(",\"job_run\":{},\"number\":{},\"processes\":{}", which->second.run,
                           which->second.number, json_text(which->second.processes));
      out += '}';
    }
    out += "},\n";
  }
  for (int t = 0; t < threads; ++t)
    out += fmt::format(
        "{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":"
        "\"thread {}\"}}}},\n",
        ::getpid(), t, t);
  out += fmt::format(
      "{{\"name\":\"left "
      "out\",\"ph\":\"C\",\"ts\":0,\"pid\":{},\"args\":{{\"events\":{}}}}}\n],\n",
      ::getpid(), b.left_out);
  // For `postern merge-timelines`: whose events these are, and when its clock's zero was.
  const clusters::Cluster* const cluster = clusters::Cluster::joined();
  const auto offset = cluster ? cluster->clock_offset() : std::chrono::nanoseconds(0),
             error = cluster ? cluster->clock_error() : std::chrono::nanoseconds(0);
  return out + fmt::format(
                   "\"otherData\":{{\"process\":{},\"processes\":{},\"begin\":{:.3f},"
                   "\"clock_error\":{:.3f}}}}}\n",
                   clusters::rank_now(), clusters::size_now(),
                   b.events.empty() ? 0 : micros(b.first.time_since_epoch() + offset),
                   micros(error));
}

}  // namespace

const char* to_string(Kind kind) {
  static constexpr const char* names[] = {"compile", "execute",  "stage", "transfer", "call",
                                          "tap",     "delivery", "wait",  "meet"};
  return names[static_cast<int>(kind)];
}

void add(Kind kind, std::string_view name, Clock::time_point start, Clock::time_point end,
         int device, std::uint64_t run, const RendezvousId* which) noexcept try {
  Book& b = book();
  const double seconds = std::chrono::duration<double>(end - start).count();
  const auto event = [&] {
    return Event{kind, std::string(name), start, end, thread_number(), device, run};
  };
  std::scoped_lock lock(b.guard);
  if (b.watched > 0) {
    b.recent.push_back(event());
    if (b.recent.size() > most_recent) b.recent.pop_front();
  }
  if (!b.recorded) return;
  b.first = std::min(b.first, start);
  b.last = std::max(b.last, end);
  Total& total =
      b.totals.try_emplace({kind, std::string(name)}, Total{kind, std::string(name)}).first->second;
  ++total.count;
  total.seconds += seconds;
  total.longest = std::max(total.longest, seconds);
  if (b.events.size() >= Book::most) {
    ++b.left_out;
    return;
  }
  if (which) b.rendezvous.emplace(b.events.size(), *which);
  b.events.push_back(event());
} catch (const std::bad_alloc&) {  // the timeline has a hole
}

void watch(bool on) {
  std::scoped_lock lock(book().guard);
  book().watched += on ? 1 : -1;
  if (book().watched == 0) book().recent.clear();
  book().apply();
}

std::vector<Event> recent(Clock::time_point after) {
  std::vector<Event> out;
  std::scoped_lock lock(book().guard);
  for (const Event& e : book().recent)
    if (e.end > after) out.push_back(e);
  return out;
}

void each_compiling(const std::function<void(const Compiling&)>& f) {
  Instances<Compiling>::all().each([&](const Compiling& c, std::uint64_t) { f(c); });
}

std::vector<Total> totals() {
  std::vector<Total> out;
  std::scoped_lock lock(book().guard);
  for (const auto& [key, total] : book().totals) out.push_back(total);
  std::ranges::stable_sort(out, std::greater(), &Total::seconds);
  return out;
}

double seconds_recorded() {
  std::scoped_lock lock(book().guard);
  if (book().events.empty()) return 0;
  return std::chrono::duration<double>(book().last - book().first).count();
}

std::string_view module_name(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return "program";
  return text.substr(at + 1, text.find_first_of(" {(", at) - at - 1);
}

void start_from_environment() {
  const char* file = std::getenv("POSTERN_TIMELINE");
  if (!file || !*file) return;
  {
    std::scoped_lock lock(book().guard);
    book().file = file;
  }
  record_timeline(true);
}

void write_for_environment() noexcept {
  try {
    std::string file;
    {
      std::scoped_lock lock(book().guard);
      file = book().file;
    }
    if (!file.empty()) write_timeline(of_this_process(file));
  } catch (const std::exception& e) {
    log_line(e.what());
  }
}

}  // namespace postern::internal::host::timeline

namespace postern {
using namespace internal;

using namespace host::timeline;

void record_timeline(bool on) {
  std::scoped_lock lock(book().guard);
  book().recorded = on;
  book().apply();
}

void write_timeline(const std::string& file) {
  std::string text;
  {
    std::scoped_lock lock(book().guard);
    text = json_of(book());
  }
  host::write_text_file("write_timeline", file, text);
}

}  // namespace postern
