// What is made once: by one thread, again after an exception, and never in a circle.
#include "core/once.h"

#include <latch>
#include <optional>

#include "core/cache.h"
#include "support.h"

namespace postern::internal {
namespace {

using test::error_of, test::expect_error;

TEST(Once, OneThreadDoesItAndAnotherAgainAfterAnException) {
  Once once;
  std::atomic<int> times{0};
  expect_error<std::runtime_error>([&] { once([] { throw std::runtime_error("not yet"); }); },
                                   {"not yet"});
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { once([&] { ++times; }); });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(times, 1);
}

TEST(Once, WhatNeedsItselfIsRefused) {
  Once once;
  expect_error<Error>([&] { once([&] { once([] {}); }); }, {"made of itself"}, ErrorCode::reentry);
  bool done = false;
  once([&] { done = true; });
  EXPECT_TRUE(done);
  Cache<int> cache(4);
  const auto of_itself = [&] { return cache.find("key", [] { return std::make_shared<int>(1); }); };
  expect_error<Error>([&] { cache.find("key", of_itself); }, {"made of itself"},
                      ErrorCode::reentry);
  EXPECT_EQ(*of_itself(), 1);
}

TEST(Once, ACircleOverThreadsIsRefusedToOneOfThem) {
  Once first, second, third;
  std::latch all(3);
  std::atomic<int> refused{0}, done{0};
  const auto makes = [&](Once& mine, Once& others) {
    try {
      mine([&] {
        all.arrive_and_wait();
        others([] {});
      });
      ++done;
    } catch (const Error& e) {
      refused += e.code() == ErrorCode::reentry;
    }
  };
  std::thread a([&] { makes(first, second); }), b([&] { makes(second, third); }),
      c([&] { makes(third, first); });
  for (std::thread* t : {&a, &b, &c}) t->join();
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(done, 2);
}

}  // namespace
}  // namespace postern::internal
