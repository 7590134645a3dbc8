// Calls that overlap and fail, come too late, end the run or are waited for in a wrong way.
#include "overlap_test.h"

#include <atomic>

namespace postern {
namespace {

using test::Door, test::broken, test::error_of, test::expect_error, test::has, test::wait_until;
using namespace std::chrono_literals;

TEST(Overlap, FailuresArriveWhereTheyAreWaitedFor) {
  RecordProperty("covers", "OVERLAP-05");
  auto f = jit([](Tensor x) { return broken(x) + 1.0f; });
  const auto e = error_of<CallbackError>([&] { f(1.0f).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "call 'broken' at overlap_test.h")) << e->what();
  EXPECT_TRUE(has(e->what(), "no data")) << e->what();
  EXPECT_EQ(e->site().name, "broken");
  EXPECT_EQ(e->code(), ErrorCode::threw);
  EXPECT_TRUE(test::cause_of<std::runtime_error>(*e));
  barrier();

  auto wrong = jit([](Tensor x) {
    return wait(start_call(
        {.name = "wrong"}, type<float>({2}), [](float) { return 1; }, x));
  });
  expect_error<CallbackError>([&] { wrong(1.0f).to_vector<float>(); }, {"wrong", "f32[2]"},
                              ErrorCode::bad_result);
}

TEST(Overlap, FailuresThatNobodyWaitsForGoToTheBarrier) {
  RecordProperty("covers", "OVERLAP-05");
  auto f = jit([](Tensor x) {
    static_cast<void>(start_call(
        {.name = "lost"}, x.type(), [](float) -> float { throw std::runtime_error("nobody saw"); },
        x));
    return x + 1.0f;
  });
  EXPECT_EQ(f(1.0f).item<float>(), 2);
  expect_error<CallbackError>([] { barrier(); }, {"lost", "nobody saw"}, ErrorCode::threw);
  barrier();
}

TEST(Overlap, TimeLimits) {
  RecordProperty("covers", "OVERLAP-06");
  const auto until_told = [](const CallInfo& info, float v) {
    while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return v;
  };
  auto f = jit([&](Tensor x) {
    return wait(start_call({.name = "slow", .timeout = 20ms}, x.type(), until_told, x));
  });
  expect_error<TimeoutError>([&] { f(1.0f).item<float>(); }, {"slow", "the limit of 20 ms"},
                             ErrorCode::timeout);
  auto lost = jit([&](Tensor x) {
    static_cast<void>(start_call({.name = "late", .timeout = 20ms}, x.type(), until_told, x));
    return x + 1.0f;
  });
  EXPECT_EQ(lost(1.0f).item<float>(), 2);
  expect_error<TimeoutError>([] { barrier(); }, {"late", "the limit of 20 ms"}, ErrorCode::timeout);
}

TEST(Overlap, LimitsHoldWhoeverWaits) {
  RecordProperty("covers", "OVERLAP-06");
  const auto until_told = [](const CallInfo& info, float v) {
    while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return v;
  };
  const CallOptions slow{.name = "slow", .effect = Effect::ordered, .timeout = 20ms};
  auto behind = jit([&](Tensor x) {
    static_cast<void>(start_call(slow, x.type(), until_told, x));
    return wait(start_call(
        {.name = "behind", .effect = Effect::ordered}, x.type(), [](float v) { return v; }, x));
  });
  expect_error<TimeoutError>([&] { behind(1.0f).item<float>(); }, {"slow", "the limit of 20 ms"},
                             ErrorCode::timeout);
  barrier();
  // Nobody waits, outside of any program.
  static_cast<void>(start_call(slow, type<float>(), until_told, 1.0f));
  expect_error<TimeoutError>([] { barrier(); }, {"slow", "the limit of 20 ms"}, ErrorCode::timeout);
  // Who waits comes when the function has returned, which was too late.
  const auto sleeps = [](float v) {
    std::this_thread::sleep_for(60ms);
    return v;
  };
  auto late = jit([&](Tensor x) {
    const auto pending = start_call(slow, x.type(), sleeps, x);
    const Tensor y = call(
        {.effect = Effect::ordered}, x.type(),
        [](float v) {
          std::this_thread::sleep_for(150ms);
          return v;
        },
        x);
    return wait(pending) + y;
  });
  expect_error<TimeoutError>([&] { late(1.0f).item<float>(); }, {"slow", "the limit of 20 ms"},
                             ErrorCode::timeout);
  const auto pending = start_call(slow, type<float>(), sleeps, 1.0f);
  std::this_thread::sleep_for(150ms);
  expect_error<TimeoutError>([&] { wait(pending); }, {"slow", "the limit of 20 ms"},
                             ErrorCode::timeout);
  barrier();
}

TEST(Overlap, DeadlinesAndCancelling) {
  RecordProperty("covers", "OVERLAP-06");
  std::atomic<bool> entered = false;
  auto f = jit([&](Tensor x) {
    return wait(start_call(
        {.name = "stuck"}, x.type(),
        [&](const CallInfo& info, float v) {
          entered = true;
          while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
          return v;
        },
        x));
  });
  {
    auto run = f.start_with({.deadline = 50ms}, Tensor(1.0f));
    expect_error<TimeoutError>([&] { run.wait(); }, {"deadline"}, ErrorCode::timeout);
  }
  barrier();
  entered = false;
  {
    auto run = f.start(Tensor(1.0f));
    ASSERT_TRUE(wait_until([&] { return entered.load(); }));
    run.cancel();
    expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  }
  barrier();
}

TEST(Overlap, AFunctionMayEndTheRun) {
  RecordProperty("covers", "OVERLAP-06");
  std::atomic<int> later = 0;
  auto f = jit([&](Tensor x) {
    Tensor y = wait(start_call(
        {.name = "last"}, x.type(),
        [](const CallInfo& info, float v) {
          info.end_run();
          return v;
        },
        x));
    return call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          ++later;
          return v;
        },
        y);
  });
  auto run = f.start(Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  EXPECT_EQ(later.load(), 0);
}

TEST(Overlap, WhoEndsTheRunStopsTheOthers) {
  RecordProperty("covers", "OVERLAP-06");
  for (const bool waits : {true, false}) {
    std::atomic<bool> inside = false, told = false;
    auto f = jit([&](Tensor x) {
      const auto last = start_call(
          {.name = "last"}, x.type(),
          [&](const CallInfo& info, float v) {
            wait_until([&] { return inside.load(); });
            info.end_run();
            return v;
          },
          x);
      static_cast<void>(start_call(
          {.name = "other"}, x.type(),
          [&](const CallInfo& info, float v) {
            inside = true;
            told = wait_until([&] { return info.stop.stop_requested(); });
            return v;
          },
          x));
      return waits ? wait(last) : x + 1.0f;
    });
    const RunStatus status = f.start(Tensor(1.0f)).wait();
    EXPECT_TRUE(!waits || status == RunStatus::stopped);
    barrier();
    EXPECT_TRUE(told.load()) << waits;
  }
}

TEST(Overlap, NothingEntersBehindALateOne) {
  RecordProperty("covers", "OVERLAP-04 OVERLAP-06");
  for (const bool waits : {true, false}) {
    Door door;
    std::atomic<int> entered = 0;
    std::atomic<bool> returned = false;
    auto f = jit([&](Tensor x) {
      const auto late = start_call(
          {.name = "late", .effect = Effect::ordered, .timeout = 20ms}, x.type(),
          [&](float v) {
            ++entered;
            door.pass();
            returned = true;
            return v;
          },
          x);
      static_cast<void>(start_call(
          {.name = "behind", .effect = Effect::ordered}, x.type(),
          [&](float v) {
            ++entered;
            return v;
          },
          x));
      return waits ? wait(late) : x + 1.0f;
    });
    expect_error<TimeoutError>(
        [&] {
          f(1.0f).item<float>();
          barrier();
        },
        {"late", "the limit of 20 ms"}, ErrorCode::timeout);
    barrier();
    EXPECT_EQ(entered.load(), 1) << waits;
    door.open();
    EXPECT_TRUE(wait_until([&] { return returned.load(); }));
  }
}

TEST(Overlap, NothingThatIsStartedLaterEntersBesideALateOne) {
  RecordProperty("covers", "OVERLAP-04 OVERLAP-06");
  Door door;
  std::atomic<int> entered = 0;
  std::atomic<bool> returned = false, told = false;
  auto f = jit([&](Tensor x) {
    const auto late = [&](const CallInfo& info, float v) {
      ++entered;
      while (!info.stop.stop_requested()) std::this_thread::yield();
      told = true;
      door.pass();
      returned = true;
      return v;
    };
    const auto behind = [&](float v) {
      ++entered;
      return v;
    };
    static_cast<void>(start_call({.name = "late", .effect = Effect::ordered, .timeout = 20ms},
                                 x.type(), late, x));
    x = call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          EXPECT_TRUE(wait_until([&] { return told.load(); }));
          return v;
        },
        x);
    const CallOptions ordered{.name = "behind", .effect = Effect::ordered};
    static_cast<void>(start_call(ordered, x.type(), behind, x));
    return wait(start_call(ordered, x.type(), behind, x));
  });
  expect_error<TimeoutError>(
      [&] {
        f(1.0f).item<float>();
        barrier();
      },
      {"late", "the limit of 20 ms"}, ErrorCode::timeout);
  EXPECT_EQ(entered.load(), 1);
  door.open();
  EXPECT_TRUE(wait_until([&] { return returned.load(); }));
}

TEST(Overlap, BadWaitsAreRefusedWhileTracing) {
  RecordProperty("covers", "OVERLAP-09");
  const auto begin = [](const Tensor& x) {
    return start_call(
        {.name = "once"}, x.type(), [](float v) { return v; }, x);
  };
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          const auto p = begin(x);
          return wait(p) + wait(p);
        })(1.0f);
      },
      {"'once'", "has been waited for before", "overlap_test_failures.cc"});
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          const auto p = begin(x);
          return fori_loop(
              0, 2, [&](Tensor, Tensor v) { return v + wait(p); }, x);
        })(1.0f);
      },
      {"'once'", "a loop that does not carry it", "overlap_test_failures.cc"});
  Pending<Tensor> leaked;
  jit([&](Tensor x) {
    leaked = begin(x);
    return x;
  })(1.0f);
  expect_error<TypeError>([&] { wait(leaked); }, {"'once'", "overlap_test_failures.cc"});
  expect_error<TypeError>([&] { jit([&](Tensor x) { return x + wait(leaked); })(1.0f); },
                          {"'once'", "of another program", "overlap_test_failures.cc"});
  const auto outside = begin(1.0f);
  expect_error<TypeError>([&] { jit([&](Tensor x) { return x + wait(outside); })(1.0f); },
                          {"'once'", "not of the program", "overlap_test_failures.cc"});
  expect_error<TypeError>([] { wait(Pending<Tensor>()); }, {"empty"});
  expect_error<TypeError>(
      [] {
        start_call(
            {.name = "g", .memory = Memory::device}, type<float>(),
            [](View<const float>, View<float>) {}, 1.0f);
      },
      {"start_call 'g'", "Memory::device"});
  EXPECT_EQ(wait(outside).item<float>(), 1);
}

TEST(Overlap, BadWaitsFailTheRun) {
  RecordProperty("covers", "OVERLAP-09");
  const auto begin = [](const Tensor& x) {
    return start_call(
        {.name = "once"}, x.type(), [](float v) { return v; }, x);
  };
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto again = jit([&](Tensor x) {
    return fori_loop(
               0, 3,
               [&](Tensor, Tensor v, Pending<Tensor> p) {
                 return Carry{v + wait(p), p};
               },
               Carry{x, begin(x)})
        .first;
  });
  expect_error<CallbackError>([&] { again(1.0f).item<float>(); },
                              {"'once'", "has been waited for before", "overlap_test_failures.cc"},
                              ErrorCode::failed_precondition);
  auto gives = jit([&](Tensor x) { return begin(x); });
  const Pending<Tensor> given = gives(1.0f);
  expect_error<TypeError>([&] { wait(given); },
                          {"'once'", "was not started by this run", "overlap_test_failures.cc"});
  auto takes = jit([&](Pending<Tensor> p) { return wait(p); });
  expect_error<CallbackError>([&] { takes(given).item<float>(); },
                              {"'once'", "was not started by this run", "overlap_test_failures.cc"},
                              ErrorCode::failed_precondition);
}

}  // namespace
}  // namespace postern
