// Runs that wait for one another: what could never end is refused, each in a process of its own.
#include <atomic>

#include "support.h"

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::expect_error, test::run_program;

void expect_ok(const std::string& how) {
  const auto ended = run_program("waits", {how}, {}, 60s);
  EXPECT_EQ(ended.code, 0) << how << ": " << ended.out << ended.err;
}

TEST(Waits, ACycleIsRefused) {
  RecordProperty("covers", "REENTRY-05");
  for (const char* how : {"two runs", "three runs", "through start", "through start limited"})
    expect_ok(how);
}

TEST(Waits, ForTheOwnRunIsRefused) {
  RecordProperty("covers", "REENTRY-05");
  for (const char* how : {"own run", "own run limited", "own run staged", "own run evaluated"})
    expect_ok(how);
}

TEST(Waits, ForTheOwnResultIsRefused) {
  if (test::skipped_in_stages("in stages a run returns behind its functions")) return;
  expect_ok("own result");
}

TEST(Waits, AProgramGoesWithinItsOwnCall) {
  RecordProperty("covers", "LIFE-01");
  for (const char* how : {"drop", "drop staged", "drop evaluated"}) expect_ok(how);
}

TEST(Waits, ExitInACallWhileOthersCompute) {
  RecordProperty("covers", "LIFE-03");
  for (int i = 0; i < 5; ++i) expect_ok("exit inside");
}

TEST(Waits, ADeadlineOutsideOfACallIsATimeout) {
  RecordProperty("covers", "TIME-02");
  for (const Mode mode : test::both_modes) {
    auto heavy = jit(
        [](Tensor x) {
          return fori_loop(
              0, 100'000, [](Tensor, Tensor v) { return sin(v) * 1.5f; }, x);
        },
        {.mode = mode});
    auto run = heavy.start_with({.deadline = 50ms}, ones(type<float>({2000})));
    expect_error<TimeoutError>([&] { run.wait(); }, {"deadline passed"}, ErrorCode::timeout);
    EXPECT_EQ(run.status(), RunStatus::failed);
  }
  barrier();
}

TEST(Waits, WhatAFunctionThrowsAfterCancelChangesNothing) {
  std::atomic<bool> inside{false}, left{false};
  const auto f = jit([&](Tensor x) {
    return call(
        {}, x.type(),
        [&](const CallInfo& info, float) -> float {
          inside = true;
          test::wait_until([&] { return info.stop.stop_requested(); });
          left = true;
          throw std::runtime_error("it heeds the stop so");
        },
        x);
  });
  const auto run = f.start(Tensor(1.0f));
  ASSERT_TRUE(test::wait_until([&] { return inside.load(); }));
  run.cancel();
  ASSERT_TRUE(test::wait_until([&] { return left.load(); }));
  std::this_thread::sleep_for(50ms);
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  barrier();
}

TEST(Waits, TheGreatestDurationsAreForEver) {
  RecordProperty("covers", "TIME-01 TIME-02");
  constexpr auto never = std::chrono::nanoseconds::max();
  constexpr auto almost = never - 1h;
  for (const auto limit : {never, almost}) {
    auto f = jit([&](Tensor x) {
      return call(
          {.timeout = limit}, x.type(),
          [](float v) {
            std::this_thread::sleep_for(30ms);
            return v + 1;
          },
          x);
    });
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
    auto run = f.start_with({.deadline = limit}, Tensor(1.0f));
    EXPECT_EQ(run.wait(limit), RunStatus::done);
    EXPECT_EQ(run.result().item<float>(), 2);
    auto other = f.start(Tensor(1.0f));
    EXPECT_EQ(barrier(limit), 0u);
    EXPECT_EQ(other.status(), RunStatus::done);
  }
}

}  // namespace
}  // namespace postern
