// Runs that the host drives, as stages or operation by operation: started, waited for, ended early,
// late, recorded, seen by barriers, like those that XLA runs as a whole.
#include "support.h"

#include <map>
#include <sstream>

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::error_of, test::expect_error, test::has, test::wait_until;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

/// Both modes that the host drives, and the one that they are to equal.
class StagesRuns : public testing::TestWithParam<Mode> {
 protected:
  JitOptions options() const { return {.mode = GetParam()}; }
};

/// Ten steps of a loop that XLA cannot run by itself.
template <class F>
Tensor ten_steps(Tensor x, F step) {
  return fori_loop(
      0, 10,
      [&](Tensor, Tensor v) {
        return call({.name = "step", .effect = Effect::ordered}, v.type(), step, v) + 1.0f;
      },
      x);
}

TEST_P(StagesRuns, AStartedRunGivesItsResult) {
  std::atomic<int> entered = 0;
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x,
                         [&](float v) {
                           ++entered;
                           return v;
                         }) *
               2.0f;
      },
      options());
  auto run = f.start(Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::done);
  EXPECT_EQ(run.result().item<float>(), 22);
  EXPECT_EQ(run.status(), RunStatus::done);
  EXPECT_EQ(entered, 10);
}

TEST_P(StagesRuns, FiringsOfOneRunShareItsNumberContextAndSink) {
  std::map<std::uint64_t, int> runs;
  int wrong = 0, token = 0;
  std::atomic<void*> expected = nullptr;
  auto f = jit(
      [&](Tensor x) {
        print("at {}", x);
        return ten_steps(x, [&](const CallInfo& info, float v) {
          ++runs[info.run];
          wrong += info.context != expected;
          return v;
        });
      },
      options());
  std::ostringstream sink;
  f(Tensor(1.0f)).block_until_ready();
  expected = &token;
  f.start_with({.context = &token, .sink = &sink}, Tensor(2.0f)).wait();
  barrier();
  ASSERT_EQ(runs.size(), 2u);
  for (const auto& [run, count] : runs) EXPECT_EQ(count, 10);
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(sink.str(), "at 2\n");
}

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
  const auto start = Clock::now();
  auto run = f.start_with({.deadline = 250ms}, Tensor(1.0f));
  expect_error<TimeoutError>([&] { run.wait(); }, {"step", "stages_test_runs.cc:", "deadline"},
                             ErrorCode::timeout);
  EXPECT_LT(Clock::now() - start, 5s);
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
    expect_error<CallbackError>([&] { run.wait(); }, {"step", "stages_test_runs.cc:", "too far"},
                                ErrorCode::threw);
  EXPECT_NO_THROW(barrier());
  f.start(Tensor(1.0f));
  expect_error<CallbackError>([&] { barrier(); }, {"step", "too far"}, ErrorCode::threw);
  EXPECT_NO_THROW(barrier());
}

TEST_P(StagesRuns, AFunctionThatWaitsForItsOwnRunGetsAnError) {
  std::optional<postern::Run<Tensor>> run;
  std::atomic<bool> known = false;
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [&](float v) {
          wait_until([&] { return known.load(); });
          run->wait();
          return v;
        });
      },
      options());
  run = f.start(Tensor(1.0f));
  known = true;
  expect_error<CallbackError>([&] { run->wait(); },
                              {"step", "waits for a result of the run that is calling it"});
}

TEST_P(StagesRuns, FunctionsRunProgramsOfTheirOwn) {
  auto inner = jit(
      [](Tensor x) {
        return call(
                   x.type(), [](float v) { return v * 10; }, x) +
               1.0f;
      },
      options());
  auto outer = jit(
      [&](Tensor x) {
        return ten_steps(x, [&](float v) { return inner(Tensor(v)).item<float>() - 9 * v; });
      },
      options());
  EXPECT_EQ(outer(Tensor(1.0f)).item<float>(), 21);
  EXPECT_EQ(outer.start(Tensor(1.0f)).result().item<float>(), 21);
}

TEST_P(StagesRuns, WhatIsDroppedWhileItRuns) {
  const auto capture = std::make_shared<int>(1);
  std::atomic<int> entered = 0;
  std::atomic<bool> open = false;
  {
    auto f = jit(
        [&entered, &open, capture](Tensor x) {
          return ten_steps(x, [&entered, &open, capture](float v) {
            ++entered;
            wait_until([&] { return open.load(); });
            return v;
          });
        },
        options());
    f.start(Tensor(1.0f));
    EXPECT_TRUE(wait_until([&] { return entered == 1; }));
  }
  EXPECT_GT(capture.use_count(), 1);
  open = true;
  barrier();
  EXPECT_EQ(entered, 10);
  EXPECT_EQ(capture.use_count(), 1);
}

TEST_P(StagesRuns, FunctionsGoWithTheirRunAndNotWithItsHandle) {
  const auto capture = std::make_shared<int>(1);
  std::optional<postern::Run<Tensor>> run;
  {
    auto f = jit([capture](Tensor x) { return ten_steps(x, [capture](float v) { return v; }); },
                 options());
    run = f.start(Tensor(1.0f));
  }
  run->wait();
  barrier();
  EXPECT_EQ(capture.use_count(), 1);
  EXPECT_EQ(run->result().item<float>(), 11);
}

TEST_P(StagesRuns, BarrierWaitsForARunOfAnotherThread) {
  std::atomic<int> entered = 0;
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [&](float v) {
          ++entered;
          std::this_thread::sleep_for(10ms);
          return v;
        });
      },
      options());
  std::jthread other([&] { f(Tensor(1.0f)).block_until_ready(); });
  EXPECT_TRUE(wait_until([&] { return entered >= 1; }));
  barrier();
  EXPECT_EQ(entered, 10);
}

TEST_P(StagesRuns, AsynchronousTapsOutliveTheirRun) {
  Floats seen;
  {
    auto f = jit(
        [&](Tensor x) {
          return fori_loop(
              0, 5,
              [&](Tensor, Tensor v) {
                return tap({.mode = TapMode::async}, v,
                           [&](float y) {
                             std::this_thread::sleep_for(5ms);
                             seen.push_back(y);
                           }) +
                       1.0f;
              },
              x);
        },
        options());
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 6);
  }
  barrier();
  EXPECT_EQ(seen, (Floats{1, 2, 3, 4, 5}));
}

TEST_P(StagesRuns, ACallThatWentWellIsRecordedAsThat) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/recording";
  std::atomic<bool> inside = false;
  auto f = jit(vmap([&](Tensor x) {
                 return call(
                     {.name = "half", .vmap = VmapMethod::parallel}, x.type(),
                     [&](const CallInfo& info, float v) {
                       if (info.element == 1) {
                         wait_until([&] { return inside.load(); });
                         throw std::runtime_error("no data");
                       }
                       inside = true;
                       wait_until([&] { return info.stop.stop_requested(); });
                       return v / 2;
                     },
                     x);
               }),
               options());
  {
    const Taping recording = record(file);
    expect_error<CallbackError>(
        [&] {
          f(tensor<float>({1, 2})).to_vector<float>();
        },
        {"half", "no data"});
  }
  const auto firings = read_recording(file);
  ASSERT_EQ(firings.size(), 2u);
  for (const RecordedFiring& firing : firings) {
    EXPECT_EQ(firing.failure, firing.element == 1 ? "no data" : "");
    EXPECT_EQ(firing.values.size(), firing.element == 1 ? 0u : 1u);
  }
}

TEST_P(StagesRuns, HooksAsAStream) {
  auto f = jit(
      [](Tensor x) {
        return fori_loop(
            0, 5, [](Tensor, Tensor v) { return hook("v", v) + 1.0f; }, x);
      },
      options());
  Floats seen;
  auto stream = f.stream({"v"}, Tensor(1.0f));
  while (auto event = stream.next()) seen.push_back(event->values[0].item<float>());
  EXPECT_EQ(seen, (Floats{1, 2, 3, 4, 5}));
  EXPECT_EQ(stream.result().item<float>(), 6);
}

TEST_P(StagesRuns, ALimitOfACallHolds) {
  std::atomic<bool> open = false;
  auto f = jit(
      [&](Tensor x) {
        return call(
            {.name = "fetch", .timeout = 50ms}, x.type(),
            [&](float v) {
              wait_until([&] { return open.load(); });
              return v;
            },
            x);
      },
      options());
  expect_error<TimeoutError>([&] { f.start(Tensor(1.0f)).wait(); }, {"fetch", "50 ms"},
                             ErrorCode::timeout);
  testing::internal::CaptureStderr();
  open = true;
  std::this_thread::sleep_for(100ms);
  testing::internal::GetCapturedStderr();
}

TEST_P(StagesRuns, TapsAndCallsOfOneRunAreInOrder) {
  RecordProperty("covers", "STAGE-09");
  std::vector<std::string> seen;
  std::map<std::uint64_t, int> runs;
  auto show = [&](Tensor x, const char* name) {
    return tap({.name = name}, x, [&, name](const TapInfo& info, float v) {
      ++runs[info.run];
      seen.push_back(std::string(name) + " " + std::to_string(static_cast<int>(v)));
    });
  };
  auto ask = [&](Tensor x, const char* name) {
    return call(
        {.name = name, .effect = Effect::ordered}, x.type(),
        [&, name](const CallInfo& info, float v) {
          ++runs[info.run];
          seen.push_back(std::string(name) + " " + std::to_string(static_cast<int>(v)));
          return v + 1;
        },
        x);
  };
  auto f = jit(
      [&](Tensor x) {
        show(x * 10.0f, "first");
        Tensor y = ask(x, "a");
        show(x * 20.0f, "second");  // reads nothing of the call, and comes after it
        y = fori_loop(
            0, 2, [&](Tensor, Tensor v) { return show(v, "in loop") + 1.0f; }, y);
        show(x * 30.0f, "third");
        y = fori_loop(
            0, 2, [&](Tensor, Tensor v) { return ask(show(v, "before"), "b"); }, y);
        return show(y, "last");
      },
      options());
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 6);
  barrier();
  const std::vector<std::string> once = {"first 10",  "a 1",      "second 20", "in loop 2",
                                         "in loop 3", "third 30", "before 4",  "b 4",
                                         "before 5",  "b 5",      "last 6"};
  EXPECT_EQ(seen, once);
  EXPECT_EQ(runs.size(), 1u);
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
                              {"tap 'watch'", "stages_test_runs.cc:", "too far"}, ErrorCode::threw);
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

TEST_P(StagesRuns, ManyThreadsStartAndCancel) {
  std::atomic<int> done = 0, cancelled = 0;
  auto f = jit([](Tensor x) { return ten_steps(x, [](float v) { return v; }); }, options());
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < 20; ++i) {
          auto run = f.start(Tensor(1.0f));
          if ((i + t) % 2) run.cancel();
          try {
            EXPECT_EQ(run.wait(), RunStatus::done);
            EXPECT_EQ(run.result().item<float>(), 11);
            ++done;
          } catch (const CallbackError& e) {
            EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
            ++cancelled;
          }
        }
      });
  }
  EXPECT_EQ(done + cancelled, 80);
  EXPECT_GE(done, 40);
  EXPECT_NO_THROW(barrier());
}

INSTANTIATE_TEST_SUITE_P(Modes, StagesRuns,
                         testing::Values(Mode::compiled, Mode::staged, Mode::evaluate),
                         [](const auto& mode) {
                           if (mode.param == Mode::compiled) return std::string("compiled");
                           return std::string(mode.param == Mode::staged ? "staged" : "evaluate");
                         });

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

TEST(StagesRuns, AreRecordedAndReplayed) {
  int entered = 0;
  auto f = jit(
      [&](Tensor x) {
        return ten_steps(x, [&](float v) {
          ++entered;
          return v * 0 + static_cast<float>(entered);
        });
      },
      {.mode = Mode::staged});
  const test::TemporaryFolder folder;
  float made = 0, again = 0;
  {
    const Taping recording = record(folder.path() + "/run.rec");
    made = f(Tensor(1.0f)).item<float>();
  }
  EXPECT_EQ(entered, 10);
  {
    const Taping replaying = replay(folder.path() + "/run.rec");
    again = f(Tensor(1.0f)).item<float>();
  }
  EXPECT_EQ(entered, 10);
  EXPECT_EQ(again, made);
}

}  // namespace
}  // namespace postern
