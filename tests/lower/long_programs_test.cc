// Programs of many effects are lowered in parts, which nobody sees but XLA.
#include <postern/listen.h>
#include <postern/transforms.h>

#include <iostream>
#include <sstream>

#include "lower/lowering.h"
#include "resident.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::expect_error, test::has;
using Floats = std::vector<float>;

constexpr int many = 330;  // three parts and a rest

/// How often the text calls a part.
std::size_t parts_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("func.call @postern_part_", at)) != std::string::npos;) {
    ++at;
    ++count;
  }
  return count;
}

struct Seen {
  std::vector<int> steps;
  Floats values;
  auto step(int i) {
    return [this, i](float v) {
      steps.push_back(i);
      values.push_back(v);
    };
  }
};

/// Calls, taps and plain steps in turn; early values are used late.
Tensor long_way(Seen& seen, const Tensor& x) {
  const Tensor first = x + 1.0f;
  Tensor y = first, middle;
  for (int i = 0; i < many; ++i) {
    y = y * 1.001f;
    if (i % 3 == 0)
      y = call(
          {.effect = Effect::ordered}, y.type(),
          [&seen, i](float v) {
            seen.step(i)(v);
            return v + 0.5f;
          },
          y);
    else
      y = tap(y, seen.step(i));
    if (i == many / 2) middle = sin(y);
  }
  return y + first * middle;
}

TEST(LongPrograms, AreCutAndMeanTheSame) {
  Seen seen;
  const auto f = [&](const Tensor& x) { return long_way(seen, x); };
  const Tensor x(2.0f);
  EXPECT_EQ(parts_in(jit(f).lower(x).stablehlo()), 4u);
  const float want = jit(f, {.mode = Mode::evaluate})(x).item<float>();
  barrier();
  const Seen evaluated = std::exchange(seen, {});
  ASSERT_EQ(evaluated.steps.size(), static_cast<std::size_t>(many));
  const auto compiled = jit(f);
  for (int round = 0; round < 3; ++round) {
    seen = {};
    EXPECT_FLOAT_EQ(compiled(x).item<float>(), want);
    barrier();
    EXPECT_EQ(seen.steps, evaluated.steps);
    for (std::size_t i = 0; i < seen.values.size(); ++i)
      EXPECT_FLOAT_EQ(seen.values[i], evaluated.values[i]);
  }
}

TEST(LongPrograms, AreInOnePieceForCompilersThatMakeGraphsOfCalls) {
  Seen seen;
  const auto f = [&](const Tensor& x) { return long_way(seen, x); };
  const std::string text = jit(f).lower(Tensor(2.0f)).stablehlo();
  EXPECT_TRUE(has(text, "{inlineable = \"false\"}"));
  EXPECT_FALSE(has(in_one_piece(text), "inlineable"));
  EXPECT_EQ(parts_in(in_one_piece(text)), 4u);
}

TEST(LongPrograms, AreLeftWholeWhereTheyAreShort) {
  const auto f = [](Tensor x) {
    for (int i = 0; i < 150; ++i) x = tap(x * 1.5f, [](float) {});
    return x;
  };
  EXPECT_EQ(parts_in(jit(f).lower(Tensor(1.0f)).stablehlo()), 0u);
}

TEST(LongPrograms, HaveDerivativesAndBatches) {
  int fired = 0;
  const auto f = [&](Tensor x) {
    for (int i = 0; i < many; ++i)
      x = tap({.derivatives = true}, x * 1.001f, [&](AnyView) { ++fired; });
    return x * x;
  };
  const float slope = jit(grad(f))(Tensor(3.0f)).item<float>();
  barrier();
  EXPECT_NEAR(slope, 6 * std::pow(1.001, 2 * many), 1e-3);
  EXPECT_EQ(fired, 2 * many) << "values, and cotangents on the way back";
  fired = 0;
  const Tensor xs = tensor<float>({1, 2, 3});
  const Floats squares = jit(vmap(f))(xs).to_vector<float>();
  barrier();
  EXPECT_NEAR(squares[2] / squares[0], 9, 1e-4);
  EXPECT_EQ(fired, many) << "each with the whole batch";
}

TEST(LongPrograms, StandInLoopsAndBranches) {
  std::vector<int> order;
  const auto body = [&](Tensor x) {
    for (int i = 0; i < many; ++i) x = tap(x + 1.0f, [&order, i](float) { order.push_back(i); });
    return x;
  };
  const auto f = [&](Tensor x) {
    x = fori_loop(
        0, 2, [&](Tensor, Tensor v) { return body(v); }, x);
    return cond(
        x > 0.0f, body, [](Tensor v) { return v; }, x);
  };
  EXPECT_EQ(jit(f)(Tensor(0.0f)).item<float>(), 3 * many);
  barrier();
  ASSERT_EQ(order.size(), 3u * many);
  for (std::size_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], static_cast<int>(i % many));
}

TEST(LongPrograms, FailInAnyPartAndRunAgain) {
  int fails_at = -1, entered = 0;
  const auto f = jit([&](Tensor x) {
    for (int i = 0; i < many; ++i)
      x = call(
          {.name = "step", .effect = Effect::ordered}, x.type(),
          [&, i](float v) {
            ++entered;
            if (i == fails_at) throw std::runtime_error("no further");
            return v + 1;
          },
          x);
    return x;
  });
  const Tensor x(0.0f);
  for (const int at : {0, 99, 100, 250, many - 1}) {
    fails_at = at;
    entered = 0;
    expect_error<CallbackError>([&] { f(x).item<float>(); }, {"step", "no further"});
    EXPECT_EQ(entered, at + 1) << "what follows is skipped, in its part and in later ones";
    fails_at = -1;
    EXPECT_EQ(f(x).item<float>(), many);
  }
}

TEST(LongPrograms, GiveTheirArgumentsAway) {
  const auto f = jit(
      [](Tensor x) {
        for (int i = 0; i < many; ++i) x = tap(x + 1.0f, [](AnyView) {});
        return x;
      },
      {.donate = {0}});
  const Tensor x = iota<float>(1000) * 1.0f;
  EXPECT_EQ(f(x).to_vector<float>()[999], 999 + many);
  EXPECT_THROW(x.to_vector<float>(), TypeError);
}

TEST(LongPrograms, ShowLargeValuesInPlace) {
  if (test::skipped_in_stages("stages copy what the host sees twice")) return;
  if (!test::counts_memory) GTEST_SKIP() << "a sanitizer's own memory counts";
  constexpr std::int64_t size = 16'777'216;  // 64 MiB
  int before = 0, large = 0;
  long most = 0;
  std::vector<const void*> seen;
  const auto f = jit([&](Tensor x) {
    const Tensor made = x + 1.0f;
    Tensor small = sum(made);
    for (int i = 0; i < many; ++i) {
      small = tap(small * 1.0f, [&](float) { ++before; });
      if (i % 150 == 75)
        tap(made, [&](AnyView v) {
          ++large;
          seen.push_back(v.data());
          most = std::max(most, test::resident_kib());
        });
    }
    return small + sum(made);
  });
  const Tensor x = full(type<float>({size}), 1.0f);
  for (int i = 0; i < 2; ++i) f(x).block_until_ready();
  barrier();
  const long rest = test::resident_kib();
  most = 0;
  seen.clear();
  f(x).block_until_ready();
  barrier();
  EXPECT_EQ(large, 2 * 3);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], seen[1]) << "the value itself, in two parts of the program";
  EXPECT_LT(most - rest, 80 * 1024) << "the value and no copy of it";
}

TEST(LongPrograms, AreCutAroundWhatIsWrittenInPlace) {
  const auto layer = checkpoint([](Tensor x) {
    for (int i = 0; i < 60; ++i) x = tap(sin(x), [](float) {});
    return x;
  });
  const auto f = [&](Tensor x) {
    for (int i = 0; i < 6; ++i) x = layer(x);
    return x;
  };
  EXPECT_EQ(parts_in(jit(f).lower(Tensor(1.0f)).stablehlo()), 3u) << "360 effects in 6 equations";
}

TEST(LongPrograms, OfManyCheckedOperationsNameTheFirstThatFails) {
  const auto f = [](Tensor x) {
    for (int i = 0; i < 1500; ++i) x = x * 1.0f + 0.0f;
    x = log(x);
    for (int i = 0; i < 1000; ++i) x = x * 1.0f + 0.0f;
    return x;
  };
  const auto checked = jit(trace::non_finite(f));
  EXPECT_EQ(checked(Tensor(1.0f)).item<float>(), 0);
  expect_error<CallbackError>([&] { checked(Tensor(-1.0f)).item<float>(); },
                              {"log", "long_programs_test.cc"});
}

TEST(LongPrograms, AreSavedAndLoaded) {
  const auto f = jit([](Tensor x) {
    for (int i = 0; i < many; ++i) {
      x = x + 1.0f;
      print("{}", x);
    }
    return x;
  });
  const Tensor x(0.0f);
  const std::string text = saved_text(f.lower(x));
  EXPECT_EQ(parts_in(text), 4u);
  std::ostringstream out;
  std::streambuf* const screen = std::cout.rdbuf(out.rdbuf());
  const float last = load_text(text)(x).at(0).item<float>();
  barrier();
  std::cout.rdbuf(screen);
  EXPECT_EQ(last, many);
  std::string lines;
  for (int i = 1; i <= many; ++i) lines += std::to_string(i) + "\n";
  EXPECT_EQ(out.str(), lines);
}

}  // namespace
}  // namespace postern
