// Once: what the first thread that asks does while the others wait; tried again by the next when it
// throws.
#pragma once
#include <atomic>
#include <mutex>

namespace postern::internal {

/// In place of std::call_once, whose waiters the thread sanitizer never wakes after an exception,
/// and whose thread variables in libstdc++ could not be had once somebody else's library is loaded.
class Once {
 public:
  template <class Act>
  void operator()(Act act) {
    if (done_.load(std::memory_order_acquire)) return;
    std::scoped_lock lock(guard_);
    if (done_.load(std::memory_order_relaxed)) return;
    act();
    done_.store(true, std::memory_order_release);
  }

 private:
  std::mutex guard_;
  std::atomic<bool> done_{false};
};

}  // namespace postern::internal
