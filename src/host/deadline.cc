#include "host/deadline.h"

#include <postern/run.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/never_destroyed.h"
#include "host/executor.h"
#include "host/limit.h"

namespace postern::internal::host {

RunState::Clock::time_point deadline_of(const RunOptions& options) {
  check(options.deadline.count() >= 0,
        "a run's deadline must be positive, or 0 for none, got {} ns", options.deadline.count());
  if (options.deadline.count() == 0) return RunState::Clock::time_point::max();
  return after(options.deadline);
}

/// All deadlines that are alive, in a list through them, and the thread that looks at it.
class Deadlines {
 public:
  static Deadlines& get() { return never_destroyed<Deadlines>(); }

  void add(Deadline& d) {
    const std::scoped_lock lock(guard_);
    if (!looks_) run_on_host_thread([this] { look(); });
    looks_ = true;
    d.after_ = first_;
    if (first_) first_->before_ = &d;
    first_ = &d;
    if (d.at_ < sleeps_until_) earlier_.notify_one();
  }

  void remove(Deadline& d) {
    const std::scoped_lock lock(guard_);
    Deadline*& link_to_it = d.before_ ? d.before_->after_ : first_;
    link_to_it = d.after_;
    if (d.after_) d.after_->before_ = d.before_;
  }

 private:
  using Clock = RunState::Clock;

  /// Tells each run that is late, once, until there has been no deadline for a second.
  void look() {
    constexpr auto longest_sleep = std::chrono::seconds(1);
    std::unique_lock lock(guard_);
    while (true) {
      const bool was_empty = !first_;
      const auto now = Clock::now();
      auto next_look = now + longest_sleep;
      std::vector<std::shared_ptr<RunState>> late;
      for (Deadline* d = first_; d; d = d->after_) {
        if (d->at_ <= now && !std::exchange(d->told_, true)) late.push_back(d->run_);
        if (d->at_ > now) next_look = std::min(next_look, d->at_);
      }
      if (!late.empty()) {  // without the lock: whoever waits for the stop is called from there
        lock.unlock();
        for (const auto& run : late) run->fail_late();
        late.clear();
        lock.lock();
        continue;  // the list may be another
      }
      sleeps_until_ = next_look;
      earlier_.wait_until(lock, next_look);
      if (was_empty && !first_) break;
    }
    looks_ = false;
    sleeps_until_ = Clock::time_point::min();  // who comes next starts another
  }

  Mutex guard_;
  Condition earlier_;
  Deadline* first_ = nullptr;
  Clock::time_point sleeps_until_ = Clock::time_point::min();
  bool looks_ = false;
};

Deadline::Deadline(std::shared_ptr<RunState> run, RunState::Clock::time_point at)
    : run_(std::move(run)), at_(at) {
  Deadlines::get().add(*this);
}
Deadline::~Deadline() { Deadlines::get().remove(*this); }

}  // namespace postern::internal::host
