// Pools of simulators: steps, ends, order, threads, failures, stops.
#include "pool_test.h"

#include <mutex>
#include <set>

#include "pool/deal.h"
#include "resident.h"

namespace postern::test {
using internal::pools::Deal;
namespace {

using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;
using Bools = std::vector<bool>;

const SimulatorOptions plain{.kept = false};

/// All that a program sees of so many steps, as one list.
Floats seen_of(const Pool<Walk>& pool, std::int64_t steps) {
  const auto roll = jit([&] {
    const auto step = [&](Tensor last) {
      const Tensor moves = 0.4f + 0.01f * slice(last, {0, 0}, {pool.size(), 1});
      const Transition t = pool.step(moves);
      return std::pair{t.observations, t};
    };
    return scan(step, pool.reset(), {.length = steps}).second;
  });
  Floats all;
  for (const Tensor& leaf : leaves(roll()))
    for (const float x : convert(leaf, DType::f32).to_vector<float>()) all.push_back(x);
  return all;
}

TEST(Pool, StepsItsElementsAndBeginsThoseThatHaveEnded) {
  RecordProperty("covers", "POOL-01");
  for (const Mode mode : all_modes) {
    const auto pool =
        counters(3,
                 [](std::int64_t e, std::int32_t action) {
                   return Stepped{.reward = 10.0 * action, .terminated = e == 1 && action > 2};
                 },
                 {.max_steps = 3, .rewards = DType::f64, .kept = false});
    const auto step = jit([&](Tensor actions) { return pool.step(actions); }, {.mode = mode});
    const auto expect = [&](const Ints& actions, const Ints& seen, const std::vector<double>& gains,
                            const Bools& ends, const Bools& cuts) {
      const auto [observations, rewards, terminated, truncated] = step(tensor(actions));
      EXPECT_EQ(observations.to_vector<std::int32_t>(), seen);
      EXPECT_EQ(rewards.to_vector<double>(), gains);
      EXPECT_EQ(terminated.to_vector<bool>(), ends);
      EXPECT_EQ(truncated.to_vector<bool>(), cuts);
    };
    const Bools none(3);
    expect({9, 9, 9}, {0, 0, 0}, {0, 0, 0}, none, none);  // begins all
    expect({1, 2, 3}, {1, 1, 1}, {10, 20, 30}, none, none);
    expect({1, 3, 3}, {2, 2, 2}, {10, 30, 30}, {false, true, false}, none);
    expect({1, 3, 3}, {3, 0, 3}, {10, 0, 30}, none, {true, false, true});
    expect({1, 2, 3}, {0, 1, 0}, {0, 20, 0}, none, none);
  }
}

TEST(Pool, ResetBeginsAllAnewAndWorksOutsideOfPrograms) {
  const auto pool = counters(2, {});
  pool.step(tensor<std::int32_t>({1, 2}));
  const Transition t = pool.step(tensor<std::int32_t>({3, 4}));
  EXPECT_EQ(t.rewards.to_vector<float>(), (Floats{3, 4}));
  EXPECT_EQ(pool[1].steps, 1);
  EXPECT_EQ(pool.reset().to_vector<std::int32_t>(), (Ints{0, 0}));
  EXPECT_EQ(pool.step(tensor<std::int32_t>({3, 4})).observations.to_vector<std::int32_t>(),
            (Ints{1, 1}));
}

TEST(Pool, AnyNumberOfThreadsGivesTheSameBits) {
  RecordProperty("covers", "POOL-02");
  const Floats one = seen_of(Pool<Walk>(7, {.threads = 1, .seed = 3, .kept = false}), 200);
  EXPECT_EQ(one.size(), 7u * 200 * 5);
  for (const std::int64_t threads : {2, 3, 16})
    EXPECT_EQ(seen_of(Pool<Walk>(7, {.threads = threads, .seed = 3, .kept = false}), 200), one);
  EXPECT_NE(seen_of(Pool<Walk>(7, {.threads = 1, .seed = 4, .kept = false}), 200), one);
}

TEST(Pool, SeedsAreOfElementAndEpisode) {
  RecordProperty("covers", "POOL-01");
  const Pool<Walk> pool(16, plain), again(16, plain);
  std::set<float> firsts;
  for (int episode = 0; episode < 3; ++episode) {
    const Floats seen = pool.reset().to_vector<float>();
    EXPECT_EQ(again.reset().to_vector<float>(), seen);
    for (std::size_t e = 0; e < 16; ++e) firsts.insert(seen[2 * e]);
  }
  EXPECT_EQ(firsts.size(), 48u);
}

TEST(Pool, ASlowElementHoldsNoOtherUp) {
  RecordProperty("covers", "POOL-03");
  std::atomic<int> others{0};
  std::atomic<bool> met{true};
  const auto pool = counters(8,
                             [&](std::int64_t e, std::int32_t) {
                               if (e == 0)
                                 met = wait_until([&] { return others == 7; });
                               else
                                 ++others;
                               return Stepped{};
                             },
                             {.threads = 2, .kept = false});
  pool.reset();
  for (const int action : {0, 1})
    pool.step(full(type<std::int32_t>({8}), action)).rewards.block_until_ready();
  EXPECT_TRUE(met) << "an element waited behind one that was slow";
}

TEST(Pool, DealsEachNumberOnce) {
  for (const std::int64_t threads : {1, 2, 5}) {
    Deal deal(threads);
    for (const std::int64_t n : {0, 1, 4, 1000}) {
      std::vector<std::atomic<int>> taken(static_cast<std::size_t>(n));
      deal.begin(n);
      std::vector<std::jthread> all;
      for (std::int64_t t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
          deal.work(t, [&](std::int64_t i) { ++taken[static_cast<std::size_t>(i)]; });
        });
      all.clear();
      for (const auto& count : taken) EXPECT_EQ(count, 1);
    }
  }
}

TEST(Pool, AFailureNamesItsElementAndTheNextRunGoesOn) {
  RecordProperty("covers", "POOL-04");
  for (const std::int64_t threads : {1, 2}) {
    std::atomic<bool> broken{true};
    const auto pool = counters(32,
                               [&](std::int64_t e, std::int32_t action) {
                                 if (broken && action == 3 && (e == 20 || e == 9))
                                   throw std::range_error("fell");
                                 return Stepped{};
                               },
                               {.name = "legs", .threads = threads, .kept = false});
    const auto roll = jit([&](Tensor steps) {
      const Tensor first = pool.reset();
      return fori_loop(
          0, steps, [&](Tensor i, Tensor) { return pool.step(broadcast_to(i, {32})).observations; },
          first);
    });
    const auto error = error_of<CallbackError>([&] { roll(10).block_until_ready(); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(has(error->what(), "pool \"legs\": element 9: fell (and 1 more)")) << error->what();
    EXPECT_EQ(error->site().name, "legs");
    const auto cause = cause_of<PoolError>(*error);
    ASSERT_TRUE(cause);
    EXPECT_EQ(cause->element(), 9);
    EXPECT_THROW(std::rethrow_exception(cause->cause()), std::range_error);
    // The others have taken the step, those two begin anew.
    broken = false;
    Ints then(32, 5);
    then[9] = then[20] = 0;
    EXPECT_EQ(pool.step(zeros(type<std::int32_t>({32}))).observations.to_vector<std::int32_t>(),
              then);
    EXPECT_EQ(roll(10).to_vector<std::int32_t>(), Ints(32, 10));
  }
}

TEST(Pool, ARunThatIsStoppedLeavesOutWhatHasNotBegun) {
  RecordProperty("covers", "POOL-05");
  std::atomic<std::int64_t> slow{-1};
  std::atomic<int> entered{0};
  const auto pool = counters(4,
                             [&](std::int64_t e, std::int32_t action) {
                               ++entered;
                               if (e == slow && action == 5) std::this_thread::sleep_for(1500ms);
                               return Stepped{};
                             },
                             {.threads = 1, .kept = false});
  const auto roll = jit([&](Tensor steps) {
    const Tensor first = pool.reset();
    return fori_loop(
        0, steps,
        [&](Tensor i, Tensor) { return pool.step(broadcast_to(i % 1000, {4})).observations; },
        first);
  });
  slow = 2;
  const auto late = [&] { roll.run({.deadline = 1s}, Tensor(1000)).block_until_ready(); };
  EXPECT_THROW(late(), TimeoutError);
  EXPECT_EQ(entered, 5 * 4 + 3);
  slow = -1;
  EXPECT_EQ(roll(10).to_vector<std::int32_t>(), Ints(4, 10));
  auto run = roll.start(Tensor(2'000'000'000));
  ASSERT_TRUE(wait_until([&] { return entered > 1000; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {}, ErrorCode::cancelled);
  EXPECT_EQ(roll(10).to_vector<std::int32_t>(), Ints(4, 10));
}

TEST(Pool, OneProgramStepsItAtATime) {
  std::function<void()> inner;
  const auto pool = counters(2, [&](std::int64_t, std::int32_t) {
    inner();
    return Stepped{};
  });
  const auto step = jit([&](Tensor x) { return pool.step(x).observations; });
  const Tensor x = tensor<std::int32_t>({1, 2});
  pool.reset();
  inner = [&] { step(x).block_until_ready(); };
  expect_error<CallbackError>([&] { step(x).block_until_ready(); }, {"it is being stepped"});
  inner = [] {};
  EXPECT_EQ(step(x).to_vector<std::int32_t>(), (Ints{0, 0}));
}

TEST(Pool, OnceItIsGoneProgramsFail) {
  auto pool = std::make_unique<Pool<Walk>>(2, plain);
  const auto f = jit([&] { return pool->reset(); });
  f().block_until_ready();
  Pool<Walk> moved = std::move(*pool);
  pool.reset();
  EXPECT_EQ(moved.reset().to_vector<float>().size(), 4u);
  { const Pool<Walk> last = std::move(moved); }
  expect_error<CallbackError>([&] { f().block_until_ready(); }, {"it is gone"});
}

TEST(Pool, RefusesWhatDoesNotFit) {
  const Pool<Walk> pool(2, {.name = "walk", .kept = false});
  expect_error<TypeError>(
      [&] {
        pool.step(tensor<float>({1, 2}));
      },
      {"pool \"walk\": step: actions must be f32[2,1], f32[2] came", "pool_test.cc:"});
  expect_error<TypeError>([&] { pool.step(tensor<double>({{1}, {2}})); }, {"f64[2,1] came"});
  expect_error<TypeError>([&] { pool.receive(3); }, {"1 to 2 elements, 3 were asked for"});
  expect_error<TypeError>([&] { pool.send(tensor<float>({1}), tensor<float>({{1}})); },
                          {"elements must be s32[k], f32[1] came"});
  expect_error<TypeError>([&] { pool.send(tensor<std::int32_t>({1}), tensor<float>({1})); },
                          {"send: actions must be f32[1,1], f32[1] came"});
  expect_error<TypeError>([&] { Pool<Walk>(0, plain); }, {"1 to 2147483647", "0 were asked"});
  expect_error<TypeError>([&] { Pool<Walk>(1, {.threads = -1, .kept = false}); }, {"-1"});
  expect_error<TypeError>([&] { Pool<Walk>(1, {.rewards = DType::s32, .kept = false}); },
                          {"rewards must be f32 or f64"});
  struct Wrong : Walk {
    static Type observation() { return type<double>({2}); }
    Stepped step(View<const float> a, View<float> o) { return Walk::step(a, o); }
  };
  expect_error<TypeError>([&] { Pool<Wrong>(1, plain); },
                          {"the observation is f64[2] by its type, its functions take f32"});
  struct Uneven : Walk {
    explicit Uneven(std::int64_t n) : extent(n) {}
    Type action() const { return type<float>({extent}); }
    Stepped step(View<const float> a, View<float> o) { return Walk::step(a, o); }
    std::int64_t extent;
  };
  expect_error<TypeError>(
      [&] {
        Pool<Uneven>(
            2, [](std::int64_t e) { return Uneven(e + 1); }, plain);
      },
      {"the action of element 1 is f32[2], that of element 0 f32[1]"});
}

TEST(Pool, StepsLeaveNoMemoryBehind) {
  RecordProperty("covers", "POOL-08");
  if (!counts_memory) GTEST_SKIP() << "a sanitizer's own memory counts";
  const Pool<Walk> pool(4, {.threads = 2, .kept = false});
  const auto roll = jit([&](Tensor steps) {
    return fori_loop(
        0, steps,
        [&](Tensor, Tensor) {
          return pool.step(full(type<float>({4, 1}), 0.5f)).observations;
        },
        pool.reset());
  });
  roll(10'000).block_until_ready();
  long least = std::numeric_limits<long>::max();  // other threads of the process take some too
  for (int i = 0; i < 3; ++i) {
    const long before = resident_kib();
    roll(100'000).block_until_ready();
    least = std::min(least, resident_kib() - before);
  }
  EXPECT_LT(least, 2048);
}

}  // namespace
}  // namespace postern::test
