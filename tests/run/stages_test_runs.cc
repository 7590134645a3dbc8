// Runs that the host drives, as stages or operation by operation: started, waited for, recorded,
// seen by barriers, like those that XLA runs as a whole.
#include "stages_test.h"

#include <map>
#include <sstream>

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::StagesRuns, test::expect_error, test::ten_steps, test::wait_until;
using Floats = std::vector<float>;

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
                         testing::Values(Mode::automatic, Mode::staged, Mode::evaluate),
                         [](const auto& mode) {
                           if (mode.param == Mode::automatic) return std::string("automatic");
                           return std::string(mode.param == Mode::staged ? "staged" : "evaluate");
                         });

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
