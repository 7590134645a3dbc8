// Reverse mode of while_loop: nobody knows the number of its steps before it has run, and each step
// leaves what the derivative needs in a store on the host.
#include <postern/file.h>

#include <unistd.h>

#include <filesystem>

#include "full_disk.h"
#include "support.h"

namespace postern {
namespace {

using test::all_modes, test::expect_error;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Doubles = std::vector<double>;

Tensor doubled(Tensor x) {
  return while_loop([](Tensor v) { return v < 100.0f; }, [](Tensor v) { return v * 2.0f; }, x);
}
/// x^(2^n): 1.5 -> 2.25 -> 5.06 -> 25.6 -> 656.
Tensor squared(Tensor x) {
  return while_loop([](Tensor v) { return v < 100.0f; }, [](Tensor v) { return v * v; }, x);
}

TEST(While, HasAGradient) {
  RecordProperty("covers", "CTRL-14");
  for (const Mode mode : all_modes) {
    auto d = jit(grad(doubled), {.mode = mode});
    EXPECT_EQ(d(3.0f).item<float>(), 64);
    EXPECT_EQ(d(200.0f).item<float>(), 1);  // no step at all
    auto s = jit(value_and_grad(squared), {.mode = mode});
    const auto [value, slope] = s(1.5f);
    EXPECT_NEAR(value.item<float>(), std::pow(1.5, 16), 1e-3);
    EXPECT_NEAR(slope.item<float>(), 16 * std::pow(1.5, 15), 1e-2);
  }
  EXPECT_EQ(grad(doubled)(Tensor(3.0f)).item<float>(), 64);  // at once
  EXPECT_NEAR(grad(squared)(Tensor(1.5f)).item<float>(), 16 * std::pow(1.5, 15), 1e-2);
}

TEST(While, AgreesWithAScanOfTheSameLengthToTheLastBit) {
  RecordProperty("covers", "CTRL-14");
  const Tensor x = tensor<float>({0.3f, -1.2f, 2.1f}), w = tensor<float>({0.7f, 1.1f, -0.4f});
  auto step = [](Tensor n, Tensor v, Tensor a) {
    return sin(v * a) + v / (1.0f + convert(n, DType::f32));
  };
  auto by_while = [&](Tensor a, Tensor v) {
    auto more = [](Tensor n, Tensor) { return n < 37; };
    auto body = [&](Tensor n, Tensor u) { return std::pair{n + 1, step(n, u, a)}; };
    return sum(while_loop(more, body, std::pair{Tensor(0), v}).second);
  };
  auto by_scan = [&](Tensor a, Tensor v) {
    return sum(fori_loop(
        0, 37, [&](Tensor n, Tensor u) { return step(n, u, a); }, v));
  };
  for (const Mode mode : all_modes) {
    auto f = jit(grad<0, 1>(by_while), {.mode = mode});
    auto g = jit(grad<0, 1>(by_scan), {.mode = mode});
    const auto a = detail::leaves_of(f(w, x)), b = detail::leaves_of(g(w, x));
    // Other builds of XLA may fuse the two loops' bodies otherwise.
    const double relative = std::getenv("POSTERN_PLUGIN") ? 1e-5 : 0;
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(allclose(a[i], b[i], relative, 0).item<bool>()) << i << a[i] << b[i];
  }
}

TEST(While, SecondDerivatives) {
  RecordProperty("covers", "CTRL-14");
  const double second = 240 * std::pow(1.5, 14), third = 3360 * std::pow(1.5, 13);
  for (const Mode mode : all_modes) {
    EXPECT_NEAR(jit(grad(grad(squared)), {.mode = mode})(1.5f).item<float>() / second, 1, 1e-4);
    EXPECT_NEAR(jit(grad(grad(grad(squared))), {.mode = mode})(1.5f).item<float>() / third, 1,
                1e-4);
    EXPECT_NEAR(jit(hessian(squared), {.mode = mode})(1.5f).item<float>() / second, 1, 1e-4);
    auto forward = [](Tensor x) {
      return jvp(grad(squared), std::tuple(x), std::tuple(Tensor(1.0f))).second;
    };
    EXPECT_NEAR(jit(forward, {.mode = mode})(1.5f).item<float>() / second, 1, 1e-4);
  }
  EXPECT_NEAR(grad(grad(squared))(Tensor(1.5f)).item<float>() / second, 1, 1e-4);
}

TEST(While, EachElementOfABatchHasItsOwnCount) {
  RecordProperty("covers", "CTRL-14");
  const Tensor x = tensor<float>({3, 60, 200, 1.5f});
  const Floats each{64, 2, 1, 128};
  for (const Mode mode : all_modes) {
    EXPECT_EQ(jit(vmap(grad(doubled)), {.mode = mode})(x).to_vector<float>(), each);
    auto total = [](Tensor v) { return sum(vmap(doubled)(v)); };
    EXPECT_EQ(jit(grad(total), {.mode = mode})(x).to_vector<float>(), each);
    auto gradients = [](Tensor v) { return sum(vmap(grad(squared))(v)); };
    const Floats of_each = jit(vmap(grad(grad(squared))), {.mode = mode})(x).to_vector<float>(),
                 of_all = jit(grad(gradients), {.mode = mode})(x).to_vector<float>();
    for (std::size_t i = 0; i < of_each.size(); ++i)
      EXPECT_NEAR(of_all[i], of_each[i], 1e-4 * std::abs(of_each[i])) << i;
    EXPECT_EQ(jit(vmap(vmap(grad(doubled))), {.mode = mode})(reshape(x, {2, 2})).to_vector<float>(),
              each);
  }
}

/// sin n times.
auto sines(int n, WhileOptions options) {
  return [n, options](Tensor x) {
    auto more = [n](Tensor i, Tensor) { return i < n; };
    auto step = [](Tensor i, Tensor v) { return std::pair{i + 1, sin(v)}; };
    return while_loop(more, step, std::pair{Tensor(0), x}, options).second;
  };
}

TEST(While, KeepsEveryKthCarryOnly) {
  RecordProperty("covers", "CTRL-15");
  const float all = jit(grad(sines(1000, {})))(1.0f).item<float>();
  for (const int k : {2, 10, 33, 5000})
    EXPECT_EQ(jit(grad(sines(1000, {.keep_every = k})))(1.0f).item<float>(), all) << k;
  EXPECT_EQ(jit(grad(sines(100, {.keep_every = 7})), {.mode = Mode::evaluate})(1.0f).item<float>(),
            jit(grad(sines(100, {})))(1.0f).item<float>());
  // A tenth of the carries needs less than a tenth of the memory that all steps do, and a segment.
  const std::size_t memory = 1500;
  EXPECT_EQ(jit(grad(sines(1000, {.keep_every = 30, .memory = memory})))(1.0f).item<float>(), all);
  EXPECT_THROW(jit(grad(sines(1000, {.memory = memory})))(1.0f).item<float>(), CallbackError);
  expect_error<TypeError>([] { sines(3, {.keep_every = 0})(Tensor(1.0f)); }, {"keep_every", "0"});
}

/// The gradient of n steps by x, of the first or second order.
Tensor slope_after(Tensor n, Tensor x, bool second) {
  auto steps = [n](Tensor v) {
    auto more = [n](Tensor i, Tensor) { return i < n; };
    auto step = [](Tensor i, Tensor u) { return std::pair{i + 1, u + 0.01f * sin(u)}; };
    return sum(while_loop(more, step, std::pair{Tensor(0), v}).second);
  };
  if (!second) return grad(steps)(x);
  return grad([&](Tensor v) { return sum(grad(steps)(v) * v); })(x);
}

TEST(While, StepsShareCallsOfTheHostWhereTheirValuesAreSmall) {
  RecordProperty("covers", "CTRL-15");
  // Of each element, d = prod(1 + 0.01 cos(v)).
  auto expected = [](int n, float v) {
    double d = 1, at = v;
    for (; n > 0; --n) {
      d *= 1 + 0.01 * std::cos(at);
      at += 0.01 * std::sin(at);
    }
    return static_cast<float>(d);
  };
  const Ints counts{0, 1, 31, 32, 63, 64, 65, 130};
  for (const std::int64_t size : {1, 3, 1500, 5000}) {  // from 64 steps in a call to one
    auto slope = jit([](Tensor n, Tensor x) { return slope_after(n, x, false); });
    const Tensor x = iota<float>(size) / static_cast<float>(size);
    for (const int n : counts) {
      SCOPED_TRACE(fmt::format("{} steps of {} floats", n, size));
      const Floats got = slope(Tensor(n), x).to_vector<float>();
      EXPECT_NEAR(got.front(), expected(n, 0), 1e-4);
      EXPECT_NEAR(got.back(), expected(n, 1 - 1 / static_cast<float>(size)), 1e-4);
    }
  }
  const Tensor x = tensor<float>({0.3f, 0.7f}), n = tensor(counts);
  for (const bool second : {false, true}) {
    auto slope = [=](Tensor k) { return slope_after(k, x, second); };
    const auto one = jit(slope);
    const Floats all = jit(vmap(slope))(n).to_vector<float>();
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const Floats alone = one(Tensor(counts[i])).to_vector<float>();
      EXPECT_NEAR(all[2 * i], alone[0], 1e-5) << counts[i];
      EXPECT_NEAR(all[2 * i + 1], alone[1], 1e-5) << counts[i];
    }
    const Floats evaluated = jit(slope, {.mode = Mode::evaluate})(Tensor(65)).to_vector<float>();
    const Floats compiled = one(Tensor(65)).to_vector<float>();
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(compiled[i], evaluated[i], 1e-5);
  }
}

TEST(While, ATapeThatOutgrowsItsLimitSaysWhereAndHowFar) {
  RecordProperty("covers", "CTRL-15");
  for (const Mode mode : all_modes) {
    auto limited = jit(grad(sines(1000, {.memory = 1024})), {.mode = mode});
    for (int i = 0; i < 2; ++i)  // the same each time, and the next run works
      expect_error<CallbackError>(
          [&] { limited(1.0f).item<float>(); },
          {"call 'while_loop' at", "while_test.cc", "outgrown", "256 steps", "1024 of 1024 bytes"},
          ErrorCode::resource_exhausted);
  }
  EXPECT_EQ(jit(grad(sines(256, {.memory = 1024})))(1.0f).item<float>(),
            jit(grad(sines(256, {})))(1.0f).item<float>());
  expect_error<TypeError>([] { sines(3, {.file = "x"})(Tensor(1.0f)); }, {"memory"});
  // Two numbers of a step, 128 steps: what one store takes leaves the other what it needs.
  auto both = [](Tensor x) {
    auto more = [](Tensor i, Tensor, Tensor) { return i < 128; };
    auto step = [](Tensor i, Tensor u, Tensor v) { return std::tuple{i + 1, sin(u) + v, sin(v)}; };
    return std::get<1>(while_loop(more, step, std::tuple{Tensor(0), x, x}, {.memory = 1024}));
  };
  EXPECT_NE(jit(grad(both))(1.0f).item<float>(), 0);
}

TEST(While, ALoopInAStepThatIsNotTakenNeverRuns) {
  RecordProperty("covers", "CTRL-16");
  auto f = [](Tensor n, Tensor x, Tensor c) {
    auto grown = [c] {  // never, where c is 1
      return while_loop([](Tensor v) { return v < 2.0f; }, [c](Tensor v) { return v * c; },
                        Tensor(1.0f));
    };
    return while_loop([n](Tensor i, Tensor) { return i < n; },
                      [&](Tensor i, Tensor u) {
                        return std::pair{i + 1, u * grown()};
                      },
                      std::pair{Tensor(0), x})
        .second;
  };
  auto slope = [&](Tensor n, Tensor c) {
    return grad([&](Tensor x) { return f(n, x, c); })(Tensor(1.0f));
  };
  // Where XLA compiles the whole it moves such a loop itself.
  EXPECT_EQ(jit(slope, {.mode = Mode::evaluate})(0, 1.0f).item<float>(), 1);
  for (const Mode mode : all_modes)
    EXPECT_EQ(jit(slope, {.mode = mode})(3, 1.5f).item<float>(), 2.25f * 2.25f * 2.25f);
}

TEST(While, WhatIsOverTheLimitGoesToAFile) {
  RecordProperty("covers", "CTRL-15");
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("postern_tape_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  auto left = [&] {
    return std::distance(std::filesystem::directory_iterator(folder),
                         std::filesystem::directory_iterator());
  };
  const WhileOptions options{.memory = 1024, .file = folder / "tape"};
  const float all = jit(grad(sines(50000, {})))(1.0f).item<float>();
  EXPECT_EQ(jit(grad(sines(50000, options)))(1.0f).item<float>(), all);
  EXPECT_EQ(left(), 0);
  auto fails = [&](Tensor x) {
    return call(
        x.type(), [](float) -> float { throw std::runtime_error("no more"); },
        grad(sines(5000, options))(x));
  };
  EXPECT_THROW(jit(fails)(1.0f).item<float>(), CallbackError);
  EXPECT_EQ(left(), 0);
  std::filesystem::remove_all(folder);
  const WhileOptions nowhere{.memory = 1024, .file = folder / "none" / "tape"};
  for (const Mode mode : all_modes)
    expect_error<CallbackError>(
        [&] { jit(grad(sines(5000, nowhere)), {.mode = mode})(1.0f).item<float>(); },
        {"call 'while_loop' at", "while_test.cc", "cannot be written", "none/tape", "256 steps"},
        ErrorCode::resource_exhausted);
}

TEST(While, TapesInLoopsGoWhenTheyHaveBeenTakenBack) {
  RecordProperty("covers", "CTRL-15");
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("postern_inner_" + std::to_string(::getpid()));
  auto sine_often = [=](Tensor x) {
    return while_loop([](Tensor n, Tensor) { return n < 20; },
                      [](Tensor n, Tensor v) {
                        return std::pair{n + 1, sin(v)};
                      },
                      std::pair{Tensor(0), x}, {.memory = 8, .file = file})
        .second;
  };
  auto scanned = [=](Tensor x) {
    return fori_loop(
        0, 5, [=](Tensor, Tensor v) { return sine_often(v) * 1.1f; }, x);
  };
  auto looped = [=](Tensor x) {
    return while_loop([](Tensor n, Tensor) { return n < 5; },
                      [=](Tensor n, Tensor v) {
                        return std::pair{n + 1, sine_often(v) * 1.1f};
                      },
                      std::pair{Tensor(0), x})
        .second;
  };
  auto descend = [](auto f) {
    return jit([=](Tensor x) {
      return fori_loop(
          0, 60, [=](Tensor, Tensor v) { return v - 0.01f * grad(f)(v); }, x);
    });
  };
  const auto by_scan = descend(scanned);
  const auto by_while = descend(looped);
  const float want = by_scan(Tensor(1.0f)).item<float>();
  // The file has room for the tapes of two steps of the outermost loop, of 60.
  const test::FullDisk disk(static_cast<rlim_t>(32 * ::sysconf(_SC_PAGESIZE)));
  EXPECT_EQ(by_scan(Tensor(1.0f)).item<float>(), want);
  EXPECT_NEAR(by_while(Tensor(1.0f)).item<float>(), want, 1e-6);
}

/// Three times: until it is over 2, then back to a third. `loop` repeats a step while it is asked
/// to.
Tensor there_and_back(Tensor x) {
  auto grow = [](Tensor v) { return v * 1.3f + 0.1f * sin(v); };
  auto round = [=](Tensor n, Tensor v) {
    const Tensor large = while_loop([](Tensor u) { return u < 2.0f; }, grow, v);
    return std::pair{n + 1, large / 3.0f};
  };
  return while_loop([](Tensor n, Tensor) { return n < 3; }, round, std::pair{Tensor(0), x}).second;
}
/// The same by a scan around the loops.
Tensor scanned_there_and_back(Tensor x) {
  auto grow = [](Tensor v) { return v * 1.3f + 0.1f * sin(v); };
  return fori_loop(
      0, 3,
      [=](Tensor, Tensor v) {
        return while_loop([](Tensor u) { return u < 2.0f; }, grow, v) / 3.0f;
      },
      x);
}

TEST(While, InLoopsAndBranches) {
  RecordProperty("covers", "CTRL-16");
  const double by = 1e-3, x = 0.7;
  const double slope = (there_and_back(Tensor(x + by)).item<double>() -
                        there_and_back(Tensor(x - by)).item<double>()) /
                       (2 * by);
  auto branches = [](Tensor v) {
    return cond(
        v < 10.0f, squared, [](Tensor u) { return doubled(u) + u; }, v);
  };
  for (const Mode mode : all_modes) {
    const double nested = jit(grad(there_and_back), {.mode = mode})(Tensor(x)).item<double>();
    EXPECT_NEAR(nested, slope, 1e-5);
    EXPECT_EQ(jit(grad(scanned_there_and_back), {.mode = mode})(Tensor(x)).item<double>(), nested);
    auto d = jit(grad(branches), {.mode = mode});
    EXPECT_NEAR(d(1.5f).item<float>(), 16 * std::pow(1.5, 15), 1e-2);
    EXPECT_EQ(d(60.0f).item<float>(), 3);
    const Floats each =
        jit(vmap(grad(branches)), {.mode = mode})(tensor<float>({1.5f, 60})).to_vector<float>();
    EXPECT_NEAR(each[0], 16 * std::pow(1.5, 15), 1e-2);
    EXPECT_EQ(each[1], 3);
    auto second = jit(grad(grad(there_and_back)), {.mode = mode});
    auto scanned = jit(grad(grad(scanned_there_and_back)), {.mode = mode});
    EXPECT_NEAR(second(Tensor(x)).item<double>(), scanned(Tensor(x)).item<double>(), 1e-9);
  }
  // At once, where no run has the tapes: the pullback keeps them.
  const auto [value, pull] = vjp(scanned_there_and_back, Tensor(x));
  for (int i = 1; i <= 2; ++i)
    EXPECT_NEAR(std::get<0>(pull(Tensor(1.0 * i))).item<double>(), i * slope, 1e-5);
}

TEST(While, EffectsAreNotRepeated) {
  RecordProperty("covers", "CTRL-16 AD-18");
  for (const Mode mode : all_modes) {
    int calls = 0, taps = 0;
    auto decay = [&](Tensor rate) {
      auto body = [&](Tensor v) {
        const Tensor seen = call_with_vjp(
            v.type(),
            [&](float a) {
              ++calls;
              return a;
            },
            [](float, float, float ct, View<float> out) { out[0] = ct; }, v);
        return tap(seen * rate, [&](float) { ++taps; });
      };
      return while_loop([](Tensor v) { return v > 0.1f; }, body, Tensor(1.0f), {.keep_every = 2});
    };
    EXPECT_NEAR(jit(grad(decay), {.mode = mode})(0.5f).item<float>(), 4 * 0.125, 1e-6);
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(taps, 4);
  }
}

TEST(While, SavedInReverse) {
  RecordProperty("covers", "CTRL-16");
  if (test::skipped_in_stages("of a saved program, loops in reverse are no stages")) return;
  const std::string text = saved_text(jit(grad(squared)).lower(Tensor(1.5f)));
  const Loaded loaded = load_text(text);
  const std::vector<Tensor> out = loaded(Tensor(1.5f));
  EXPECT_NEAR(out[0].item<float>(), 16 * std::pow(1.5, 15), 1e-2);
}

TEST(While, ADeadlineLeavesItsTapesWhereTheyAre) {
  RecordProperty("covers", "CTRL-16");
  auto f = jit(grad(sines(2000, {})));
  auto run = f.start_with({.deadline = std::chrono::minutes(5)}, Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::done);
  EXPECT_EQ(run.result().item<float>(), f(1.0f).item<float>());
}

TEST(While, ALoopInsideEndsForElementsThatAreDone) {
  const auto halved = [](Tensor x) {
    return while_loop([](Tensor v) { return remainder(v, 2) == 0; }, [](Tensor v) { return v / 2; },
                      x);
  };
  const auto emptied = [&](Tensor x) {
    return while_loop([](Tensor v) { return v != 0; }, [&](Tensor v) { return halved(v) - 1; }, x);
  };
  const auto odd_part = [&](Tensor x) {
    return cond(
        x != 0, halved, [](Tensor v) { return v; }, x);
  };
  for (const Mode mode : all_modes) {
    EXPECT_EQ(jit(vmap(emptied), {.mode = mode})(tensor<int>({1, 3, 12})).to_vector<int>(),
              (Ints{0, 0, 0}));
    EXPECT_EQ(jit(vmap(odd_part), {.mode = mode})(tensor<int>({0, 3, 12})).to_vector<int>(),
              (Ints{0, 3, 3}));
    EXPECT_EQ(
        jit(vmap(vmap(emptied)), {.mode = mode})(tensor<int>({{5, 0}, {8, 1}})).to_vector<int>(),
        (Ints{0, 0, 0, 0}));
  }
}

}  // namespace
}  // namespace postern
