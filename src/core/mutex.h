// Mutex: the library's locks. Where assertions are on, each thread knows how many of them it holds,
// so that none is held when a function of the user's is entered.
#pragma once
#include <cassert>
#include <condition_variable>
#include <mutex>
#include <shared_mutex>

namespace postern::internal {

#ifdef NDEBUG

using Mutex = std::mutex;
using SharedMutex = std::shared_mutex;
using Condition = std::condition_variable;
inline void enters_users_code() {}

#else

inline constinit thread_local int locks_held = 0;  // by this thread

template <class Lockable>
class Counted : Lockable {
 public:
  void lock() {
    ++locks_held;
    Lockable::lock();
  }
  bool try_lock() { return Lockable::try_lock() && ++locks_held; }
  void unlock() {
    --locks_held;
    Lockable::unlock();
  }
  void lock_shared() {
    ++locks_held;
    Lockable::lock_shared();
  }
  void unlock_shared() {
    --locks_held;
    Lockable::unlock_shared();
  }
};
using Mutex = Counted<std::mutex>;
using SharedMutex = Counted<std::shared_mutex>;
using Condition = std::condition_variable_any;

/// Asserts that no lock is held. What is the user's may wait, throw, and come back to the library:
/// it is entered under no lock.
inline void enters_users_code() {
  assert(locks_held == 0 && "a function of the user's is entered under a lock of the library");
}

#endif

/// Where a stop_token wakes who waits too.
using StopCondition = std::condition_variable_any;

}  // namespace postern::internal
