// Runs that the host drives and that end early, late or by a failure, like those that XLA runs as
// a whole.
#include "stages_test.h"

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::StagesRuns, test::error_of, test::expect_error, test::has, test::ten_steps,
    test::wait_until;
using Clock = std::chrono::steady_clock;

TEST_P(StagesRuns, CancelSkipsWhatHasNotBegun) {
  std::atomic<int> entered = 0;
  std::atomic<bool> open = false;
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [&](float v) {
          ++entered;
          wait_until([&] { return open.load(); });
          return v;
        });
      },
      options());
  auto run = f.start(Tensor(1.0f));
  EXPECT_TRUE(wait_until([&] { return entered == 1; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"},
                              ErrorCode::cancelled);  // although the function still waits
  EXPECT_EQ(run.status(), RunStatus::cancelled);
  open = true;
  barrier();
  EXPECT_EQ(entered, 1);
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 11);
}

TEST_P(StagesRuns, ADeadlineEndsALoop) {
  struct Seen {
    std::atomic<int> entered = 0;
    std::atomic<bool> slow = true;
  };
  const auto seen = std::make_shared<Seen>();  // the one that is late may outlive the test
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [seen](float v) {
          ++seen->entered;
          if (seen->slow) std::this_thread::sleep_for(100ms);
          return v;
        });
      },
      options());
  seen->slow = false;
  f(Tensor(1.0f)).block_until_ready();  // compiles what is between the steps
  seen->slow = true;
  seen->entered = 0;
  const auto start = Clock::now();
  auto run = f.start_with({.deadline = 250ms}, Tensor(1.0f));
  expect_error<TimeoutError>([&] { run.wait(); }, {"step", "stages_test.h:", "deadline"},
                             ErrorCode::timeout);
  EXPECT_LT(Clock::now() - start, 20s);
  EXPECT_EQ(run.status(), RunStatus::failed);
  barrier();
  EXPECT_LE(seen->entered, 4);
  seen->slow = false;
  EXPECT_EQ(f.start_with({.deadline = 60s}, Tensor(1.0f)).result().item<float>(), 11);
}

TEST_P(StagesRuns, ADeadlineThatNobodyWaitsForEndsTheRun) {
  const auto entered = std::make_shared<std::atomic<int>>(0);  // for one that is late too
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [entered](float v) {
          ++*entered;
          std::this_thread::sleep_for(50ms);
          return v;
        });
      },
      options());
  auto run = f.start_with({.deadline = 120ms}, Tensor(1.0f));
  EXPECT_TRUE(wait_until([&] { return run.status() == RunStatus::failed; }));
  EXPECT_TRUE(error_of<TimeoutError>([&] { run.wait(); }));
  barrier();
  EXPECT_LE(*entered, 4);
}

TEST_P(StagesRuns, AFunctionEndsTheRunWithoutAFailure) {
  std::atomic<int> entered = 0;
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [&](const CallInfo& info, float v) {
          if (++entered == 3) info.end_run();
          return v;
        });
      },
      options());
  auto run = f.start(Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  EXPECT_EQ(entered, 3);
  EXPECT_TRUE(error_of<CallbackError>([&] { run.result(); }));
  EXPECT_NO_THROW(barrier());
}

TEST_P(StagesRuns, AFailureIsSeenByWhoWaitsOrByTheBarrier) {
  auto f = jit(
      [](Tensor x) {
        return ten_steps(
            x, [](float v) -> float { return v > 3 ? throw std::out_of_range("too far") : v; });
      },
      options());
  auto run = f.start(Tensor(1.0f));
  for (int i = 0; i < 2; ++i)
    expect_error<CallbackError>([&] { run.wait(); }, {"step", "stages_test.h:", "too far"},
                                ErrorCode::threw);
  EXPECT_NO_THROW(barrier());
  f.start(Tensor(1.0f));
  expect_error<CallbackError>([&] { barrier(); }, {"step", "too far"}, ErrorCode::threw);
  EXPECT_NO_THROW(barrier());
}

TEST_P(StagesRuns, ATapFailsEndsOrIsCancelled) {
  std::atomic<int> entered = 0, later = 0;
  std::atomic<int> how = 0;  // 1: fails, 2: ends the run, 3: waits to be stopped
  auto f = jit(
      [&](Tensor x) {
        x = fori_loop(
            0, 10,
            [&](Tensor, Tensor v) {
              return tap({.name = "watch"}, v,
                         [&](const TapInfo& info, float) {
                           if (++entered != 3) return;
                           if (how == 1) throw std::out_of_range("too far");
                           if (how == 2) info.end_run();
                           if (how == 3) wait_until([&] { return info.stop.stop_requested(); });
                         }) +
                     1.0f;
            },
            x);
        return call(
            x.type(),
            [&](float v) {
              ++later;
              return v;
            },
            x);
      },
      options());
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 11);
  EXPECT_EQ(later.exchange(0), 1);
  entered = 0;
  how = 1;
  expect_error<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); },
                              {"tap 'watch'", "stages_test_ends.cc:", "too far"}, ErrorCode::threw);
  entered = 0;
  auto failing = f.start(Tensor(1.0f));
  for (int i = 0; i < 2; ++i)
    expect_error<CallbackError>([&] { failing.wait(); }, {"tap 'watch'", "too far"},
                                ErrorCode::threw);
  EXPECT_EQ(failing.status(), RunStatus::failed);
  entered = 0;
  how = 2;
  EXPECT_EQ(f.start(Tensor(1.0f)).wait(), RunStatus::stopped);
  EXPECT_EQ(entered, 3);
  entered = 0;
  how = 3;
  auto run = f.start(Tensor(1.0f));
  EXPECT_TRUE(wait_until([&] { return entered == 3; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  EXPECT_NO_THROW(barrier());
  EXPECT_EQ(entered, 3);
  EXPECT_EQ(later, 0);
}

TEST_P(StagesRuns, AnAsynchronousListenerEndsTheRun) {
  auto f = jit(
      [](Tensor x) {
        x = tap({.mode = TapMode::async}, x * 2.0f,
                [](const TapInfo& info, float) { info.end_run(); });
        return while_loop([](Tensor v) { return v < 1e9f; },
                          [](Tensor v) {
                            return call(
                                v.type(), [](float a) { return a + 1; }, v);
                          },
                          x);
      },
      options());
  auto run = f.start(Tensor(0.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  EXPECT_NO_THROW(barrier());
  expect_error<CallbackError>([&] { f(Tensor(0.0f)).item<float>(); }, {"ended early"},
                              ErrorCode::cancelled);
  barrier();
}

TEST(StagesRuns, FunctionsOfOneRoundThatFailTogetherAreOneError) {
  std::atomic<int> entered = 0;
  auto fails = [&](Tensor x, const char* text) {
    return call(
        {.name = text}, x.type(),
        [&entered, text](float) -> float {
          ++entered;
          wait_until([&] { return entered == 2; });
          throw std::runtime_error(text);
        },
        x);
  };
  auto f = jit([&](Tensor x) { return fails(x, "first") + fails(x + 5.0f, "second"); },
               {.mode = Mode::staged});
  const auto e = error_of<CallbackError>([&] { f(Tensor(0.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->count(), 2u);
  EXPECT_TRUE(has(e->what(), "(and 1 more)")) << e->what();
}

}  // namespace
}  // namespace postern
