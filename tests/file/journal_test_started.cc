// Going on from a recording that ended inside of started calls.
#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "file/file_test.h"

namespace postern::test {
namespace {

using namespace std::chrono_literals;

/// Programs of f32 that end in a cut, and are resumed by another recording. A killed process leaves
/// the file as it is in a moment: `kill` keeps that, and `resumed` puts it back.
class JournalStarted : public testing::Test {
 protected:
  const TemporaryFolder folder;
  const fs::path file = fs::path(folder.path()) / "run.rec";
  const std::string kept = folder.path() + "/kept";
  std::string left;
  std::atomic<bool> open = false, fails = true;
  std::mutex guard;
  std::vector<int> entered;  // what was entered, in that order

  void kill() { left = contents(file); }
  void enter(int who) {
    std::scoped_lock lock(guard);
    entered.push_back(who);
  }
  int count(int who) {
    std::scoped_lock lock(guard);
    return static_cast<int>(std::ranges::count(entered, who));
  }
  /// Calls that are made, in the recording, before the next.
  std::size_t recorded() { return read_recording(file).size(); }

  Pending<Tensor> begin(int who, const Tensor& x, Effect effect = Effect::unordered) {
    return start_call(
        {.name = "ahead", .effect = effect}, x.type(),
        [this, who](float v) {
          enter(who);
          return v * 10 + static_cast<float>(who);
        },
        x);
  }
  /// The same, which does not return while the door is shut.
  Pending<Tensor> begin_shut(int who, const Tensor& x, Effect effect = Effect::unordered) {
    return start_call(
        {.name = "shut", .effect = effect}, x.type(),
        [this, who](float v) {
          enter(who);
          EXPECT_TRUE(wait_until([&] { return open.load(); }));
          return v * 10 + static_cast<float>(who);
        },
        x);
  }
  /// Fails the first process when so much is recorded, after `then`.
  Tensor cut(
      const Tensor& x, std::size_t records, std::function<void()> then = [] {}) {
    return call(
        {.name = "cut", .effect = Effect::ordered}, x.type(),
        [this, records, then](float v) {
          if (!fails) return v;
          EXPECT_TRUE(wait_until([&] { return recorded() >= records; }));
          then();
          throw std::runtime_error("the world is shut");
        },
        x);
  }
  template <class F>
  void first_process(const F& f) {
    {
      const Taping recording = record(file, {.resumable = true});
      EXPECT_THROW(f(1.0f).block_until_ready(), CallbackError);
      barrier();
    }
    if (!left.empty()) put(file, left);
    fails = false;
    entered.clear();
  }
  template <class F>
  float resumed(const F& f, float x = 1.0f) {
    const Taping recording = record(file, {.resumable = true});
    resume<Tensor>(kept, recording);
    const float out = f(x).template item<float>();
    barrier();
    return out;
  }
  template <class F>
  void refused(const F& f, std::initializer_list<std::string_view> parts, float x = 1.0f) {
    expect_error<CallbackError>([&] { resumed(f, x); }, parts, ErrorCode::failed_precondition);
  }
};

TEST_F(JournalStarted, WhatHadReturnedIsGivenAndTheRestEntered) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    const auto done = begin(1, x), inside = begin_shut(2, x);
    const Tensor y = cut(x, 1, [&] {
      EXPECT_TRUE(wait_until([&] { return count(2) == 1; }));
      kill();
      open = true;
    });
    return wait(done) * 100.0f + wait(inside) + y;
  });
  first_process(f);
  EXPECT_EQ(resumed(f), 1113);
  EXPECT_EQ(entered, std::vector{2});
  entered.clear();
  EXPECT_EQ(resumed(f), 1113) << "another time";
  EXPECT_TRUE(entered.empty());
}

TEST_F(JournalStarted, AFailureLosesNoneThatReturned) {
  const auto f = jit([&](Tensor x) {
    const auto inside = begin_shut(2, x);
    const Tensor y = cut(x, 0, [&] {
      EXPECT_TRUE(wait_until([&] { return count(2) == 1; }));
      open = true;
    });
    return wait(inside) + y;
  });
  first_process(f);
  EXPECT_EQ(resumed(f), 13);
  EXPECT_TRUE(entered.empty()) << "it returned while the run ended";
}

TEST_F(JournalStarted, OrderedOnesKeepTheirs) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    const auto o1 = begin(1, x, Effect::ordered), o2 = begin_shut(2, x, Effect::ordered);
    const auto o3 = begin(3, x, Effect::ordered), u4 = begin(4, x), u5 = begin_shut(5, x);
    const Tensor y = cut(x, 2, [&] {
      EXPECT_TRUE(wait_until([&] { return count(2) + count(5) == 2; }));
      kill();
      open = true;
    });
    return wait(o1) + wait(o2) + wait(o3) + wait(u4) + wait(u5) + y;
  });
  first_process(f);
  EXPECT_EQ(resumed(f), 66);
  std::erase(entered, 5);
  EXPECT_EQ(entered, (std::vector{2, 3}));
}

TEST_F(JournalStarted, ALoopThatCarriesOneGoesOnAgainAndAgain) {
  RecordProperty("covers", "OVERLAP-13");
  int world = 0, shuts_at = 0, asked = 0;
  const auto fetch = [&](View<float> out) {
    ++asked;
    if (world + 1 == std::exchange(shuts_at, shuts_at == world + 1 ? 0 : shuts_at))
      throw std::runtime_error("the world is shut");
    out[0] = static_cast<float>(++world);
  };
  const auto registered = register_state("world", world);
  const auto ahead = [&] {
    return start_call({.name = "fetch", .effect = Effect::ordered}, type<float>({1}), fetch);
  };
  const auto step = [&](Tensor, Tensor v, Pending<Tensor> got) {
    const Tensor now = wait(got);
    const Pending<Tensor> next = ahead();
    return std::pair{v * 1.5f + now, next};
  };
  const auto f = jit([&](Tensor x) {
    const auto [v, last] = fori_loop(0, 11, step, std::pair{x, ahead()});
    return v * 1.5f + wait(last);
  });
  const Tensor x = tensor<float>({1});
  const float whole = f(x).item<float>();
  world = 0;
  for (const int number : {4, 5, 9}) {
    const Taping recording = record(file, {.resumable = true});
    resume<Tensor>(kept, recording);
    shuts_at = number;
    EXPECT_THROW(f(x).block_until_ready(), CallbackError) << number;
    world = 100;  // another process, which knows nothing
  }
  asked = 0;
  const Taping recording = record(file, {.resumable = true});
  resume<Tensor>(kept, recording);
  EXPECT_EQ(f(x).item<float>(), whole);
  EXPECT_EQ(asked, 4) << "what had returned was recorded";
  EXPECT_EQ(world, 12);
}

TEST_F(JournalStarted, OneThatNobodyWaitsForRunsOnce) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    begin(1, x);
    begin_shut(2, x);
    return cut(x, 1, [&] {
      EXPECT_TRUE(wait_until([&] { return count(2) == 1; }));
      kill();
      open = true;
    });
  });
  first_process(f);
  EXPECT_EQ(resumed(f), 1);
  EXPECT_EQ(entered, std::vector{2});
}

TEST_F(JournalStarted, ACheckpointWaitsForThem) {
  RecordProperty("covers", "OVERLAP-13");
  int logged = 0;
  const auto registered = register_state("logged", logged);
  const auto step = [&](const TrainingState& now) {
    start_call({.name = "log", .effect = Effect::ordered}, type<float>({}), [&] {
      ++logged;  // half of what it does
      std::this_thread::sleep_for(20ms);
      return 0.0f;
    });
    const TrainingState next{now.weights * 1.5f, now.step + 1};
    tap({.name = "state"}, next, listen::checkpoint(kept, {.every = 4, .async = false}));
    return next;
  };
  const auto train = jit([&](TrainingState s) {
    return while_loop([](const TrainingState& now) { return now.step < 6; }, step, s);
  });
  {
    const Taping recording = record(file, {.resumable = true});
    train(start).weights.block_until_ready();
    barrier();
  }
  EXPECT_EQ(logged, 6);
  logged = 100;
  const Taping recording = record(file, {.resumable = true});
  const auto from = resume(kept, start, recording);
  ASSERT_TRUE(from);
  EXPECT_EQ(from->step.item<std::int32_t>(), 5);
  EXPECT_EQ(logged, 5) << "the fifth had returned, the sixth had not begun";
  train(*from).weights.block_until_ready();
  barrier();
  EXPECT_EQ(logged, 6) << "as recorded";
}

TEST_F(JournalStarted, ACheckpointWaitsNoLongerThanTheirLimit) {
  const auto may_end = std::make_shared<std::atomic<bool>>(false);  // it outlives the test
  const auto f = jit([&](Tensor x) {
    start_call(
        {.name = "late", .timeout = 50ms}, x.type(),
        [may_end](float v) {
          wait_until([&] { return may_end->load(); });
          return v;
        },
        x);
    return tap({.name = "state"}, x, listen::checkpoint(kept, {.async = false}));
  });
  {
    const Taping recording = record(file, {.resumable = true});
    expect_error<TimeoutError>([&] { f(1.0f).block_until_ready(); }, {"late", "50 ms"},
                               ErrorCode::timeout);
  }
  *may_end = true;
  EXPECT_FALSE(resume<Tensor>(kept));
}

TEST_F(JournalStarted, OneThatEndedItsRunEndsItAgain) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    const auto ends = start_call(
        x.type(),
        [&](const CallInfo& info, float v) {
          enter(1);
          info.end_run();
          return v;
        },
        x);
    return wait(ends);
  });
  first_process(f);
  expect_error<CallbackError>([&] { resumed(f); }, {"ended early"}, ErrorCode::cancelled);
  EXPECT_TRUE(entered.empty());
}

TEST_F(JournalStarted, OneThatWasToldToStopIsEnteredAgain) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    return wait(start_call(
        x.type(),
        [&](const CallInfo& info, float v) {
          enter(1);
          if (!fails) return v;
          EXPECT_TRUE(wait_until([&] { return info.stop.stop_requested(); }));
          return -1.0f;  // what nobody must be given
        },
        x));
  });
  {
    const Taping recording = record(file, {.resumable = true});
    auto run = f.start(Tensor(1.0f));
    ASSERT_TRUE(wait_until([&] { return count(1) == 1; }));
    run.cancel();
    EXPECT_THROW(run.wait(), CallbackError);
    barrier();
  }
  fails = false;
  EXPECT_EQ(resumed(f), 1);
  EXPECT_EQ(count(1), 2);
}

TEST_F(JournalStarted, OtherOperandsAreNamed) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    const auto done = begin(1, x);
    return wait(done) + cut(x, 1);
  });
  first_process(f);
  refused(f, {"ahead", "call 0 of run 0", "other operands"}, 2.0f);
  EXPECT_EQ(resumed(f), 12);
  EXPECT_TRUE(entered.empty());
}

TEST_F(JournalStarted, WhatCannotKeepItsOrderIsRefused) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = jit([&](Tensor x) {
    const auto broken = start_call(
        {.name = "broken", .effect = Effect::ordered}, x.type(),
        [&](float v) {
          if (fails) throw std::runtime_error("no");
          return v;
        },
        x);
    const auto behind = begin(2, x, Effect::ordered);
    const Tensor first = wait(behind);  // before a failure stops it
    return first + wait(broken);
  });
  first_process(f);
  refused(f, {"broken", "ahead", "order"});
  EXPECT_TRUE(entered.empty());
}

TEST_F(JournalStarted, WhatMayHaveChangedStatesInPartIsRefused) {
  RecordProperty("covers", "OVERLAP-13");
  std::atomic<int> total = 0;
  const auto registered = register_state(
      "total", [&] { return std::to_string(total.load()); },
      [&](std::string_view text) { total = std::stoi(std::string(text)); });
  const auto f = jit([&](Tensor x) {
    const auto inside = start_call(
        {.name = "adds"}, x.type(),
        [&](float v) {
          ++total;
          enter(1);
          EXPECT_TRUE(wait_until([&] { return open.load(); }));
          return v;
        },
        x);
    const Tensor beside = call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          EXPECT_TRUE(wait_until([&] { return !fails || count(1) == 1; }));
          return v;
        },
        x);
    return wait(inside) + cut(beside, 1, [&] {
             kill();
             open = true;
           });
  });
  first_process(f);
  refused(f, {"adds", "call 0 of run 0", "registered states", "total"});
  EXPECT_TRUE(entered.empty());
}

TEST_F(JournalStarted, StatesAreThoseOfTheLastCalls) {
  RecordProperty("covers", "OVERLAP-13");
  int first = 0, second = 0;
  const auto one = register_state("first", first);
  const auto two = register_state("second", second);
  const auto f = jit([&](Tensor x) {
    const auto late = start_call(
        {.name = "late"}, x.type(),
        [&](float v) {
          EXPECT_TRUE(wait_until([&] { return recorded() >= 1; }));
          return v + static_cast<float>(++second);
        },
        x);
    const Tensor y = call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) { return v + static_cast<float>(++first); }, x);
    return cut(wait(late) + y, 2);
  });
  first_process(f);
  first = second = 100;
  EXPECT_EQ(resumed(f), 4);
  EXPECT_EQ(std::pair(first, second), std::pair(1, 1));
}

/// Else its states would be half those of the call that was cut.
TEST_F(JournalStarted, OneThatReturnsInsideOfACallIsRecordedWithIt) {
  RecordProperty("covers", "OVERLAP-13");
  int first = 0, second = 0;
  const auto one = register_state("first", first);
  const auto two = register_state("second", second);
  for (const bool cuts : {true, false}) {
    std::atomic<bool> begun = false;
    fails = true;
    first = second = 0;
    const auto f = jit([&](Tensor x) {
      const auto late = start_call(
          {.name = "late"}, x.type(),
          [&](float v) {
            EXPECT_TRUE(wait_until([&] { return !fails || begun; }));
            enter(1);
            return v + static_cast<float>(++second);
          },
          x);
      const Tensor y = call(
          {.effect = Effect::ordered}, x.type(),
          [&](float v) {
            ++first;
            begun = true;
            EXPECT_TRUE(wait_until([&] { return !fails || recorded() == 1; }));
            if (fails && cuts) throw std::runtime_error("the world is shut");
            return v + static_cast<float>(first);
          },
          x);
      return wait(late) + cut(y, 2);
    });
    first_process(f);
    first = second = 0;
    EXPECT_EQ(resumed(f), 4);
    EXPECT_EQ(std::pair(first, second), std::pair(1, 1));
    EXPECT_EQ(count(1), cuts ? 1 : 0);
    fs::remove(file);
  }
}

TEST_F(JournalStarted, ElementsOfABatchKeepTheirOwn) {
  RecordProperty("covers", "OVERLAP-13");
  for (const VmapMethod method : {VmapMethod::sequential, VmapMethod::parallel}) {
    fails = true;
    const auto f = jit([&](Tensor x) {
      const auto one = [&](Tensor v) {
        return wait(start_call(
            {.name = "element", .vmap = method}, v.type(),
            [&](float w) {
              enter(static_cast<int>(w));
              return w * 10;
            },
            v));
      };
      return cut(sum(vmap(one)(x + iota<float>(3))), 3);
    });
    first_process(f);
    EXPECT_EQ(resumed(f), 60);
    EXPECT_TRUE(entered.empty());
    fs::remove(file);
  }
}

TEST_F(JournalStarted, OutsideOfProgramsToo) {
  RecordProperty("covers", "OVERLAP-13");
  const auto f = [&](float v) {
    const Tensor x(v);
    const auto done = begin(1, x), inside = begin_shut(2, x);
    const Tensor y = cut(x, 1, [&] {
      EXPECT_TRUE(wait_until([&] { return count(2) == 1; }));
      kill();
      open = true;
    });
    return wait(done) * 100.0f + wait(inside) + y;
  };
  first_process(f);
  EXPECT_EQ(resumed(f), 1113);
  EXPECT_EQ(entered, std::vector{2});
}

}  // namespace
}  // namespace postern::test
