// f.run: a run with options on the thread that waits for it.
#include "support.h"

#include <sstream>
#include <thread>

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::all_modes, test::error_of, test::expect_error, test::has, test::seconds_since;
using Clock = std::chrono::steady_clock;

TEST(RunOptions, RunsOnTheCallersThreadInEveryMode) {
  for (const Mode mode : all_modes) {
    std::thread::id thread;
    auto f = jit(
        [&](Tensor x) {
          return call(
                     x.type(),
                     [&](float v) {
                       thread = std::this_thread::get_id();
                       return v + 1;
                     },
                     x) *
                 2.0f;
        },
        {.mode = mode});
    EXPECT_EQ(f(1.0f).item<float>(), 4);
    const std::thread::id called = std::exchange(thread, {});
    EXPECT_EQ(f.run({.deadline = 60s}, 1.0f).item<float>(), 4);
    EXPECT_EQ(thread, called);
  }
}

TEST(RunOptions, WithoutCallsToo) {
  for (const Mode mode : all_modes) {
    auto f = jit(
        [](Tensor x, Tensor y) {
          return std::pair{x + y, std::vector{x, y}};
        },
        {.mode = mode});
    const auto [sum, both] = f.run({.deadline = 60s}, 1.0f, 2.0f);
    EXPECT_EQ(sum.item<float>(), 3);
    EXPECT_EQ(both.at(1).item<float>(), 2);
  }
}

TEST(RunOptions, ADeadlineTellsTheFunctionAndFailsTheRun) {
  for (const Mode mode : all_modes) {
    int entered = 0;
    auto f = jit(
        [&](Tensor x) {
          for (int i = 0; i < 3; ++i)
            x = call(
                {.name = "slow"}, x.type(),
                [&](const CallInfo& info, float v) {
                  ++entered;
                  const auto start = Clock::now();
                  while (!info.stop.stop_requested() && seconds_since(start) < 30)
                    std::this_thread::sleep_for(1ms);
                  return v;
                },
                x);
          return x;
        },
        {.mode = mode});
    if (plugin_info().calls_back) f.compile(abstract(type<float>()));
    const auto start = Clock::now();
    expect_error<TimeoutError>([&] { f.run({.deadline = 1s}, 1.0f); }, {"slow", "deadline"},
                               ErrorCode::timeout);
    EXPECT_LT(seconds_since(start), 20);
    EXPECT_EQ(entered, 1) << "what has not begun is skipped";
  }
  EXPECT_NO_THROW(barrier()) << "who waited has seen the failure";
}

TEST(RunOptions, OtherRunsAreNotReachedByADeadlineThatIsOver) {
  auto f = jit([](Tensor x) {
    return call(
        x.type(),
        [](const CallInfo& info, float v) { return info.stop.stop_requested() ? -1.0f : v + 1; },
        x);
  });
  for (int i = 0; i < 200; ++i) EXPECT_EQ(f.run({.deadline = 2s}, float(i)).item<float>(), i + 1);
  std::this_thread::sleep_for(2100ms);
  for (int i = 0; i < 200; ++i) EXPECT_EQ(f(float(i)).item<float>(), i + 1);
  std::vector<std::jthread> threads;
  std::atomic<int> right = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i)
        right += f.run({.deadline = 30s}, float(i)).item<float>() == float(i + 1);
    });
  threads.clear();
  EXPECT_EQ(right, 400);
}

TEST(RunOptions, CarriesAContextAStreamAndItsOwnFunctions) {
  for (const Mode mode : all_modes) {
    int mine = 7;
    std::ostringstream lines;
    std::vector<float> heard;
    auto f = jit(
        [](Tensor x) {
          x = call(
              x.type(),
              [](const CallInfo& info, float v) {
                const int* add = info.context.as<int>();
                return add ? v + float(*add) : v;
              },
              x);
          print("x {}", x);
          return hook("x", x);
        },
        {.mode = mode, .live_hooks = true});
    const RunOptions options{
        .context = &mine, .sink = &lines, .hooks = {{"x", [&](float v) { heard.push_back(v); }}}};
    EXPECT_EQ(f.run(options, 1.0f).item<float>(), 8);
    EXPECT_EQ(lines.str(), "x 8\n");
    EXPECT_EQ(heard, std::vector<float>{8});
    testing::internal::CaptureStdout();
    EXPECT_EQ(f(1.0f).item<float>(), 1) << "the next run has nothing of it";
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "x 1\n");
    EXPECT_EQ(heard.size(), 1u);
  }
}

TEST(RunOptions, AContextIsOfItsType) {
  auto f = jit([](Tensor x) {
    return call(
        x.type(),
        [](const CallInfo& info, float v) { return v + float(*info.context.as<double>()); }, x);
  });
  int mine = 7;
  double right = 0.5;
  EXPECT_EQ(f.run({.context = &right}, 1.0f).item<float>(), 1.5f);
  EXPECT_EQ(f.run({.context = static_cast<void*>(&right)}, 1.0f).item<float>(), 1.5f);
  expect_error<CallbackError>([&] { f.run({.context = &mine}, 1.0f); },
                              {"context", "int*", "double*"});
}

TEST(RunOptions, WhatIsWrongIsSaidBeforeItRuns) {
  int entered = 0;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          ++entered;
          return v;
        },
        x);
  });
  expect_error<TypeError>([&] { f.run({.deadline = -1ms}, 1.0f); }, {"deadline", "-1000000"});
  expect_error<TypeError>([&] { f.run({.hooks = {{"none", [](float) {}}}}, 1.0f); }, {"none"});
  EXPECT_EQ(entered, 0);
}

TEST(RunOptions, AFunctionThatEndsTheRunIsACancelledError) {
  for (const Mode mode : all_modes) {
    auto f = jit(
        [](Tensor x) {
          return call(
              x.type(),
              [](const CallInfo& info, float v) {
                info.end_run();
                return v;
              },
              x);
        },
        {.mode = mode});
    expect_error<CallbackError>([&] { f.run({.deadline = 10s}, 1.0f); }, {}, ErrorCode::cancelled);
  }
}

TEST(RunOptions, WaitsForFunctionsThatTheRunStarted) {
  std::atomic<bool> returned = false;
  auto f = jit([&](Tensor x) {
    auto late = start_call(
        x.type(),
        [&](float v) {
          std::this_thread::sleep_for(30ms);
          returned = true;
          return v;
        },
        x);
    static_cast<void>(late);
    return x + 1.0f;
  });
  EXPECT_EQ(f.run({}, 1.0f).item<float>(), 2);
  EXPECT_TRUE(returned);
}

}  // namespace
}  // namespace postern
