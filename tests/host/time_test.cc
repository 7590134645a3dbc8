// Limits: of a call, of a run, of a wait; cancelling; ending early.
#include "support.h"

#include <csignal>

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::cause_of, test::error_of, test::expect_error, test::has, test::seconds_since;
using Floats = std::vector<float>;
using Clock = std::chrono::steady_clock;

/// Blocks host functions until it is opened; opens itself at the end of its scope, so that no test
/// hangs.
class Gate {
 public:
  ~Gate() { open(); }
  void open() { state_->open = true; }
  auto waiter() const {
    return [s = state_] {
      s->entered = true;
      EXPECT_TRUE(test::wait_until([&] { return s->open.load(); }, 60s));
    };
  }
  bool wait_entered() const {
    return test::wait_until([&] { return state_->entered.load(); });
  }

 private:
  struct State {
    std::atomic<bool> open = false, entered = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(Time, ACallOverItsLimitFailsTheRun) {
  RecordProperty("covers", "TIME-01");
  Gate gate;
  auto f = jit([wait = gate.waiter()](Tensor x) {
    return call(
        {.name = "fetch", .timeout = 100ms}, x.type(),
        [wait](float v) {
          wait();
          return v;
        },
        x);
  });
  for (int i = 0; i < 2; ++i) {
    const auto start = Clock::now();
    expect_error<TimeoutError>([&] { f(Tensor(1.0f)).item<float>(); },
                               {"fetch", "time_test.cc:", "100 ms"}, ErrorCode::timeout);
    EXPECT_LT(seconds_since(start), 20);
  }
  const auto at_once = error_of<TimeoutError>([&] {
    call({.name = "fetch", .timeout = 30ms}, type<float>(), [wait = gate.waiter()] {
      wait();
      return 1.0f;
    });
  });
  ASSERT_TRUE(at_once);
  EXPECT_EQ(at_once->site().name, "fetch");
  EXPECT_TRUE(has(at_once->what(), "30 ms"));
}

TEST(Time, CallsWithinTheirLimitPass) {
  RecordProperty("covers", "TIME-01");
  int entered = 0;
  auto f = jit([&](Tensor x) {
    for (int i = 0; i < 30; ++i)
      x = call(
          {.timeout = 20s}, x.type(),
          [&](View<const float> in, View<float> out) {
            ++entered;
            std::this_thread::sleep_for(3ms);
            out[0] = in[0] + 1;
          },
          x);
    return x;
  });
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 30);
  EXPECT_EQ(entered, 30);
}

TEST(Time, WithALimitTheFunctionWorksElsewhereOnCopies) {
  const void *limited = nullptr, *free = nullptr;
  std::thread::id where;
  Tensor x = iota<float>(10'000);
  auto f = jit([&](Tensor v) {
    Tensor a = call(
        {.timeout = 20s}, v.type(),
        [&](View<const float> in, View<float> out) {
          limited = in.data();
          where = std::this_thread::get_id();
          std::copy(in.begin(), in.end(), out.begin());
        },
        v);
    Tensor b = call(
        type<int>(),
        [&](View<const float> in) {
          free = in.data();
          return 0;
        },
        v);
    return std::pair(a, b);
  });
  EXPECT_EQ(f(x).first.to_vector<float>()[9'999], 9'999);
  EXPECT_NE(limited, free);
  EXPECT_NE(where, std::this_thread::get_id());
}

TEST(Time, FormsOfALimitedCall) {
  const CallOptions limited{.name = "limited", .timeout = 20s};
  auto [a, b] = call(
      limited, std::pair(type<float>({2}), type<bool>()),
      [](float v) {
        return std::tuple(Floats{v, v}, true);
      },
      Tensor(3.0f));
  EXPECT_EQ(a.to_vector<float>(), (Floats{3, 3}));
  EXPECT_TRUE(b.item<bool>());
  auto throws = jit([&](Tensor x) {
    return call(
        limited, x.type(), [](float) -> float { throw std::domain_error("not mine"); }, x);
  });
  const auto e = error_of<CallbackError>([&] { throws(Tensor(1.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ErrorCode::threw);
  EXPECT_TRUE(cause_of<std::domain_error>(*e));
  auto wrong = jit([&](Tensor x) {
    return call(
        limited, type<float>({3}), [](float v) { return Floats{v}; }, x);
  });
  expect_error<CallbackError>([&] { wrong(Tensor(1.0f)).block_until_ready(); },
                              {"f32[3]", "f32[1]"}, ErrorCode::bad_result);
  auto empty = jit([&](Tensor x) {
    return call(
        limited, type<float>({0}),
        [](View<const float> in) { return in.data() ? Floats() : Floats{1}; }, x);
  });
  EXPECT_EQ(empty(zeros(type<float>({0, 3}))).size(), 0);
}

TEST(Time, ALateResultIsThrownAway) {
  RecordProperty("covers", "TIME-02");
  Gate gate;
  std::atomic<bool> slow = true, returned = false;
  auto f = jit([&, wait = gate.waiter()](Tensor x) {
    return call(
        {.name = "tardy", .timeout = 1s}, x.type(),
        [&slow, &returned, wait](View<const float> in, View<float> out) {
          if (slow) wait();
          std::fill(out.begin(), out.end(), in[0]);
          if (slow) returned = true;
        },
        x);
  });
  const Tensor x = ones(type<float>({1 << 16}));
  testing::internal::CaptureStderr();
  EXPECT_TRUE(error_of<TimeoutError>([&] { f(x).block_until_ready(); }));
  gate.open();
  EXPECT_TRUE(test::wait_until([&] { return returned.load(); }));
  slow = false;
  EXPECT_EQ(f(x * 2.0f).to_vector<float>().back(), 2);
  std::this_thread::sleep_for(300ms);  // its line follows its return
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(has(log, "tardy") && has(log, "time_test.cc:")) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST(Time, ALateExceptionHarmsNobody) {
  Gate gate;
  std::atomic<bool> thrown = false;
  auto f = jit([&, wait = gate.waiter()](Tensor x) {
    return call(
        {.timeout = 20ms}, x.type(),
        [&thrown, wait](float) -> float {
          wait();
          thrown = true;
          throw std::runtime_error("too late");
        },
        x);
  });
  const auto e = error_of<TimeoutError>([&] { f(Tensor(1.0f)).item<float>(); });
  EXPECT_FALSE(e->cause());
  gate.open();
  EXPECT_TRUE(test::wait_until([&] { return thrown.load(); }));
  EXPECT_NO_THROW(barrier());
}

TEST(Time, ARunHasADeadline) {
  RecordProperty("covers", "TIME-03");
  std::atomic<int> entered = 0;
  auto f = jit([&](Tensor x) {
    for (int i = 0; i < 20; ++i)
      x = call(
          {.name = "step" + std::to_string(i)}, x.type(),
          [&](float v) {
            ++entered;
            std::this_thread::sleep_for(100ms);
            return v;
          },
          x);
    return x;
  });
  const auto start = Clock::now();
  auto run = f.start_with({.deadline = 1050ms}, Tensor(1.0f));
  const auto e = error_of<TimeoutError>([&] { run.wait(); });
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_LE(entered, 11);
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "step") && has(e->what(), "deadline")) << e->what();
  EXPECT_EQ(run.status(), RunStatus::failed);
  EXPECT_TRUE(error_of<TimeoutError>([&] { run.result(); }));
  barrier();
  EXPECT_LE(entered, 12) << "nothing begins after the deadline";
  EXPECT_EQ(f.start_with({.deadline = 60s}, Tensor(1.0f)).result().item<float>(), 1);
}

TEST(Time, ADeadlineReleasesWhoWaitsForABlockedFunction) {
  RecordProperty("covers", "TIME-03");
  Gate gate;
  auto f = jit([wait = gate.waiter()](Tensor x) {
    return call(
        {.name = "stuck"}, x.type(),
        [wait](float v) {
          wait();
          return v;
        },
        x);
  });
  const auto start = Clock::now();
  auto run = f.start_with({.deadline = 1s}, Tensor(1.0f));
  expect_error<TimeoutError>([&] { run.wait(); }, {"stuck", "deadline"}, ErrorCode::timeout);
  EXPECT_LT(seconds_since(start), 20);
}

TEST(Time, CancelReleasesWhoWaits) {
  RecordProperty("covers", "TIME-04 TIME-09");
  Gate gate;
  auto f = jit([wait = gate.waiter()](Tensor x) {
    return call(
        {.name = "stuck"}, x.type(),
        [wait](float v) {
          wait();
          return v;
        },
        x);
  });
  auto run = f.start(Tensor(1.0f));
  ASSERT_TRUE(gate.wait_entered());
  EXPECT_EQ(run.status(), RunStatus::running);
  EXPECT_EQ(run.wait(5ms), RunStatus::running);
  std::jthread other([&] {
    std::this_thread::sleep_for(20ms);
    run.cancel();
  });
  const auto start = Clock::now();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(run.status(), RunStatus::cancelled);
  expect_error<CallbackError>([&] { run.result(); }, {"cancelled"}, ErrorCode::cancelled);
  // The device is of use although the function still blocks.
  auto g = jit([](Tensor x) {
    return call(
        x.type(), [](float v) { return v + 1; }, x * 2.0f);
  });
  EXPECT_EQ(g(Tensor(1.0f)).item<float>(), 3);
  EXPECT_EQ((Tensor(1.0f) + 1.0f).item<float>(), 2);
  gate.open();
  EXPECT_NO_THROW(barrier());
  EXPECT_EQ(f(Tensor(5.0f)).item<float>(), 5);
}

TEST(Time, WhatHasNotBegunIsSkippedAfterCancel) {
  RecordProperty("covers", "TIME-04");
  Gate gate;
  std::atomic<int> later = 0;
  auto f = jit([&, wait = gate.waiter()](Tensor x) {
    x = call(
        {.effect = Effect::ordered}, x.type(),
        [wait](float v) {
          wait();
          return v;
        },
        x);
    return call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          ++later;
          return v;
        },
        x);
  });
  auto run = f.start(Tensor(1.0f));
  ASSERT_TRUE(gate.wait_entered());
  run.cancel();
  gate.open();
  barrier();
  EXPECT_EQ(later, 0);
  EXPECT_EQ(run.status(), RunStatus::cancelled);
}

TEST(Time, CancelAfterTheEndChangesNothing) {
  RecordProperty("covers", "TIME-04");
  auto f = jit([](Tensor x) {
    return call(
        x.type(), [](float v) { return v + 1; }, x);
  });
  auto run = f.start(Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::done);
  run.cancel();
  EXPECT_EQ(run.status(), RunStatus::done);
  EXPECT_EQ(run.result().item<float>(), 2);
  for (int i = 0; i < 50; ++i) {  // at any moment: done or cancelled, never anything else
    auto early = f.start(Tensor(1.0f));
    early.cancel();
    try {
      EXPECT_EQ(early.wait(), RunStatus::done);
    } catch (const CallbackError& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
    }
  }
  EXPECT_NO_THROW(barrier());
}

TEST(Time, TheFunctionSeesThatItShouldStop) {
  RecordProperty("covers", "TIME-05");
  std::atomic<int> left = 0;
  std::atomic<bool> entered = false;
  auto polling = [&](const CallInfo& info, float v) {
    entered = true;
    EXPECT_TRUE(test::wait_until([&] { return info.stop.stop_requested(); }));
    ++left;
    return v;
  };
  auto cancelled = jit([&](Tensor x) { return call(x.type(), polling, x); });
  auto run = cancelled.start(Tensor(1.0f));
  EXPECT_TRUE(test::wait_until([&] { return entered.load(); }));
  run.cancel();
  EXPECT_TRUE(test::wait_until([&] { return left == 1; }));
  testing::internal::CaptureStderr();
  auto limited = jit([&](Tensor x) { return call({.timeout = 30ms}, x.type(), polling, x); });
  EXPECT_TRUE(error_of<TimeoutError>([&] { limited(Tensor(1.0f)).item<float>(); }));
  EXPECT_TRUE(test::wait_until([&] { return left == 2; }));
  EXPECT_TRUE(
      error_of<TimeoutError>([&] { cancelled.start_with({.deadline = 1s}, Tensor(1.0f)).wait(); }));
  EXPECT_TRUE(test::wait_until([&] { return left == 3; }));
  std::this_thread::sleep_for(20ms);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(jit([](Tensor x) {
              return call(
                  x.type(),
                  [](const CallInfo& info, float v) { return info.stop.stop_requested() ? -1 : v; },
                  x);
            })(Tensor(1.0f))
                .item<float>(),
            1);
}

TEST(Time, AFunctionEndsTheRunWithoutFailure) {
  RecordProperty("covers", "TIME-06");
  std::vector<int> events;
  auto f = jit([&](Tensor x) {
    for (int i = 1; i <= 100; ++i)
      x = call(
          {.effect = Effect::ordered}, x.type(),
          [&, i](const CallInfo& info, float v) {
            events.push_back(i);
            if (i == 3) info.end_run();
            return v;
          },
          x);
    return x;
  });
  auto run = f.start(Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  EXPECT_EQ(run.status(), RunStatus::stopped);
  EXPECT_EQ(events, (std::vector<int>{1, 2, 3}));
  expect_error<CallbackError>([&] { run.result(); }, {"early"}, ErrorCode::cancelled);
  expect_error<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); }, {"early"},
                              ErrorCode::cancelled);
  EXPECT_NO_THROW(barrier()) << "not a failure";
  run.cancel();
  EXPECT_EQ(run.status(), RunStatus::stopped);
}

TEST(Time, BarrierHasALimit) {
  RecordProperty("covers", "TIME-07");
  Gate gate;
  auto f = jit([wait = gate.waiter()](Tensor x) {
    return call(
        x.type(),
        [wait](float v) {
          wait();
          return v;
        },
        x);
  });
  auto run = f.start(Tensor(1.0f)), second = f.start(Tensor(2.0f));
  ASSERT_TRUE(gate.wait_entered());
  const auto start = Clock::now();
  EXPECT_EQ(barrier(50ms), 2u);
  EXPECT_GE(seconds_since(start), 0.045);
  EXPECT_LT(seconds_since(start), 20);
  EXPECT_EQ(barrier(0ms), 2u);
  gate.open();
  EXPECT_EQ(barrier(30s), 0u);
  EXPECT_NO_THROW(barrier());
  EXPECT_EQ(run.status(), RunStatus::done);
  EXPECT_EQ(second.result().item<float>(), 2);
}

TEST(Time, ASignalEndsALongWait) {
  RecordProperty("covers", "TIME-08");
  Gate gate;
  static std::atomic<bool> interrupted = false;
  auto f = jit([wait = gate.waiter()](Tensor x) {
    return call(
        x.type(),
        [wait](float v) {
          wait();
          return v;
        },
        x);
  });
  struct sigaction before {};
  sigaction(SIGINT, nullptr, &before);
  EXPECT_EQ(before.sa_handler, SIG_DFL) << "the library installs no handler";
  std::signal(SIGINT, [](int) { interrupted = true; });
  auto run = f.start(Tensor(1.0f));
  ASSERT_TRUE(gate.wait_entered());
  std::jthread([] {
    std::this_thread::sleep_for(20ms);
    std::raise(SIGINT);
  }).detach();
  const auto start = Clock::now();
  expect_error<CallbackError>(
      [&] {
        while (run.wait(10ms) == RunStatus::running)
          if (interrupted) run.cancel();
      },
      {"cancelled"}, ErrorCode::cancelled);
  EXPECT_LT(seconds_since(start), 20);
  std::signal(SIGINT, SIG_DFL);
}

TEST(Time, SlowCallsAreLogged) {
  RecordProperty("covers", "TIME-10");
  auto f = jit([](Tensor x) {
    x = call(
        {.name = "quick", .warn_after = 60s}, x.type(), [](float v) { return v; }, x);
    return call(
        {.name = "dawdler", .warn_after = 5ms}, x.type(),
        [](float v) {
          std::this_thread::sleep_for(20ms);
          return v;
        },
        x);
  });
  testing::internal::CaptureStderr();
  f(Tensor(1.0f)).block_until_ready();
  f(Tensor(1.0f)).block_until_ready();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_TRUE(has(log, "dawdler") && has(log, "time_test.cc:") && has(log, " ms")) << log;
  EXPECT_FALSE(has(log, "quick"));
}

TEST(Time, NegativeLimitsAreRefused) {
  RecordProperty("covers", "TIME-10");
  auto f = jit([](Tensor x) { return x + 1.0f; });
  expect_error<TypeError>([&] { f.start_with({.deadline = -1ms}, Tensor(1.0f)); }, {"deadline"});
}

TEST(Time, ARunCarriesAContext) {
  int mine = 7;
  void* seen = nullptr;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](const CallInfo& info, float v) {
          seen = info.context;
          return v;
        },
        x);
  });
  EXPECT_EQ(f.start_with({.context = &mine}, Tensor(1.0f)).wait(), RunStatus::done);
  EXPECT_EQ(seen, &mine);
  f(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(seen, nullptr);
}

}  // namespace
}  // namespace postern
