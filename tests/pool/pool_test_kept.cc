// Pools in checkpoints and recordings.
#include "pool_test.h"

namespace postern::test {
namespace {

struct Rollout {
  Tensor seen, total, step;
};

/// Steps until `steps`, with a checkpoint of each fourth.
Rollout roll(const Pool<Walk>& pool, const Rollout& from, int steps, const std::string& folder) {
  const auto keep = listen::checkpoint(folder, {.every = 4, .async = false});
  const auto step = [&](Rollout now) {
    const Transition t = pool.step(full(type<float>({pool.size(), 1}), 0.5f));
    const Rollout next{t.observations, now.total + t.rewards, now.step + 1};
    tap({.name = "state"}, next, keep);
    return next;
  };
  return jit([&](Rollout r) {
    return while_loop([&](Rollout now) { return now.step < steps; }, step, r);
  })(from);
}

Rollout beginning(const Pool<Walk>& pool) {
  return {pool.reset(), zeros(type<float>({3})), Tensor(0)};
}

TEST(Pool, CheckpointsKeepItToTheBit) {
  RecordProperty("covers", "POOL-06");
  const TemporaryFolder folder;
  Rollout end;
  {
    const Pool<Walk> pool(3, {.seed = 5});
    end = roll(pool, beginning(pool), 14, folder.path());
  }
  // In another process, of another number of threads.
  const Pool<Walk> pool(3, {.threads = 1, .seed = 5});
  const auto kept = resume<Rollout>(folder.path());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->step.item<std::int32_t>(), 13);
  const Rollout again = roll(pool, *kept, 14, folder.path() + "/more");
  EXPECT_EQ(again.seen.to_vector<float>(), end.seen.to_vector<float>());
  EXPECT_EQ(again.total.to_vector<float>(), end.total.to_vector<float>());
}

TEST(Pool, ACheckpointOfOtherElementsIsRefused) {
  const TemporaryFolder folder;
  {
    const Pool<Walk> pool(3);
    roll(pool, beginning(pool), 2, folder.path());
  }
  const Pool<Walk> pool(4);
  expect_error<Error>([&] { resume<Rollout>(folder.path()); },
                      {"pool \"pool\": the checkpoint has 3 elements, the pool 4"},
                      ErrorCode::failed_precondition);
}

TEST(Pool, StatesThatAreDamagedAreRefused) {
  const TemporaryFolder folder;
  std::string whole;
  {
    const Pool<Walk> pool(3);
    pool.reset();
    auto kept = register_state(
        "other", [] { return std::string(); }, [](std::string_view) {});
    roll(pool, beginning(pool), 1, folder.path() + "/whole");
  }
  for (const std::string text : {"", "pool", "pool 3", "pool 3\n1 2 0 0 0 0\n99999999999999\n",
                                 "pool 3\n1 2 0 0 0 0\n0\n2\nab1 2 0 0 0 0\n0\n"}) {
    const TemporaryFolder damaged;
    {
      const auto state = register_state(
          "pool", [text] { return text; }, [](std::string_view) {});
      const auto keep = listen::checkpoint(damaged.path(), {.async = false});
      jit([&](Tensor x) { return tap({.name = "state"}, x, keep); })(Tensor(1.0f))
          .block_until_ready();
      barrier();
    }
    const Pool<Walk> pool(3);
    expect_error<Error>([&] { resume<Tensor>(damaged.path()); }, {"pool"}, ErrorCode::data_loss);
  }
}

TEST(Pool, SimulatorsThatCannotBeSavedAreNotLeftOutSilently) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const auto f = jit([&](Tensor x) { return tap({.name = "state"}, x, keep); });
  {
    const auto pool = counters(2, {}, {.name = "counters"});
    expect_error<CallbackError>([&] { f(Tensor(1.0f)).block_until_ready(); },
                                {"pool \"counters\"", "save() and load()"});
    expect_error<Error>([] { counters(1, {}, {.name = "counters"}); }, {"counters"},
                        ErrorCode::already_exists);
  }
  const auto pool = counters(2, {});
  f(Tensor(1.0f)).block_until_ready();
}

TEST(Pool, WhatWasSentIsKeptToo) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const auto send = jit([&](Tensor actions) { return tap({.name = "state"}, actions, keep); });
  const Tensor actions = full(type<float>({3, 1}), 0.5f);
  std::vector<float> expected;
  {
    const Pool<Walk> pool(3, {.threads = 1, .seed = 2});
    pool.reset();
    pool.send(iota<std::int32_t>(3), actions);
    send(actions).block_until_ready();
    expected = pool.receive(3).transition.observations.to_vector<float>();
  }
  const Pool<Walk> pool(3, {.threads = 1, .seed = 9});
  ASSERT_TRUE(resume<Tensor>(folder.path()));
  EXPECT_EQ(pool.receive(3).transition.observations.to_vector<float>(), expected);
}

/// Written to a stream and read back.
struct Streamed : Walk {
  std::string save() const = delete;
  void load(std::string_view) = delete;
  Stepped step(View<const float> a, View<float> o) { return Walk::step(a, o); }
  friend std::ostream& operator<<(std::ostream& out, const Streamed& s) {
    return out << s.state << ' ' << s.x;
  }
  friend std::istream& operator>>(std::istream& in, Streamed& s) { return in >> s.state >> s.x; }
};

TEST(Pool, StreamsKeepSimulatorsToo) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const Tensor actions = full(type<float>({2, 1}), 0.5f);
  std::vector<float> expected;
  {
    const Pool<Streamed> pool(2);
    pool.reset();
    pool.step(actions);
    jit([&](Tensor x) { return tap({.name = "state"}, x, keep); })(actions).block_until_ready();
    expected = pool.step(actions).observations.to_vector<float>();
  }
  const Pool<Streamed> pool(2);
  ASSERT_TRUE(resume<Tensor>(folder.path()));
  EXPECT_EQ(pool.step(actions).observations.to_vector<float>(), expected);
}

struct Endless : Streamed {
  Stepped step(View<const float> a, View<float> o) {
    Stepped out = Walk::step(a, o);
    out.reward = -std::numeric_limits<double>::infinity();
    return out;
  }
};

TEST(Pool, RewardsThatAreNoNumbersAreKept) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const Tensor actions = full(type<float>({2, 1}), 0.5f);
  {
    const Pool<Endless> pool(2);
    pool.reset();
    pool.send(iota<std::int32_t>(2), actions);
    jit([&](Tensor x) { return tap({.name = "state"}, x, keep); })(actions).block_until_ready();
  }
  const Pool<Endless> pool(2);
  ASSERT_TRUE(resume<Tensor>(folder.path()));
  const std::vector<float> rewards = pool.receive(2).transition.rewards.to_vector<float>();
  EXPECT_EQ(rewards, std::vector<float>(2, -std::numeric_limits<float>::infinity()));
}

TEST(Pool, RecordingsGiveWhatItGave) {
  RecordProperty("covers", "POOL-07");
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/pool.rec";
  std::atomic<int> entered{0};
  const auto pool = counters(4, [&](std::int64_t, std::int32_t action) {
    ++entered;
    return Stepped{.reward = static_cast<double>(action) + entered};
  });
  const auto f = jit([&](Tensor x) {
    pool.reset();
    const Transition t = pool.step(x);
    pool.send(iota<std::int32_t>(4), x);
    return std::pair{t.rewards, pool.receive(4).transition.rewards};
  });
  const Tensor x = tensor<std::int32_t>({1, 2, 3, 4});
  std::vector<float> step, arrived;
  {
    const Taping recording = record(file);
    const auto [a, b] = f(x);
    step = a.to_vector<float>();
    arrived = b.to_vector<float>();
  }
  const int then = entered;
  const Taping replaying = replay(file);
  const auto [a, b] = f(x);
  EXPECT_EQ(a.to_vector<float>(), step);
  EXPECT_EQ(b.to_vector<float>(), arrived);
  EXPECT_EQ(entered, then);
}

TEST(Pool, AStepThatWasCancelledIsNotAWholeOneInARecording) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/pool.rec", kept = folder.path() + "/none";
  std::atomic<bool> held{true}, entered{false};
  const auto pool = counters(4,
                             [&](std::int64_t e, std::int32_t action) {
                               if (e == 1 && action == 3) {
                                 entered = true;
                                 wait_until([&] { return !held; });
                               }
                               return Stepped{.reward = static_cast<double>(action)};
                             },
                             {.threads = 1, .kept = false});
  const auto f = jit([&](Tensor x) {
    pool.reset();
    const Tensor first = pool.step(x).rewards;
    return std::pair{first, pool.step(x + 1).rewards};
  });
  const Tensor x = tensor<std::int32_t>({2, 2, 2, 2});
  {
    const Taping recording = record(file, {.resumable = true});
    auto run = f.start(x);
    ASSERT_TRUE(wait_until([&] { return entered.load(); }));
    run.cancel();
    held = false;
    expect_error<CallbackError>([&] { run.wait(); }, {}, ErrorCode::cancelled);
    barrier();
  }
  const Taping recording = record(file, {.resumable = true});
  EXPECT_FALSE(resume<Tensor>(kept, recording));
  const auto [first, second] = f(x);
  EXPECT_EQ(first.to_vector<float>(), (std::vector<float>{2, 2, 2, 2}));
  EXPECT_EQ(second.to_vector<float>(), (std::vector<float>{3, 3, 3, 3}));
}

}  // namespace
}  // namespace postern::test
