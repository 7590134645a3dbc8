// The timeline: what happened when, on which thread, for Chrome's trace format and for report().
#pragma once
#include <postern/detail/api.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/instances.h"

namespace postern::internal::host::timeline {

/// stage: what is executed as part of a run that the host drives, whose `execute` spans it.
enum class Kind { compile, execute, stage, transfer, call, tap, delivery, wait, meet };
POSTERN_API const char* to_string(Kind kind);

extern std::atomic<bool> recording;  // somebody has asked for it, to keep or to watch
inline bool on() { return recording.load(std::memory_order_relaxed); }

using Clock = std::chrono::steady_clock;

/// A collective over processes, which all of them know by these.
struct RendezvousId {
  std::uint64_t run, number;  // among those over processes, and in the run
  std::string processes;      // "0, 1"
};

/// Keeps an event of this thread; beyond a million of them only their sums are kept. `which`: the
/// collective that it is; null: none.
void add(Kind kind, std::string_view name, Clock::time_point start, Clock::time_point end,
         int device = -1, std::uint64_t run = 0, const RendezvousId* which = nullptr) noexcept;

/// An event from here to the end of the scope. When nothing is recorded it costs one load.
class Span {
 public:
  Span(Kind kind, std::string_view name, int device = -1, std::uint64_t run = 0) : on_(on()) {
    if (on_) [[unlikely]] {
      kind_ = kind;
      name_ = name;
      device_ = device;
      run_ = run;
      start_ = Clock::now();
    }
  }
  ~Span() {
    if (on_) [[unlikely]]
      add(kind_, name_, start_, Clock::now(), device_, run_);
  }
  Span(const Span&) = delete;

 private:
  bool on_;
  Kind kind_{};
  int device_ = -1;
  std::uint64_t run_ = 0;
  std::string_view name_;
  Clock::time_point start_;
};

/// A compilation that is under way: its span, and for who looks.
class Compiling {
 public:
  explicit Compiling(std::string_view what) : name(what), span_(Kind::compile, name) {
    Instances<Compiling>::all().enter(this);
  }
  ~Compiling() { Instances<Compiling>::all().leave(this); }
  Compiling(const Compiling&) = delete;
  const std::string name;
  const Clock::time_point start = Clock::now();

 private:
  Span span_;
};
/// Calls f for each.
POSTERN_API void each_compiling(const std::function<void(const Compiling&)>& f);

/// What the names of programs of one operation begin with, which run outside of others.
inline constexpr std::string_view operation_prefix = "operation.";

/// The sum of all events of a kind and name.
struct Total {
  Kind kind;
  std::string name;
  std::uint64_t count = 0;
  double seconds = 0, longest = 0;
};
POSTERN_API std::vector<Total> totals();  // the longest first
POSTERN_API double seconds_recorded();    // from the first event to the last

/// The last events, for who watches; they are kept while somebody has asked for it.
struct Event {
  Kind kind;
  std::string name;
  Clock::time_point start, end;
  int thread, device;
  std::uint64_t run;
};
inline constexpr std::size_t most_recent = 2048;
POSTERN_API void watch(bool on);  // one more who does, or one less
/// Returns those that ended after this moment.
POSTERN_API std::vector<Event> recent(Clock::time_point after);

/// Returns the name that a StableHLO text gives its module.
std::string_view module_name(std::string_view text);

/// Looks at POSTERN_TIMELINE once; and writes the file that it named, if any.
void start_from_environment();
void write_for_environment() noexcept;

}  // namespace postern::internal::host::timeline
