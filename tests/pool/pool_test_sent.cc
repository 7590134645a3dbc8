// Pools of which some elements are sent and the first that are ready are received; steps that
// overlap.
#include "core/mutex.h"
#include "pool_test.h"

namespace postern::test {
namespace {

using Ints = std::vector<std::int32_t>;

Tensor ints(Ints values) { return tensor(std::move(values)); }
Ints of(const Tensor& x) { return x.to_vector<std::int32_t>(); }

TEST(Pool, AStepThatIsStartedGivesWhatAStepGives) {
  const Pool<Walk> pool(5, {.kept = false}), other(5, {.kept = false});
  const auto run = [](const Pool<Walk>& p, bool overlaps) {
    return jit([&p, overlaps](Tensor actions) {
      p.reset();
      if (!overlaps) return std::pair{p.step(actions), tanh(actions)};
      const auto pending = p.start_step(actions);
      const Tensor meanwhile = tanh(actions);
      return std::pair{wait(pending), meanwhile};
    });
  };
  const Tensor actions = full(type<float>({5, 1}), 0.25f);
  const auto whole = leaves(run(pool, false)(actions)), parts = leaves(run(other, true)(actions));
  for (std::size_t i = 0; i < whole.size(); ++i)
    EXPECT_TRUE(all(whole[i] == parts[i]).item<bool>());
}

TEST(Pool, AStepThatIsStartedRunsBesideTheProgram) {
  std::atomic<bool> passed{false}, in_time{false};
  const auto pool = counters(2, [&](std::int64_t, std::int32_t) {
    in_time = wait_until([&] { return passed.load(); });
    return Stepped{};
  });
  pool.reset();
  const auto f = jit([&](Tensor x) {
    const auto pending = pool.start_step(x);
    call({.effect = Effect::unordered}, std::tuple<>(), [&] { passed = true; });
    return wait(pending).observations;
  });
  EXPECT_EQ(of(f(ints({1, 2}))), (Ints{1, 1}));
  EXPECT_TRUE(in_time);
}

TEST(Pool, TheFirstThatAreReadyAreReceived) {
  std::atomic<bool> held{true};
  const auto pool = counters(4,
                             [&](std::int64_t e, std::int32_t action) {
                               if (e == 1) wait_until([&] { return !held; });
                               return Stepped{.reward = static_cast<double>(action)};
                             },
                             {.threads = 2, .kept = false});
  pool.reset();
  const auto first = jit([&](Tensor elements, Tensor actions) {
    pool.send(elements, actions);
    return pool.receive(3);
  });
  const auto [elements, t] = first(ints({2, 1, 3, 0}), ints({12, 11, 13, 10}));
  EXPECT_EQ(of(elements), (Ints{0, 2, 3}));
  EXPECT_EQ(t.rewards.to_vector<float>(), (std::vector<float>{10, 12, 13}));
  EXPECT_EQ(of(t.observations), (Ints{1, 1, 1}));
  held = false;
  const Arrived last = jit([&] { return pool.receive(1); })();  // in another run
  EXPECT_EQ(of(last.elements), (Ints{1}));
  EXPECT_EQ(last.transition.rewards.to_vector<float>(), (std::vector<float>{11}));
}

TEST(Pool, ALoopReceivesAndSendsAgain) {
  for (const std::int64_t threads : {1, 2}) {
    const auto pool = counters(8, {}, {.threads = threads, .kept = false});
    pool.reset();
    const auto roll = jit([&](Tensor steps) {
      pool.send(iota<std::int32_t>(8), full(type<std::int32_t>({8}), 1));
      const Tensor total = fori_loop(
          0, steps,
          [&](Tensor, Tensor sum_of) {
            const Arrived now = pool.receive(3);
            pool.send(now.elements, full(type<std::int32_t>({3}), 1));
            return sum_of + sum(now.transition.rewards);
          },
          0.0f);
      return std::pair{total, pool.receive(8)};
    });
    const auto [total, end] = roll(500);
    EXPECT_EQ(total.item<float>(), 1500);
    EXPECT_EQ(of(end.elements), (Ints{0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(sum(end.transition.observations).item<std::int32_t>(), 1508);
  }
}

TEST(Pool, WhatCannotBeSentOrReceivedIsRefused) {
  const auto pool = counters(4, {}, {.name = "four", .kept = false});
  pool.reset();
  pool.send(ints({1, 2}), ints({0, 0}));
  const auto fails = [&](auto act, std::initializer_list<std::string_view> parts) {
    expect_error<CallbackError>([&] { jit(act)().block_until_ready(); }, parts);
  };
  const auto sending = [&](Ints elements) {
    return [&pool, elements] {
      pool.send(ints(elements), ints(Ints(elements.size())));
      return Tensor(1);
    };
  };
  fails(sending({0, 2}), {"pool \"four\": send: element 2 must have been received"});
  fails(sending({0, 3, 0}), {"element 0 must have been received"});
  fails(sending({0, 4}), {"element 4 is none of 4"});
  fails(sending({-1}), {"element -1 is none of 4"});
  fails([&] { return pool.receive(3).elements; }, {"3 elements were asked for, 2 are under way"});
  fails(
      [&] {
        return pool.step(ints({1, 1, 1, 1})).observations;
      },
      {"2 were sent and not received"});
  EXPECT_EQ(of(pool.receive(2).elements), (Ints{1, 2}));
  pool.send(ints({0}), ints({0}));
  pool.reset();  // forgets it
  fails([&] { return pool.receive(1).elements; }, {"0 are under way"});
}

TEST(Pool, AFailureOfOneThatWasSentIsItsReceivers) {
  const auto pool = counters(3, [](std::int64_t e, std::int32_t) {
    if (e == 1) throw std::range_error("fell");
    return Stepped{};
  });
  pool.reset();
  pool.send(ints({0, 1, 2}), ints({0, 0, 0}));
  const auto error = error_of<CallbackError>([&] { pool.receive(3).elements.block_until_ready(); });
  ASSERT_TRUE(error);
  const auto cause = cause_of<PoolError>(*error);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->element(), 1);
  EXPECT_EQ(of(pool.receive(2).elements), (Ints{0, 2}));
  pool.send(ints({1}), ints({0}));
  EXPECT_EQ(of(pool.receive(1).transition.observations), (Ints{0}));  // begins anew
}

std::atomic<int> ended{0}, under_a_lock{0};
struct Fell : std::exception {
  ~Fell() override {
    ++ended;
#ifndef NDEBUG
    under_a_lock += internal::locks_held > 0;
#endif
  }
};

TEST(Pool, AFailureThatIsForgottenEndsUnderNoLock) {
  std::atomic<int> stepped{0};
  const auto pool = counters(1, [&](std::int64_t, std::int32_t) -> Stepped {
    ++stepped;
    throw Fell();
  });
  for (int round = 1; round <= 2; ++round) {
    pool.reset();
    pool.send(ints({0}), ints({0}));
    EXPECT_TRUE(wait_until([&] { return stepped == round; }));
  }
  pool.reset();
  EXPECT_TRUE(wait_until([] { return ended == 2; }));
  EXPECT_EQ(under_a_lock, 0);
}

TEST(Pool, WhoWaitsForOneThatIsSlowIsWokenByTheRunsEnd) {
  std::atomic<bool> held{true};
  const auto pool = counters(2, [&](std::int64_t, std::int32_t) {
    wait_until([&] { return !held; });
    return Stepped{};
  });
  pool.reset();
  const auto f = jit([&](Tensor x) {
    pool.send(ints({0, 1}), x);
    return pool.receive(2).elements;
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THROW(f.run({.deadline = 50ms}, ints({1, 1})).block_until_ready(), TimeoutError);
  EXPECT_LT(seconds_since(begin), 10);
  held = false;
  EXPECT_EQ(of(pool.receive(2).elements), (Ints{0, 1}));
}

TEST(Pool, WhatIsSentLaterDoesNotWaitBehindABusyThread) {
  std::atomic<bool> held{true}, entered{false};
  const auto pool = counters(2,
                             [&](std::int64_t e, std::int32_t) {
                               if (e == 0) {
                                 entered = true;
                                 wait_until([&] { return !held; });
                               }
                               return Stepped{};
                             },
                             {.threads = 2, .kept = false});
  pool.reset();
  const auto send = jit([&](Tensor elements) {
    pool.send(elements, elements);
    return elements;
  });
  const auto receive = jit([&](Tensor x) { return std::pair{pool.receive(1).elements, x}; });
  send(ints({0})).block_until_ready();
  ASSERT_TRUE(wait_until([&] { return entered.load(); }));
  send(ints({1})).block_until_ready();
  EXPECT_EQ(of(receive(Tensor(0)).first), (Ints{1}));
  held = false;
  EXPECT_EQ(of(receive(Tensor(0)).first), (Ints{0}));
}

}  // namespace
}  // namespace postern::test
