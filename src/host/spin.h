// Spinning before sleeping. A thread that sleeps is woken by a system call, and takes 5 to 50 us on
// a virtual machine to go on; what it waits for often comes sooner.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/mutex.h"

namespace postern::internal::host {

/// Tells the core that its thread only spins.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Acquires a lock that the caller does not hold yet (std::defer_lock), of a mutex that is held for
/// less than it takes to put a thread to sleep and wake it: tries for about as long before it
/// sleeps. On one core too, where longest_spin() is zero: its holder is hardly ever interrupted.
inline void acquire(std::unique_lock<Mutex>& lock) {
  constexpr int tries = 100, pauses_between = 8;  // 3 to 40 us in all, by what relax() takes
  for (int i = 0; i < tries; ++i) {
    if (lock.try_lock()) return;
    for (int k = 0; k < pauses_between; ++k) relax();  // the holder has its cache line meanwhile
  }
  lock.lock();
}

/// Goes on on another core, for who has woken a thread and computes on. Where the cores are virtual
/// Linux takes those that idle for lost, and gives a woken thread the core of who woke it, where it
/// waits until that one sleeps: what should go on side by side goes one by one.
void step_aside();

/// Returns how long a thread spins at most (Config::look); zero where there is one core.
std::chrono::nanoseconds longest_spin();
void set_longest_spin(std::chrono::nanoseconds);

/// Wraps `there` for spinning while others may need the core: says what it says, and when that is
/// false gives the core to who wants it.
template <class There>
auto yielding(const There& there) {
  return [there] {
    if (there()) return true;
    std::this_thread::yield();
    return false;
  };
}

/// A place where threads wait for others. Where spinning was in vain it is done for half as long
/// the next time, down to not at all; every 64th wait then tries again. So a thread that waits for
/// what rarely comes soon uses no processor. Any number of threads may spin at once; where each of
/// them has one for itself (thread_local) they write to no line of the cache that others read.
class Spin {
 public:
  /// Calls `there`, which reads atomics, until it says true or the time is over; what it said last.
  /// When it is false the caller must sleep.
  template <class There>
  bool until(const There& there, std::chrono::nanoseconds most = std::chrono::nanoseconds::max()) {
    using Clock = std::chrono::steady_clock;
    if (there()) return true;
    const auto limit = std::min(allowed(), most);
    if (limit.count() <= 0) return false;
    const Clock::time_point begin = Clock::now();
    while (true) {
      for (int i = 0; i < 16; ++i) {
        if (there()) return succeeded();
        relax();
      }
      if (Clock::now() - begin >= limit) break;
    }
    if (there()) return succeeded();
    failed();
    return false;
  }

 private:
  std::chrono::nanoseconds allowed();
  bool succeeded() {
    if (halvings_.load(std::memory_order_relaxed) != 0)
      halvings_.store(0, std::memory_order_relaxed);
    return true;
  }
  void failed();

  std::atomic<int> halvings_{0};  // of the longest spin; in vain so many times in a row
  std::atomic<unsigned> skipped_{0};
};

}  // namespace postern::internal::host
