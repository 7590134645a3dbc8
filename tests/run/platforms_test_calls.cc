// Programs of one platform in the middle of programs of another.
#include "platforms_test.h"

#include <cmath>
#include <sstream>
#include <thread>

namespace postern::test {
namespace {

TEST_F(Platforms, AFunctionOfTheOtherPlatformIsCalled) {
  RecordProperty("covers", "FOREIGN-04");
  for (const Side& s : sides()) {
    std::atomic<int> where = -1, outer = -1;
    const auto inner = jit([&](Tensor x) { return seen_at(where)(sin(x)); });
    for (const Mode mode : {Mode::automatic, Mode::staged, Mode::evaluate}) {
      const auto f = jit(
          [&](Tensor x) {
            const Tensor y = call({.name = "over", .device = other(s)}, x, inner, x * 2.0f);
            return seen_at(outer)(y) + 1.0f;
          },
          {.mode = mode});
      const Tensor x = device_put(counting(3), s.device);
      for (int i = 0; i < 3; ++i) {
        EXPECT_FLOAT_EQ(f(x).to_vector<float>()[1], std::sin(4.0f) + 1) << s.name;
        EXPECT_EQ(where, other(s));
        EXPECT_EQ(outer, s.device);
      }
    }
    // At once, outside of every program.
    const Tensor y =
        call({.device = other(s)}, type<float>({3}), inner, device_put(counting(3), s.device));
    EXPECT_FLOAT_EQ((y + device_put(counting(3), s.device)).to_vector<float>()[0],
                    std::sin(1.0f) + 1);
  }
}

TEST_F(Platforms, CallsNestAcrossThem) {
  const auto third = jit([](Tensor x) { return x * x; });
  const auto second = jit([&](Tensor x) { return call({.device = 1}, x, third, x + 1.0f); });
  const auto first = jit([&](Tensor x) { return call({.device = there}, x, second, x * 2.0f); });
  EXPECT_EQ(first(Tensor(3.0f)).item<float>(), 49);
  EXPECT_EQ(jit(grad(first))(Tensor(3.0f)).item<float>(), 28);
  // In a loop, with a call of its own in each step.
  std::atomic<int> calls = 0;
  const auto step = jit([&](Tensor x) {
    return call(
        {.effect = Effect::unordered}, x.type(),
        [&](float v) {
          ++calls;
          return v + 1;
        },
        x);
  });
  const auto loop = jit([&](Tensor x) {
    return fori_loop(
        0, 5, [&](Tensor, Tensor v) { return call({.device = there}, v, step, v); }, x);
  });
  EXPECT_EQ(loop(Tensor(0.0f)).item<float>(), 5);
  EXPECT_EQ(calls, 5);
}

/// f on x there, as part of a program elsewhere.
auto called(const auto& f, int device) {
  return [f = jit(f), device](Tensor x) { return call({.device = device}, x, f, x); };
}

TEST_F(Platforms, CallsHaveDerivativesAndBatches) {
  RecordProperty("covers", "FOREIGN-04");
  const auto f = [](Tensor x) { return sin(x) * x * x; };
  for (const Side& s : sides()) {
    const auto g = called(f, other(s));
    const auto scalar = [&](Tensor x) { return sum(g(x)); };
    const auto plain = [&](Tensor x) { return sum(f(x)); };
    const Tensor x = device_put(counting(4) * 0.3f, s.device);
    const auto expect_alike = [&](const Tensor& got, const Tensor& want, const char* what) {
      EXPECT_TRUE(allclose(device_put(got, 0), device_put(want, 0), 1e-5, 1e-5).item<bool>())
          << what << " from " << s.name;
    };
    expect_alike(jit(g)(x), jit(f)(x), "value");
    expect_alike(jit(grad(scalar))(x), jit(grad(plain))(x), "grad");
    expect_alike(grad(scalar)(x), grad(plain)(x), "grad at once");
    expect_alike(jit(hessian(scalar))(x), jit(hessian(plain))(x), "hessian");
    expect_alike(jit(jacrev(g))(x), jit(jacrev(f))(x), "jacrev");
    expect_alike(jit(jacfwd(g))(x), jit(jacfwd(f))(x), "jacfwd");
    expect_alike(jit(vmap(g))(x), jit(vmap(f))(x), "vmap");
    expect_alike(jit(vmap(grad(scalar)))(reshape(x, {4, 1})),
                 jit(vmap(grad(plain)))(reshape(x, {4, 1})), "vmap of grad");
    const auto third = [](const auto& h) { return grad(grad(grad(h))); };
    const Tensor one = device_put(Tensor(0.7f), s.device);
    expect_alike(jit(third(g))(one), jit(third(f))(one), "third derivative");
    const auto forward = [](const auto& h) {
      return [h](Tensor v) { return jvp(h, std::tuple{v}, std::tuple{v * 0.5f}); };
    };
    const auto [y, dy] = jit(forward(g))(x);
    const auto [want, dwant] = jit(forward(f))(x);
    expect_alike(dy, dwant, "jvp");
    expect_alike(jit(grad(scalar), {.mode = Mode::staged})(x), jit(grad(plain))(x), "staged");
    const auto rematerialised = checkpoint(scalar);
    expect_alike(jit(grad(rematerialised))(x), jit(grad(plain))(x), "checkpoint");
  }
}

TEST_F(Platforms, ContainersAndNothingGoAcross) {
  using Map = std::map<std::string, Tensor>;
  const auto f = jit([](Map m) {
    return std::vector<Tensor>{2.0f * m.at("a"), sum(m.at("a") * m.at("b"))};
  });
  const auto loss = [&](Map m) {
    const auto parts =
        call({.device = there}, std::vector<Type>{type<float>({2}), type<float>()}, f, m);
    return sum(parts[0]) + 4.0f * parts[1];
  };
  const Map x{{"a", tensor<float>({5, 1})}, {"b", tensor<float>({6, 2})}};
  EXPECT_FLOAT_EQ(jit(loss)(x).item<float>(), 12 + 4 * 32);
  EXPECT_EQ(jit(grad(loss))(x).at("b").to_vector<float>(), (std::vector<float>{20, 4}));
  std::atomic<int> seen = 0;
  const auto tells =
      jit([&](Tensor v) { tap(v, [&](float got) { seen = static_cast<int>(got); }); });
  for (const Mode mode : {Mode::automatic, Mode::staged}) {
    jit(
        [&](Tensor v) {
          call({.device = there}, std::tuple<>(), tells, v * 2.0f);
          return v;
        },
        {.mode = mode})(Tensor(21.0f))
        .block_until_ready();
    EXPECT_EQ(seen.exchange(0), 42);
  }
}

TEST_F(Platforms, FailuresSayWhere) {
  for (const Side& s : sides()) {
    const auto fails = jit([](Tensor x) {
      return call(
          {.name = "bad"}, x.type(), [](float) -> float { throw std::out_of_range("too far"); }, x);
    });
    const std::string place = fmt::format("device {} ({})", s.device, s.name);
    const auto alone =
        error_of<CallbackError>([&] { fails(device_put(Tensor(1.0f), s.device)).item<float>(); });
    ASSERT_TRUE(alone);
    EXPECT_TRUE(has(alone->what(), "call 'bad'") && has(alone->what(), place)) << alone->what();
    EXPECT_EQ(alone->device(), s.device);
    EXPECT_TRUE(cause_of<std::out_of_range>(*alone));
    for (const Mode mode : {Mode::automatic, Mode::staged, Mode::evaluate}) {
      const auto calls = jit(
          [&](Tensor x) { return call({.name = "over", .device = s.device}, x, fails, x) * 2.0f; },
          {.mode = mode});
      expect_error<CallbackError>([&] { calls(device_put(Tensor(1.0f), other(s))).item<float>(); },
                                  {"call 'bad'", place, "too far"});
    }
    EXPECT_EQ(
        jit([](Tensor x) { return x + 1.0f; })(device_put(Tensor(1.0f), s.device)).item<float>(),
        2);
  }
  barrier();
}

constexpr Mode every_mode[] = {Mode::automatic, Mode::staged, Mode::evaluate};

TEST_F(Platforms, LimitsAndCancellingReachAcross) {
  for (const Side& s : sides())
    for (const Mode mode : every_mode) {
      std::atomic<bool> entered = false, stopped = false, waits_long = true;
      const auto waits = jit([&](Tensor x) {
        return call(
            {.name = "waits", .effect = Effect::unordered}, x.type(),
            [&](const CallInfo& info, float v) {
              entered = true;
              if (waits_long) stopped = wait_until([&] { return info.stop.stop_requested(); });
              return v;
            },
            x);
      });
      const auto f = jit(
          [&](Tensor x) {
            const Tensor y = call({.device = other(s)}, x, waits, x);
            return call(
                {.name = "after", .effect = Effect::unordered}, x.type(), [](float v) { return v; },
                y);
          },
          {.mode = mode});
      const Tensor x = device_put(Tensor(1.0f), s.device);
      const auto run = f.start(x);
      EXPECT_TRUE(wait_until([&] { return entered.load(); }));
      run.cancel();
      expect_error<CallbackError>([&] { run.wait(); }, {"cancel"}, ErrorCode::cancelled);
      barrier();
      EXPECT_TRUE(stopped.exchange(false)) << s.name;
      expect_error<TimeoutError>([&] { f.run({.deadline = 20ms}, x); }, {});
      barrier();
      EXPECT_TRUE(wait_until([&] { return stopped.load(); })) << s.name;
      waits_long = false;
      EXPECT_EQ(f(x).item<float>(), 1) << "and the next one runs";
    }
}

/// As a print shows it, perhaps with its device in front.
bool is_shown_once(const std::string& text) {
  return text.ends_with("inner 1\n") && std::ranges::count(text, '\n') == 1;
}

TEST_F(Platforms, WhatARunIsGivenReachesAcross) {
  for (const Side& s : sides())
    for (const Mode mode : every_mode) {
      std::atomic<int> own = 0, of_run = 0;
      const auto inner = jit([&](Tensor x) {
        print("inner {}", x);
        x = hook("shown", x, [&](float) { ++own; });
        return call(
            {.name = "counts", .effect = Effect::unordered}, x.type(),
            [](const CallInfo& info, float v) {
              return v + static_cast<float>(info.context ? *info.context.as<int>() : 0);
            },
            x);
      });
      // A function called there may call one back here.
      const auto middle = jit([&](Tensor x) { return call({.device = s.device}, x, inner, x); });
      for (const bool deep : {false, true}) {
        const auto f = jit(
            [&](Tensor x) {
              const Tensor y = deep ? call({.device = other(s)}, x, middle, x)
                                    : call({.device = other(s)}, x, inner, x);
              return y * 2.0f;
            },
            {.mode = mode});
        const Tensor x = device_put(Tensor(1.0f), s.device);
        const std::string where =
            s.name + std::to_string(static_cast<int>(mode)) + (deep ? " deep" : "");
        int context = 20;
        std::ostringstream sink;
        const RunOptions options{
            .context = &context, .sink = &sink, .hooks = {{"shown", [&](float) { ++of_run; }}}};
        EXPECT_EQ(f.run(options, x).item<float>(), 42) << where;
        EXPECT_TRUE(is_shown_once(sink.str())) << where << sink.str();
        EXPECT_EQ(of_run.exchange(0), 1) << where;
        EXPECT_EQ(own, 0) << where;
        sink.str("");
        EXPECT_EQ(f.start_with(options, x).result().item<float>(), 42) << where;
        EXPECT_TRUE(is_shown_once(sink.str())) << where << sink.str();
        EXPECT_EQ(of_run.exchange(0), 1) << where;
        testing::internal::CaptureStdout();
        EXPECT_EQ(f(x).item<float>(), 2) << where << ": the next one is given nothing";
        barrier();
        EXPECT_TRUE(is_shown_once(testing::internal::GetCapturedStdout())) << where;
        EXPECT_EQ(own.exchange(0), 1) << where;
      }
    }
}

TEST_F(Platforms, AFunctionOfAPartEndsTheRun) {
  for (const Side& s : sides())
    for (const Mode mode : every_mode) {
      std::atomic<int> after = 0;
      const auto ends = jit([](Tensor x) {
        return call(
            {.effect = Effect::unordered}, x.type(),
            [](const CallInfo& info, float v) {
              info.end_run();
              return v;
            },
            x);
      });
      const auto f = jit(
          [&](Tensor x) {
            const Tensor y = call({.device = other(s)}, x, ends, x);
            return call(
                {.effect = Effect::unordered}, x.type(),
                [&](float v) { return v + static_cast<float>(after++); }, y);
          },
          {.mode = mode});
      const Tensor x = device_put(Tensor(1.0f), s.device);
      EXPECT_EQ(f.start(x).wait(), RunStatus::stopped) << s.name;
      expect_error<CallbackError>([&] { f(x).item<float>(); }, {"ended early by a host function"},
                                  ErrorCode::cancelled);
      EXPECT_EQ(after, 0) << s.name;
    }
  barrier();
}

// What an asynchronous tap says comes mostly when the part is over.
TEST_F(Platforms, AnAsynchronousTapOfAPartEndsTheRun) {
  constexpr float most = 30000;
  for (const Side& s : sides())
    for (const Mode mode : every_mode) {
      const auto step = jit([](Tensor x) {
        const auto ends_at_three = [](const TapInfo& info, float v) {
          if (v >= 3) info.end_run();
        };
        return tap({.mode = TapMode::async}, x, ends_at_three) + 1.0f;
      });
      const auto f = jit(
          [&](Tensor x) {
            return while_loop([&](Tensor v) { return v < most; },
                              [&](Tensor v) { return call({.device = other(s)}, v, step, v); }, x);
          },
          {.mode = mode});
      EXPECT_EQ(f.start(device_put(Tensor(0.0f), s.device)).wait(), RunStatus::stopped)
          << s.name << static_cast<int>(mode);
    }
  barrier();
}

TEST_F(Platforms, WhatAFunctionRunsForItselfIsNoPart) {
  for (const Mode mode : every_mode) {
    const auto context_of = jit([](Tensor x) {
      return call(
          {.effect = Effect::unordered}, x.type(),
          [](const CallInfo& info, float v) { return v + (info.context ? 100.0f : 0.0f); }, x);
    });
    // The function calls a program there, of its own, at once and compiled.
    const auto at_once = [&](Tensor v) { return call({.device = there}, v, context_of, v); };
    const auto compiled = jit(at_once);
    const auto outer = jit([&](Tensor x) {
      return call(
          {.effect = Effect::unordered}, x.type(),
          [&](float v) {
            return at_once(Tensor(v)).item<float>() + compiled(Tensor(v)).item<float>();
          },
          x);
    });
    const auto f =
        jit([&](Tensor x) { return call({.device = there}, x, outer, x); }, {.mode = mode});
    int context = 1;
    EXPECT_EQ(f.run({.context = &context}, Tensor(1.0f)).item<float>(), 2);
  }
}

TEST_F(Platforms, SixteenThreadsOnBoth) {
  std::atomic<int> wrong = 0, entered = 0;
  const auto inner = jit([&](Tensor x) {
    return call(
        {.name = "counted", .effect = Effect::unordered}, x.type(),
        [&](View<const float> in, View<float> out) {
          ++entered;
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
        },
        x * 2.0f);
  });
  const auto here = jit([&](Tensor x) { return call({.device = there}, x, inner, x) * 3.0f; });
  const auto over = jit([&](Tensor x) { return call({.device = 1}, x, inner, x) * 3.0f; });
  constexpr int threads = 16, rounds = 12;
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      for (int i = 0; i < rounds; ++i) {
        const Tensor x = full(type<float>({700}), static_cast<float>(t + i));
        const Tensor a = here(device_put(x, 0)), b = over(device_put(x, there + 1));
        const Tensor c = inner(device_put(b, 0)) + device_put(a, 0);
        const float want = 3 * (2 * static_cast<float>(t + i) + 1);
        wrong += a.to_vector<float>()[699] != want;
        wrong += b.to_vector<float>()[0] != want;
        wrong += c.to_vector<float>()[1] != 2 * want + 1 + want;
      }
    });
  for (std::thread& t : all) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(entered, threads * rounds * 3);
}

}  // namespace
}  // namespace postern::test
