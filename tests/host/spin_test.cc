// Spinning before sleeping.
#include "host/spin.h"

#include <gtest/gtest.h>
#include <postern/c.h>
#include <postern/postern.h>
#include <sched.h>

#include <ctime>
#include <thread>

#include "host/executor.h"
#include "support.h"

namespace postern::internal::host {
namespace {

using namespace std::chrono_literals;

struct Spins : testing::Test {
  void SetUp() override {
    if (core_count() == 1) GTEST_SKIP() << "one core: nobody looks";
    set_longest_spin(1ms);
  }
  void TearDown() override { set_longest_spin(50us); }
};

TEST_F(Spins, WhoStepsAsideMayRunWhereItMight) {
  cpu_set_t before, after, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  for (int i = 0; i < 100; ++i) step_aside();
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  step_aside();  // there is nowhere to go
  ASSERT_EQ(sched_getaffinity(0, sizeof after, &after), 0);
  EXPECT_TRUE(CPU_EQUAL(&one, &after));
  sched_setaffinity(0, sizeof before, &before);
}

TEST_F(Spins, WhatComesSoonIsSeen) {
  set_longest_spin(10s);
  Spin spin;
  std::atomic<bool> there{false};
  std::thread other([&] { there = true; });
  EXPECT_TRUE(spin.until([&] { return there.load(); }));
  other.join();
}

TEST_F(Spins, LooksThatAreInVainGetShorterAndEnd) {
  Spin spin;
  const auto looks = [&] {
    std::int64_t n = 0;
    EXPECT_FALSE(spin.until([&] {
      ++n;
      return false;
    }));
    return n;
  };
  EXPECT_GT(looks(), 1);
  for (int i = 0; i < 6; ++i) looks();
  // Now it asks once and sleeps; only from time to time it looks again.
  int longer = 0;
  for (int i = 0; i < 640; ++i) longer += looks() > 1;
  EXPECT_EQ(longer, 10);
}

TEST_F(Spins, OneThatSucceedsLooksAsLongAsBefore) {
  Spin spin;
  const auto in_vain = [&] {
    std::int64_t n = 0;
    spin.until([&] {
      ++n;
      return false;
    });
    return n;
  };
  for (int i = 0; i < 10; ++i) in_vain();
  bool seen = false;
  for (int i = 0; i < 100 && !seen; ++i) {
    int n = 0;
    seen = spin.until([&] { return ++n > 1; });
  }
  EXPECT_TRUE(seen);
  EXPECT_GT(in_vain(), 1);
}

TEST_F(Spins, NobodyLooksWhenToldNotTo) {
  set_longest_spin(0ns);
  Spin spin;
  int n = 0;
  EXPECT_FALSE(spin.until([&] {
    ++n;
    return false;
  }));
  EXPECT_EQ(n, 1);
  EXPECT_TRUE(spin.until([] { return true; }));
}

TEST_F(Spins, ALimitOfTheCallersCounts) {
  Spin spin;
  int n = 0;
  EXPECT_FALSE(spin.until(
      [&] {
        ++n;
        return false;
      },
      -5ns));
  EXPECT_FALSE(spin.until(
      [&] {
        ++n;
        return false;
      },
      0ns));
  EXPECT_EQ(n, 2);
}

TEST_F(Spins, OnOneCoreNobodyLooks) {
  using test::run_program;
  const test::Ended many = run_program("waits", {"looks"});
  EXPECT_EQ(many.code, 0) << many.out << many.err;
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);  // the program inherits it
  const test::Ended alone = run_program("waits", {"looks never"});
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(alone.code, 0) << alone.out << alone.err;
}

TEST_F(Spins, TapsThatComeSeldomAreNotLookedFor) {
  const auto f = jit([](Tensor x) {
    return fori_loop(
        0, 100,
        [](Tensor, Tensor v) {
          const Tensor later = call(
              {.effect = Effect::ordered}, v.type(),
              [](float u) {
                std::this_thread::sleep_for(6ms);
                return u;
              },
              v);
          return tap({.mode = TapMode::async}, later, [](float) {});
        },
        x);
  });
  set_longest_spin(0ns);
  f(Tensor(1.0f)).block_until_ready();  // compiles
  set_longest_spin(4ms);
  const std::clock_t before = std::clock();
  f(Tensor(1.0f)).block_until_ready();
  barrier();
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.2)
      << "100 looks would take 0.4 s";
}

TEST_F(Spins, WhoWaitsForWhatDoesNotComeUsesNoProcessor) {
  pn_bridge* bridge = nullptr;
  ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
  ASSERT_EQ(pn_bridge_serve(bridge, "spin_test.echo", 1), PN_OK);
  std::thread serves([&] {
    const pn_request* request = nullptr;
    while (pn_bridge_next(bridge, -1, &request) == PN_OK)
      pn_bridge_reply(bridge, request->tag, request->firing.operands, 1);
  });
  const auto f = jit([](Tensor x) {
    x = tap({.mode = TapMode::async}, x, [](float) {});
    const auto started = start_call(
        x.type(), [](float v) { return v; }, x);
    return fori_loop(
        0, 100, [](Tensor, Tensor v) { return call(v.type(), Named{"spin_test.echo"}, v); },
        wait(started));
  });
  for (const auto limit : {50us, 0us}) {
    set_longest_spin(limit);
    EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 2);
    barrier();
    const std::clock_t before = std::clock();
    std::this_thread::sleep_for(500ms);
    EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.05);
  }
  pn_bridge_close(bridge);
  serves.join();
  pn_bridge_free(bridge);
  unregister_function("spin_test.echo");
}

}  // namespace
}  // namespace postern::internal::host
