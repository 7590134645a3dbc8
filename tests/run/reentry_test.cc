// Host functions that run programs.
#include "support.h"

#include <cmath>

#include "run/runtime.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using test::cause_of, test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;

/// A program that calls `fn` on its argument.
template <class F>
auto calling(F fn, std::string name = "call") {
  return jit([fn, name](Tensor x) { return call({.name = name}, x.type(), fn, x); });
}

TEST(Reentry, AProgramInsideAProgram) {
  RecordProperty("covers", "REENTRY-01");
  auto inner = jit([](Tensor x) { return x * 2.0f + 1.0f; });
  auto outer = calling([&](float v) { return inner(Tensor(v)).item<float>(); });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(outer(Tensor(3.0f)).item<float>(), 7);
}

// The thread's calls come from the outer run and the inner one by turns.
TEST(Reentry, RunsByTurnsOnOneThread) {
  const auto inner = jit([](Tensor x) {
    return fori_loop(
        0, 3,
        [](Tensor, Tensor v) {
          return call(
              v.type(), [](float a) { return a * 2; }, v);
        },
        x);
  });
  const auto outer = jit([&](Tensor x) {
    return fori_loop(
        0, 50,
        [&](Tensor, Tensor v) {
          v = call(
              v.type(), [&](float a) { return inner(Tensor(a)).item<float>() - 7 * a; }, v);
          return call(
              v.type(), [](float a) { return a + 1; }, v);
        },
        x);
  });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(outer(Tensor(static_cast<float>(i))).item<float>(), static_cast<float>(i + 50));
}

TEST(Reentry, CompilingAndOperationsInside) {
  RecordProperty("covers", "REENTRY-01");
  auto outer = calling([](float v) {
    auto fresh = jit([](Tensor x) { return log(x + 1.0f); });
    const Tensor y = 2.0f * fresh(Tensor(v));
    return y.item<float>() + sum(ones(type<float>({5})) * y).item<float>() * 0.0f;
  });
  for (int i = 1; i < 5; ++i)
    EXPECT_NEAR(outer(Tensor(float(i))).item<float>(), 2 * std::log(float(i) + 1), 1e-5);
}

// A GPU's compiler that tries code waits for the runs that are there, and new ones wait for it.
TEST(Reentry, NoCompilerTriesCodeWhileAHostFunctionRuns) {
  if (test::skipped_in_stages("nothing on a device waits for a function in stages")) return;
  auto& runtime = run::Runtime::get();
  const auto may_try = [&] {
    if (!runtime.try_begin_tuning()) return false;
    runtime.end_tuning();
    return true;
  };
  bool inside = true;
  calling([&](float v) {
    inside = may_try();
    return v;
  })(Tensor(1.0f))
      .item<float>();
  EXPECT_FALSE(inside);
  ASSERT_TRUE(test::wait_until(may_try)) << "the run has ended";

  std::atomic<bool> entered = false;
  const auto enters = calling([&](float v) {
    entered = true;
    return v;
  });
  ASSERT_TRUE(runtime.try_begin_tuning());
  std::thread other([&] { enters(Tensor(2.0f)).item<float>(); });
  EXPECT_FALSE(test::wait_until([&] { return entered.load(); }, 50ms));
  EXPECT_EQ((Tensor(1.0f) + 1.0f).item<float>(), 2) << "a program without calls need not wait";
  runtime.end_tuning();
  other.join();
  EXPECT_TRUE(entered);
}

TEST(Reentry, TensorsGoIn) {
  Tensor kept = iota<float>(2000), weights;
  auto scale = jit([](Tensor x, Tensor w) { return x * w; });
  weights = scale(kept, Tensor(2.0f));  // made on the main lane, used inside
  auto outer = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](View<const float> v, View<float> out) {
          scale(scale(Tensor::copy_of(v), weights), kept).read(out.data());
        },
        x);
  });
  EXPECT_EQ(outer(ones(type<float>({2000}))).to_vector<float>()[100], 2 * 100 * 100);
  Tensor escaped;
  auto keeping = calling([&](float v) {
    escaped = scale(Tensor(v), Tensor(10.0f));
    return v;
  });
  keeping(Tensor(4.0f)).block_until_ready();
  EXPECT_EQ((escaped + 1.0f).item<float>(), 41) << "made inside, used outside";
}

TEST(Reentry, ThreeDeep) {
  RecordProperty("covers", "REENTRY-02");
  auto third = calling([](float v) { return v + 1; });
  auto second = calling([&](float v) { return third(Tensor(v)).item<float>() + 1; });
  auto first = calling([&](float v) { return second(Tensor(v)).item<float>() + 1; });
  EXPECT_EQ(first(Tensor(0.0f)).item<float>(), 3);
}

/// Adds 1 at each of `depth` levels, all in one jitted function.
struct Ladder {
  std::function<float(float)> down;
  std::vector<int> entered = std::vector<int>(64);
  float climb(float depth) {
    auto f = jit([this](Tensor x) {
      return call(
          {.name = "rung"}, x.type(),
          [this](float left) {
            ++entered[std::size_t(left)];
            return left <= 1 ? 1 : 1 + down(left - 1);
          },
          x);
    });
    down = [f](float left) { return f(Tensor(left)).template item<float>(); };
    return down(depth);
  }
};

TEST(Reentry, ThirtyTwoLevelsAndNoMore) {
  RecordProperty("covers", "REENTRY-06");
  Ladder ladder;
  EXPECT_EQ(ladder.climb(32), 32);
  EXPECT_EQ(ladder.entered[1], 1);
  for (int i = 0; i < 2; ++i) {
    const auto e = error_of<CallbackError>([&] { ladder.climb(40); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->code(), ErrorCode::reentry);
    EXPECT_TRUE(has(e->what(), "32") && has(e->what(), "rung") && has(e->what(), "reentry_test.cc"))
        << e->what();
    EXPECT_LT(std::string(e->what()).size(), 6000u);
  }
  EXPECT_EQ(ladder.entered[8], 1) << "the 33rd level of 40 is not entered";
  EXPECT_EQ(ladder.climb(32), 32) << "and everything works as before";
  EXPECT_NO_THROW(barrier());
}

TEST(Reentry, LevelsOfCallsAtOnceCountToo) {
  RecordProperty("covers", "REENTRY-06");
  std::function<float(float)> down = [&](float left) {
    return left <= 0 ? 0
                     : 1 + call(
                               type<float>(), [&](float v) { return down(v); }, Tensor(left - 1))
                               .item<float>();
  };
  EXPECT_EQ(down(32), 32);
  const auto e = error_of<CallbackError>([&] { down(60); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ErrorCode::reentry);
}

TEST(Reentry, HeavyWorkInside) {
  RecordProperty("covers", "REENTRY-03");
  const Tensor m = full(type<float>({300, 300}), 1.0f / 300);
  auto work = jit([&](Tensor a) { return matmul(matmul(a, m), cos(a) / cos(a) / 300.0f); });
  auto outer = jit([&](Tensor x) {
    Tensor y = matmul(x, x);  // heavy outside too, so that XLA runs it on its pool
    for (int i = 0; i < 10; ++i)
      y = call(
          y.type(),
          [&](View<const float> v, View<float> out) { work(Tensor::copy_of(v)).read(out.data()); },
          matmul(y, x));
    return mean(y);
  });
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(outer(m).item<float>() * 300, 1, 1e-3) << i;
  auto compares = calling([](View<const float> v, View<float> out) {
    for (std::int64_t i = 0; i < 50; ++i)
      EXPECT_TRUE(all(Tensor::copy_of(v) == Tensor::copy_of(v)).item<bool>());
    out[0] = v[0];
  });
  for (int i = 0; i < 5; ++i) compares(ones(type<float>({3}))).block_until_ready();
}

TEST(Reentry, FromSeveralThreads) {
  RecordProperty("covers", "REENTRY-03");
  const std::int64_t n = 100'000;
  auto inner = jit([](Tensor x) { return sum(sin(x) * sin(x) + cos(x) * cos(x)); });
  auto middle = jit([&](Tensor x) {
    return call(
        type<float>(), [&](View<const float> v) { return inner(Tensor::copy_of(v)).item<float>(); },
        x + 1.0f);
  });
  auto outer = jit([&](Tensor x) {
    return call(
        type<float>(),
        [&](View<const float> v) { return middle(Tensor::copy_of(v)).item<float>(); }, cos(x));
  });
  const Tensor x = full(type<float>({n}), 0.5f);
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 5; ++i)
          right += std::abs(outer(x).item<float>() - float(n)) < 0.01f * float(n);
      });
  }
  EXPECT_EQ(right, 40);
}

TEST(Reentry, ThreadsOfAHostFunctionRunPrograms) {
  auto inner = calling([](float v) { return v + 1; });
  auto outer = calling([&](float v) {
    std::atomic<float> total = 0;
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] { total = total + 0 * inner(Tensor(v)).item<float>(); });
    }
    return inner(Tensor(v)).item<float>() + total;
  });
  EXPECT_EQ(outer(Tensor(1.0f)).item<float>(), 2);
}

TEST(Reentry, RunsStartedInside) {
  auto inner = calling([](float v) { return v * 3; });
  auto outer = calling([&](float v) {
    auto a = inner.start(Tensor(v)), b = inner.start(Tensor(v + 1));
    return a.result().item<float>() + b.result().item<float>();
  });
  EXPECT_EQ(outer(Tensor(1.0f)).item<float>(), 9);
}

TEST(Reentry, ALimitedFunctionRunsPrograms) {
  auto inner = calling([](float v) { return v + 1; });
  auto outer = jit([&](Tensor x) {
    return call(
        {.timeout = 60s}, x.type(), [&](float v) { return inner(inner(Tensor(v))).item<float>(); },
        x);
  });
  EXPECT_EQ(outer(Tensor(1.0f)).item<float>(), 3);
}

TEST(Reentry, BarrierInsideIsRefused) {
  RecordProperty("covers", "REENTRY-05");
  for (const bool limited : {false, true}) {
    auto f = calling(
        [=](float v) {
          limited ? static_cast<void>(barrier(1s)) : barrier();
          return v;
        },
        "waiter");
    expect_error<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); },
                                {"waiter", "barrier", "reentry_test.cc"}, ErrorCode::reentry);
    expect_error<CallbackError>(
        [&] {
          call(
              {.name = "waiter"}, type<float>(),
              [=](float v) {
                barrier();
                return v;
              },
              Tensor(1.0f));
        },
        {"waiter"}, ErrorCode::reentry);
  }
  EXPECT_NO_THROW(barrier());
}

TEST(Reentry, WaitingForTheOwnRunIsRefused) {
  RecordProperty("covers", "REENTRY-05");
  if (test::skipped_in_stages("in stages a run returns behind its functions")) return;
  std::atomic<bool> there = false;
  // What a call returns has no functions any more, but for those that are turned on later.
  const auto f = jit([](Tensor x) {
    const Tensor work = fori_loop(
        0, 500, [&](Tensor, Tensor v) { return tanh(matmul(v, x)); }, x);
    return hook({.name = "impatient", .live = true}, sum(work));
  });
  const Tensor m = full(type<float>({300, 300}), 0.01f);
  f.compile(m);
  const Tensor own = f(m);  // still on its way
  const auto hooks = live_hooks();
  const auto last = std::ranges::find(hooks, "impatient", &LiveHook::name);
  ASSERT_NE(last, hooks.end());
  const Listening on = last->turn_on([&](float v) { EXPECT_EQ(own.item<float>(), v); });
  expect_error<CallbackError>([&] { own.item<float>(); }, {"impatient", "reentry_test.cc"},
                              ErrorCode::reentry);
  EXPECT_NO_THROW(barrier());

  auto g = jit([&](Tensor x) {
    return call(
        {.name = "impatient"}, x.type(),
        [&](const CallInfo& info, float v) {
          EXPECT_TRUE(test::wait_until([&] { return there.load(); }));
          (*static_cast<std::function<void()>*>(info.context))();
          return v;
        },
        x);
  });
  there = false;
  std::function<void()> wait;
  auto run = g.start_with({.context = &wait}, Tensor(1.0f));
  wait = [&] { run.wait(); };
  there = true;
  expect_error<CallbackError>([&] { run.wait(); }, {"impatient"}, ErrorCode::reentry);
  there = false;
  auto cancelling = g.start_with({.context = &wait}, Tensor(1.0f));
  wait = [&] { cancelling.cancel(); };
  there = true;
  expect_error<CallbackError>([&] { cancelling.wait(); }, {"cancelled"}, ErrorCode::cancelled);
}

TEST(Reentry, TheRegistryIsChangedInside) {
  RecordProperty("covers", "REENTRY-08 LIFE-07");
  auto give = [](float k) { return [k](float) { return k; }; };
  register_function("reentry_test.f", give(1));
  auto f = jit([&](Tensor x) {
    Tensor a = call({.effect = Effect::ordered}, x.type(), Named{"reentry_test.f"}, x);
    call({.effect = Effect::ordered}, std::tuple<>(),
         [&] { register_function("reentry_test.f", give(2), {.replace = true}); });
    return 10.0f * a + call({.effect = Effect::ordered}, x.type(), Named{"reentry_test.f"}, a);
  });
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 11) << "a run keeps what it found";
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 22);
  register_function("reentry_test.f",
                    [&](float v) {
                      unregister_function("reentry_test.f");
                      return v;
                    },
                    {.replace = true});
  auto once = jit([](Tensor x) { return call(x.type(), Named{"reentry_test.f"}, x); });
  EXPECT_EQ(once(Tensor(5.0f)).item<float>(), 5) << "removed by itself";
  expect_error<CallbackError>([&] { once(Tensor(5.0f)).item<float>(); }, {"reentry_test.f"},
                              ErrorCode::unregistered);
}

TEST(Reentry, TheRegistryIsChangedWhileOthersRun) {
  RecordProperty("covers", "REENTRY-08");
  register_function("reentry_test.g", [](float v) { return v; });
  auto f = jit([](Tensor x) { return call(x.type(), Named{"reentry_test.g"}, x); });
  std::atomic<bool> end = false;
  std::atomic<int> right = 0;
  std::jthread changer([&] {
    while (!end) {
      register_function("reentry_test.g", [](float v) { return v; }, {.replace = true});
      registered_functions();
    }
  });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        for (int i = 0; i < 100; ++i) right += f(Tensor(float(i))).item<float>() == float(i);
      });
  }
  end = true;
  changer.join();
  EXPECT_EQ(right, 300);
  unregister_function("reentry_test.g");
}

}  // namespace
}  // namespace postern
