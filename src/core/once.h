// Once: what the first thread that asks does while the others wait; tried again by the next when it
// throws.
#pragma once
#include <atomic>

namespace postern::internal {

/// In place of std::call_once, whose waiters the thread sanitizer never wakes after an exception,
/// and whose thread variables in libstdc++ could not be had once somebody else's library is loaded.
/// What is done may be the user's, so no lock is held meanwhile, and it may come to other Onces.
class Once {
 public:
  /// Throws Error(reentry) where this thread, or one that waits for it, does it already.
  template <class Act>
  void operator()(const Act& act) {
    if (done_.load(std::memory_order_acquire) || !begin()) return;
    try {
      act();
    } catch (...) {
      end(false);  // the next who asks, or one who waits, does it
      throw;
    }
    end(true);
  }

 private:
  struct Thread {
    const Once* waits_for = nullptr;
  };
  static constinit thread_local Thread this_thread;

  /// Returns whether it is this thread's to do; else it has been done.
  bool begin();
  void end(bool done);

  std::atomic<bool> done_{false};
  const Thread* doer_ = nullptr;  // the thread that does it now; under the lock of once.cc
};

}  // namespace postern::internal
