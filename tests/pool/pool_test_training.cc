// Pools in the middle of a training: failures, stops, and what comes behind them.
#include "pool_test.h"

namespace postern::test {
namespace {

/// What befalls the simulator of element 17, counted in its steps.
struct Trouble {
  std::atomic<int> steps{0}, throws_at{-1}, stalls_at{-1};
  std::chrono::steady_clock::time_point stalls_until;
};

struct Stumbler {
  Stumbler(std::int64_t e, Trouble& t) : element(e), trouble(&t) {}
  static Type action() { return Walk::action(); }
  static Type observation() { return Walk::observation(); }
  void reset(std::uint64_t seed, View<float> seen) { walk.reset(seed, seen); }
  Stepped step(View<const float> move, View<float> seen) {
    if (element == 17) {
      const int now = trouble->steps++;
      if (now == trouble->throws_at) throw std::range_error("stumbled");
      if (now == trouble->stalls_at) std::this_thread::sleep_until(trouble->stalls_until);
    }
    return walk.step(move, seen);
  }
  std::string save() const { return walk.save(); }
  void load(std::string_view text) { walk.load(text); }
  std::int64_t element;
  Trouble* trouble;
  Walk walk;
};

Pool<Stumbler> stumblers(Trouble& trouble) {
  return Pool<Stumbler>(32, [&](std::int64_t e) { return Stumbler(e, trouble); },
                        {.name = "stumblers", .threads = 2, .seed = 3});
}

struct Training {
  Tensor weights, seen, step;
};
Training beginning(const Pool<Stumbler>& pool) {
  return {full(type<float>({2, 1}), 0.001f), pool.reset(), Tensor(0)};
}

/// Acts and learns until a step, with a checkpoint of each fourth.
auto trainer(const Pool<Stumbler>& pool, const std::string& folder) {
  const auto keep = listen::checkpoint(folder, {.every = 4, .async = false});
  return jit([&pool, keep](Training from, Tensor until) {
    const auto step = [&](Training now) {
      const Transition t = pool.step(tanh(matmul(now.seen, now.weights)));
      const auto gain = [&](const Tensor& w) {
        return mean(t.rewards * squeeze(tanh(matmul(now.seen, w)), {1}));
      };
      const Training next{now.weights + 0.001f * grad(gain)(now.weights), t.observations,
                          now.step + 1};
      tap({.name = "state"}, next, keep);
      return next;
    };
    return while_loop([&](Training now) { return now.step < until; }, step, from);
  });
}

std::vector<float> bits_of(const Training& t) {
  std::vector<float> all = t.weights.to_vector<float>();
  for (const float x : t.seen.to_vector<float>()) all.push_back(x);
  return all;
}

/// What comes of so many steps that nothing disturbs.
std::vector<float> undisturbed(std::int32_t until) {
  const TemporaryFolder folder;
  Trouble none;
  const auto pool = stumblers(none);
  return bits_of(trainer(pool, folder.path())(beginning(pool), Tensor(until)));
}

/// Has a training fail so, and the same pool go on from what was kept: to the bit as if nothing had
/// been.
template <class Fail>
void expect_it_goes_on(const Fail& fail) {
  std::int32_t until = 0;
  std::vector<float> then;
  {
    const TemporaryFolder folder, more;
    Trouble trouble;
    const auto pool = stumblers(trouble);
    fail(trainer(pool, folder.path()), pool, trouble);
    trouble.throws_at = trouble.stalls_at = -1;
    const auto kept = resume<Training>(folder.path());
    ASSERT_TRUE(kept);
    until = kept->step.item<std::int32_t>() + 10;
    then = bits_of(trainer(pool, more.path())(*kept, Tensor(until)));
  }
  EXPECT_GT(until, 14) << "it failed before there was a checkpoint";
  EXPECT_EQ(then, undisturbed(until));
}

TEST(Pool, ATrainingGoesOnBehindAFailure) {
  RecordProperty("covers", "POOL-04 POOL-06");
  expect_it_goes_on([](const auto& train, const auto& pool, Trouble& trouble) {
    trouble.throws_at = 22;
    const auto error = error_of<CallbackError>(
        [&] { train(beginning(pool), Tensor(100)).step.block_until_ready(); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(has(error->what(), "pool \"stumblers\": element 17: stumbled")) << error->what();
    const auto cause = cause_of<PoolError>(*error);
    ASSERT_TRUE(cause);
    EXPECT_EQ(cause->element(), 17);
    EXPECT_THROW(std::rethrow_exception(cause->cause()), std::range_error);
    const Transition next = pool.step(zeros(type<float>({32, 1})));  // the next run
    EXPECT_EQ(next.rewards.to_vector<float>()[17], 0);               // where it begins anew
  });
}

TEST(Pool, ATrainingGoesOnBehindACancelledRun) {
  RecordProperty("covers", "POOL-05 POOL-06");
  expect_it_goes_on([](const auto& train, const auto& pool, Trouble& trouble) {
    auto run = train.start(beginning(pool), Tensor(2'000'000'000));
    ASSERT_TRUE(wait_until([&] { return trouble.steps > 22; }));
    run.cancel();
    expect_error<CallbackError>([&] { run.wait(); }, {}, ErrorCode::cancelled);
  });
}

TEST(Pool, ATrainingGoesOnBehindADeadline) {
  RecordProperty("covers", "POOL-05 POOL-06");
  expect_it_goes_on([](const auto& train, const auto& pool, Trouble& trouble) {
    const Training start = beginning(pool);
    if (plugin_info().calls_back) train.compile(start, Tensor(0));
    trouble.stalls_at = 22;
    trouble.stalls_until = std::chrono::steady_clock::now() + 6s;
    EXPECT_THROW(train.run({.deadline = 4s}, start, Tensor(2'000'000'000)).step.block_until_ready(),
                 TimeoutError);
    EXPECT_LE(trouble.steps, 23) << "an element began behind the deadline";
  });
}

}  // namespace
}  // namespace postern::test
