// The library's locks: a thread knows how many it holds, and is ended where it enters the user's
// code under one.
#include "core/mutex.h"

#include <gtest/gtest.h>

#include <thread>

namespace postern::internal {
namespace {

#ifndef NDEBUG

TEST(Mutex, AThreadKnowsHowManyItHolds) {
  Mutex one;
  SharedMutex other;
  Condition changed;
  bool there = false;
  EXPECT_EQ(locks_held, 0);
  std::unique_lock lock(one);
  {
    const std::shared_lock reads(other);
    EXPECT_EQ(locks_held, 2);
  }
  std::thread wakes([&] {
    EXPECT_EQ(locks_held, 0) << "another thread's";
    const std::scoped_lock mine(one);
    there = true;
    changed.notify_all();
  });
  changed.wait(lock, [&] { return there; });
  EXPECT_EQ(locks_held, 1);
  std::thread tries([&] {
    EXPECT_FALSE(one.try_lock());
    EXPECT_EQ(locks_held, 0);
  });
  tries.join();
  lock.unlock();
  EXPECT_EQ(locks_held, 0);
  enters_users_code();
  wakes.join();
}

TEST(MutexDeathTest, TheUsersCodeUnderALockEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto enter = [] {
    Mutex guard;
    const std::scoped_lock lock(guard);
    enters_users_code();
  };
  EXPECT_DEATH(enter(), "entered under a lock of the library");
}

#endif

}  // namespace
}  // namespace postern::internal
