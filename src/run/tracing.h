// Tracing once for several threads.
#pragma once
#include <postern/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "trace/steps.h"

namespace postern::internal {

/// What the first thread that asks traces, and others wait for. The function that is traced may
/// wait for one of these in its turn. So who has seen a trace stand still for a while traces as
/// well, and the first that ends counts.
class Tracing {
 public:
  /// Traces; `trace` gives what `keep` is called with once.
  template <class Make, class Keep>
  void operator()(const std::string& name, const Make& trace, const Keep& keep) {
    if (done_.load(std::memory_order_acquire)) return;
    std::unique_lock lock(guard_);
    if (wait(lock, name)) return;
    under_way_.push_back(&traced_steps());
    lock.unlock();
    std::optional<decltype(trace())> made;  // when another one counts, it goes without the lock
    struct End {  // whether it threw or not, this thread traces no more, and the others look again
      Tracing& tracing;
      std::unique_lock<Mutex>& guard;
      ~End() {
        if (!guard.owns_lock()) guard.lock();
        tracing.under_way_.erase(std::ranges::find(tracing.under_way_, &traced_steps()));
        tracing.changed_.notify_all();
        guard.unlock();  // before `made` goes
      }
    } const end{*this, lock};
    made.emplace(trace());
    lock.lock();
    if (done_.load(std::memory_order_relaxed)) return;  // another one has ended first
    keep(std::move(*made));
    done_.store(true, std::memory_order_release);
  }

 private:
  /// Waits until it is done (then returns true) or this thread shall trace. Twice as long for each
  /// that already does: where those wait for each other in a chain there must be an end.
  bool wait(std::unique_lock<Mutex>& lock, const std::string& name) {
    constexpr std::size_t most = 7;
    while (!done_.load(std::memory_order_relaxed) && !under_way_.empty()) {
      const std::size_t others = under_way_.size();
      if (std::ranges::find(under_way_, &traced_steps()) == under_way_.end()) {
        const std::uint64_t before = under_way_.back()->load(std::memory_order_relaxed);
        const auto patience = std::chrono::seconds(1 << (others - 1));
        if (changed_.wait_for(lock, patience) != std::cv_status::timeout) continue;
        if (under_way_.size() != others || under_way_.back()->load() != before) continue;
      }
      if (others < most) break;
      throw Error(ErrorCode::reentry,
                  fmt::format("jit: '{}' is being traced on {} threads, and none of them goes on; "
                              "does it wait for another thread that calls it while it is traced?",
                              name, others));
    }
    return done_.load(std::memory_order_relaxed);
  }

  std::atomic<bool> done_{false};
  Mutex guard_;
  Condition changed_;
  std::vector<const std::atomic<std::uint64_t>*> under_way_;  // what their threads have traced
};

}  // namespace postern::internal
