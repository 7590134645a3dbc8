// Started calls: how they end early, what is left out then, and forms that meet them seldom.
#include <postern/record.h>
#include <postern/sharding.h>

#include <atomic>
#include <numeric>

#include "support.h"

namespace postern {
namespace {

using test::all_modes, test::expect_error, test::wait_until;
using namespace std::chrono_literals;
using Floats = std::vector<float>;
using Ints = std::vector<int>;

/// Starts a function that works until it is told to stop, and three more that are queued behind it.
struct Queue {
  std::atomic<bool> inside{false}, returned{false};
  std::atomic<int> entered{0};

  Tensor start(const Tensor& x, bool waits) {
    auto last = start_call(
        {.name = "first", .effect = Effect::ordered}, x.type(),
        [this](const CallInfo& info, float v) {
          inside = true;
          wait_until([&] { return info.stop.stop_requested(); });
          returned = true;
          return v;
        },
        x);
    for (int i = 0; i < 3; ++i)
      last = start_call(
          {.name = "behind", .effect = Effect::ordered}, x.type(),
          [this](float v) {
            ++entered;
            return v;
          },
          x);
    return waits ? wait(last) : x + 1.0f;
  }
  /// Late functions outlive their run.
  ~Queue() {
    EXPECT_TRUE(wait_until([&] { return returned || !inside; }));
  }
};

TEST(OverlapEnds, CancellingLeavesOutWhatIsQueued) {
  RecordProperty("covers", "OVERLAP-06");
  for (const bool waits : {true, false}) {
    Queue queue;
    const auto f = jit([&](Tensor x) { return queue.start(x, waits); });
    auto run = f.start(Tensor(1.0f));
    ASSERT_TRUE(wait_until([&] { return queue.inside.load(); }));
    run.cancel();
    try {
      run.wait();
      EXPECT_FALSE(waits);
    } catch (const CallbackError& e) {
      EXPECT_EQ(e.code(), ErrorCode::cancelled) << e.what();
    }
    barrier();
    EXPECT_TRUE(queue.returned) << "it was told, and waited for";
    EXPECT_EQ(queue.entered.load(), 0) << waits;
  }
}

TEST(OverlapEnds, ADeadlineLeavesOutWhatIsQueued) {
  RecordProperty("covers", "OVERLAP-06");
  for (const bool waits : {true, false}) {
    Queue queue;
    const auto f = jit([&](Tensor x) { return queue.start(x, waits); });
    auto run = f.start_with({.deadline = 300ms}, Tensor(1.0f));
    int told = 0;  // who waits, or else the barrier
    for (const bool at_the_barrier : {false, true}) {
      try {
        if (at_the_barrier)
          barrier();
        else
          run.wait();
      } catch (const TimeoutError& e) {
        ++told;
        EXPECT_TRUE(test::has(e.what(), "deadline")) << e.what();
      }
    }
    EXPECT_GE(told, 1);
    EXPECT_EQ(queue.entered.load(), 0) << waits;
    barrier();
  }
}

/// What starts a function beside the program.
using Starts = void (*)(const Tensor&, const Callee&);

TEST(OverlapEnds, ARunIsDoneWhenWhatItStartedHasReturned) {
  RecordProperty("covers", "OVERLAP-06");
  const Starts ways[] = {[](const Tensor& x, const Callee& fn) {
                           start_call({.effect = Effect::unordered}, std::tuple<>(), fn, x);
                         },
                         [](const Tensor& x, const Callee& fn) {
                           start_call({.effect = Effect::ordered}, std::tuple<>(), fn, x);
                         },
                         [](const Tensor& x, const Callee& fn) {
                           vmap([&](Tensor v) {
                             start_call({.effect = Effect::unordered}, std::tuple<>(), fn, v);
                             return v;
                           })(broadcast_to(x, {3}));
                         }};
  for (const Mode mode : all_modes)
    for (const Starts starts : ways)
      for (const bool same : {true, false}) {
        std::atomic<int> inside{0};
        std::atomic<bool> goes_on{false};
        const Callee beside([&](float) {
          ++inside;
          wait_until([&] { return goes_on.load(); });
          --inside;
        });
        const auto f = jit(
            [&](Tensor x) {
              starts(x, beside);
              return same ? x : x * 2.0f;
            },
            {.mode = mode});
        auto run = f.start(Tensor(1.0f));
        ASSERT_TRUE(wait_until([&] { return inside > 0; }));
        EXPECT_EQ(run.wait(20ms), RunStatus::running);
        EXPECT_EQ(run.status(), RunStatus::running);
        goes_on = true;
        EXPECT_EQ(run.wait(), RunStatus::done);
        EXPECT_EQ(inside, 0) << static_cast<int>(mode);
        EXPECT_EQ(run.result().item<float>(), same ? 1 : 2);
      }
}

TEST(OverlapEnds, AFailedRunEndsWhenWhatItStartedHasReturned) {
  for (const Mode mode : all_modes) {
    std::atomic<int> inside{0};
    const auto f = jit(
        [&](Tensor x) {
          start_call(
              {.effect = Effect::unordered}, std::tuple<>(),
              [&](const CallInfo& info, float) {
                ++inside;
                wait_until([&] { return info.stop.stop_requested(); });
                std::this_thread::sleep_for(20ms);
                --inside;
              },
              x);
          return call(
              {}, x.type(),
              [&](float) -> float {
                wait_until([&] { return inside > 0; });
                throw std::runtime_error("out of milk");
              },
              x);
        },
        {.mode = mode});
    auto run = f.start(Tensor(1.0f));
    expect_error<CallbackError>([&] { run.wait(); }, {"out of milk"});
    EXPECT_EQ(inside, 0) << static_cast<int>(mode);
  }
}

TEST(OverlapEnds, WhatIsLateAtTheDeadlineFailsTheRun) {
  for (const Mode mode : all_modes) {
    std::atomic<bool> returned{false};
    const auto f = jit(
        [&](Tensor x) {
          start_call(
              {.name = "late", .effect = Effect::unordered}, std::tuple<>(),
              [&](const CallInfo& info, float) {
                wait_until([&] { return info.stop.stop_requested(); });
                returned = true;
              },
              x);
          return x * 2.0f;
        },
        {.mode = mode});
    auto run = f.start_with({.deadline = 1s}, Tensor(1.0f));
    expect_error<TimeoutError>([&] { run.wait(); }, {"deadline"}, ErrorCode::timeout);
    EXPECT_EQ(run.status(), RunStatus::failed);
    EXPECT_TRUE(wait_until([&] { return returned.load(); }));
    barrier();
  }
}

TEST(OverlapEnds, WhoReturnsLateIsToldOfOnceASecond) {
  std::atomic<int> returned{0};
  const auto f = jit([&](Tensor x) {
    return call(
        {.name = "dawdler", .timeout = 1ms}, x.type(),
        [&](const CallInfo& info, float v) {
          wait_until([&] { return info.stop.stop_requested(); });
          ++returned;
          return v;
        },
        x);
  });
  testing::internal::CaptureStderr();
  const auto begin = std::chrono::steady_clock::now();
  constexpr int runs = 100;
  for (int i = 0; i < runs; ++i) EXPECT_THROW(f(Tensor(1.0f)).block_until_ready(), TimeoutError);
  EXPECT_TRUE(wait_until([&] { return returned == runs; }));
  const double seconds = test::seconds_since(begin);
  std::this_thread::sleep_for(1100ms);
  EXPECT_THROW(f(Tensor(1.0f)).block_until_ready(), TimeoutError);
  EXPECT_TRUE(wait_until([&] { return returned == runs + 1; }));
  std::this_thread::sleep_for(50ms);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LE(std::count(log.begin(), log.end(), '\n'), static_cast<int>(seconds) + 4) << log;
  EXPECT_TRUE(test::has(log, "dawdler") && test::has(log, "more of these)")) << log;
}

TEST(OverlapEnds, CancellingLeavesOutWhatFoundNoThread) {
  RecordProperty("covers", "OVERLAP-04 OVERLAP-06");
  constexpr int most = 64;
  std::atomic<int> entered = 0;
  const auto f = jit([&](Tensor x) {
    Pending<Tensor> last;
    for (int i = 0; i < most + 16; ++i)
      last = start_call(
          {.name = "one of many"}, x.type(),
          [&](const CallInfo& info, float v) {
            ++entered;
            wait_until([&] { return info.stop.stop_requested(); });
            return v;
          },
          x);
    return wait(last);
  });
  auto run = f.start(Tensor(1.0f));
  ASSERT_TRUE(wait_until([&] { return entered == most; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  barrier();
  EXPECT_EQ(entered.load(), most);
}

TEST(OverlapEnds, EachModeUnderVmapAndInBranches) {
  RecordProperty("covers", "OVERLAP-02 OVERLAP-07 OVERLAP-08");
  const Tensor xs = tensor<float>({1, 2, 3});
  for (const Mode mode : all_modes) {
    SCOPED_TRACE(static_cast<int>(mode));
    std::atomic<int> runs = 0;
    const auto times = [&](float factor, const Tensor& x) {
      return start_call(
          {.name = "times"}, type<float>(),
          [&runs, factor](float v) {
            ++runs;
            return v * factor;
          },
          x);
    };
    const auto chosen = [&](Tensor x) {
      return wait(cond(
          x > 1.0f, [&](Tensor v) { return times(2, v); }, [&](Tensor v) { return times(3, v); },
          x));
    };
    const auto taken = [&](Tensor x) {
      const auto pending = times(2, x);
      return cond(
          x > 1.0f, [&](Tensor v) { return wait(pending) + v; }, [](Tensor v) { return v; }, x);
    };
    auto both = jit([&](Tensor x) { return std::pair{chosen(x), taken(x)}; }, {.mode = mode});
    const auto [a, b] = both(2.0f);
    EXPECT_EQ(a.item<float>(), 4);
    EXPECT_EQ(b.item<float>(), 6);
    EXPECT_EQ(both(1.0f).first.item<float>(), 3);
    barrier();
    EXPECT_EQ(runs.exchange(0), 2 * 2);

    const auto alone = [&](Tensor x) { return wait(times(2, x)); };
    EXPECT_EQ(jit(vmap(alone), {.mode = mode})(xs).to_vector<float>(), (Floats{2, 4, 6}));
    EXPECT_EQ(jit(vmap(chosen), {.mode = mode})(xs).to_vector<float>(), (Floats{3, 4, 6}));
    EXPECT_EQ(jit(vmap(taken), {.mode = mode})(xs).to_vector<float>(), (Floats{1, 6, 9}));
    barrier();
    EXPECT_EQ(runs.load(), 3 * 3) << "one for each element, in the branch that it takes";
  }
}

TEST(OverlapEnds, AFailureIsRecordedAndReplayed) {
  RecordProperty("covers", "OVERLAP-05 OVERLAP-11");
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/recording";
  std::atomic<int> entered = 0;
  const auto begin = [&](const Tensor& x) {
    return start_call(
        {.name = "broken"}, x.type(),
        [&](float) -> float {
          ++entered;
          throw std::runtime_error("no data");
        },
        x);
  };
  const auto seen = jit([&](Tensor x) { return wait(begin(x)); });
  const auto unseen = jit([&](Tensor x) {
    static_cast<void>(begin(x));
    return x + 1.0f;
  });
  const auto fails = [&] {
    expect_error<CallbackError>([&] { seen(1.0f).item<float>(); }, {"call 'broken' at", "no data"},
                                ErrorCode::threw);
    EXPECT_EQ(unseen(1.0f).item<float>(), 2);
  };
  {
    const Taping recording = record(file);
    fails();
    expect_error<CallbackError>([] { barrier(); }, {"broken", "no data"}, ErrorCode::threw);
  }
  EXPECT_EQ(entered.load(), 2);
  {
    const Taping replaying = replay(file);
    fails();
    barrier();  // nothing was entered that could fail
  }
  EXPECT_EQ(entered.load(), 2);
  fails();
  EXPECT_THROW(barrier(), CallbackError);
  EXPECT_EQ(entered.load(), 4) << "without a recording it is entered again";
}

TEST(OverlapEnds, ElementsUnderAByte) {
  RecordProperty("covers", "OVERLAP-02 TYPE-03");
  Ints all(15), turned;
  std::iota(all.begin(), all.end(), -8);
  for (const int v : all) turned.push_back(~v);
  const Tensor x = convert(reshape(tensor(all), {3, 5}), DType::s4);
  const auto turn = [](const Tensor& v) {
    const auto started = start_call(
        {.name = "turn"}, v.type(),
        [](AnyView in, AnyMutableView out) {
          for (std::int64_t i = 0; i < in.size(); ++i) out.data()[i] = ~in.data()[i];
        },
        v);
    return convert(wait(started), DType::s32);
  };
  for (const Mode mode : all_modes) {
    EXPECT_EQ(jit(turn, {.mode = mode})(x).to_vector<int>(), turned) << static_cast<int>(mode);
    // A handle stands for five of them, which end inside a byte of what XLA packs.
    EXPECT_EQ(jit(vmap(turn), {.mode = mode})(x).to_vector<int>(), turned)
        << static_cast<int>(mode);
  }
}

TEST(OverlapEnds, ThePartitionedOptionIsRefused) {
  RecordProperty("covers", "OVERLAP-09");
  const Sharding parts(Mesh({{"x", 1}}), P("x"));
  expect_error<TypeError>(
      [&] {
        start_call(
            {.name = "g", .partitioned = parts}, type<float>({2}),
            [](View<const float>, View<float>) {}, ones(type<float>({2})));
      },
      {"start_call 'g'", "partitioned", "shard_map"});
}

}  // namespace
}  // namespace postern
