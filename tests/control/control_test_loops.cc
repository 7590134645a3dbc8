// Loops and scans: nested, of no steps, long, and what they stack.
#include "resident.h"
#include "support.h"

#include <cstdlib>

namespace postern {
namespace {

using test::all_modes, test::both_modes, test::expect_error;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Strings = std::vector<std::string>;

TEST(Control, NestedLoopsFireForEachInnerStep) {
  RecordProperty("covers", "CTRL-07");
  for (const Mode mode : both_modes) {
    int fired = 0;
    auto f = jit(
        [&](Tensor x) {
          return fori_loop(
              0, 2,
              [&](Tensor, Tensor a) {
                return fori_loop(
                    0, 3,
                    [&](Tensor, Tensor b) {
                      return call(
                          {.effect = Effect::ordered}, b.type(),
                          [&](int v) {
                            ++fired;
                            return v + 1;
                          },
                          b);
                    },
                    a);
              },
              x);
        },
        {.mode = mode});
    EXPECT_EQ(f(0).item<int>(), 6);
    EXPECT_EQ(fired, 6);
    Ints log;
    auto see = [&](Tensor v) { return tap(v, [&](int i) { log.push_back(i); }); };
    auto g = jit(
        [&](Tensor x) {
          return see(while_loop([](Tensor v) { return v < 4; },
                                [&](Tensor v) {
                                  const Tensor next = see(v + 1);
                                  cond(
                                      next < 4, [&](Tensor n) { return see(n); },
                                      [&](Tensor n) { return see(-n + 3); }, next);
                                  return see(next);
                                },
                                x));
        },
        {.mode = mode});
    EXPECT_EQ(g(2).item<int>(), 4);
    EXPECT_EQ(log, (Ints{3, 3, 3, 4, -1, 4, 4}));
    Strings printed;
    auto nested = jit(
        [&](Tensor x) {
          return scan(
                     [&](Tensor c, Tensor v) {
                       const Tensor inner = scan(
                                                [&](Tensor d, Tensor w) {
                                                  tap(w + 10 * v, [&](int i) {
                                                    printed.push_back(std::to_string(i));
                                                  });
                                                  return std::pair{d + w, std::tuple<>()};
                                                },
                                                c, iota<int>(2))
                                                .first;
                       return std::pair{inner, std::tuple<>()};
                     },
                     x, iota<int>(3))
              .first;
        },
        {.mode = mode});
    EXPECT_EQ(nested(0).item<int>(), 3);
    EXPECT_EQ(printed, (Strings{"0", "1", "10", "11", "20", "21"}));
  }
}

TEST(Control, ScansStackTheirOutputs) {
  RecordProperty("covers", "CTRL-08");
  for (const Mode mode : both_modes) {
    auto count = jit(
        [](Tensor x) {
          return scan(
                     [](Tensor c) {
                       return std::pair{call(
                                            c.type(), [](int a) { return a + 1; }, c),
                                        std::tuple<>()};
                     },
                     x, {.length = 10})
              .first;
        },
        {.mode = mode});
    EXPECT_EQ(count(0).item<int>(), 10);
    Ints log;
    auto see = [&](Tensor v) { return tap(v, [&](int i) { log.push_back(i); }); };
    auto f = jit(
        [&](Tensor xs) {
          return scan(
                     [&](Tensor c, Tensor v) {
                       see(v);
                       cond(
                           equal(v % 2, 0), [&](Tensor a) { return see(a); },
                           [&](Tensor) { return see(Tensor(-1)); }, v);
                       const Tensor next = see(v + 1);
                       return std::pair{c, next};
                     },
                     0, xs)
              .second;
        },
        {.mode = mode});
    EXPECT_EQ(f(iota<int>(3)).to_vector<int>(), (Ints{1, 2, 3}));
    EXPECT_EQ(log, (Ints{0, 0, 1, 1, -1, 2, 2, 2, 3}));
  }
}

TEST(Control, ScanForms) {
  const Tensor xs = tensor<float>({1, 2, 3, 4, 5, 6, 7});
  for (const Mode mode : both_modes)
    for (const int unroll : {1, 2, 3, 7, 20}) {
      auto sums = [unroll](bool reverse) {
        return [=](Tensor v) {
          return scan(
              [](Tensor c, Tensor x) {
                return std::pair{c + x, std::tuple{c, c * x}};
              },
              0.0f, v, {.unroll = unroll, .reverse = reverse});
        };
      };
      const auto [last, ys] = jit(sums(false), {.mode = mode})(xs);
      EXPECT_EQ(last.item<float>(), 28);
      EXPECT_EQ(std::get<0>(ys).to_vector<float>(), (Floats{0, 1, 3, 6, 10, 15, 21}));
      const auto [first, back] = jit(sums(true), {.mode = mode})(xs);
      EXPECT_EQ(first.item<float>(), 28);
      EXPECT_EQ(std::get<0>(back).to_vector<float>(), (Floats{27, 25, 22, 18, 13, 7, 0}));
      auto counted = jit(
          [unroll](Tensor v) {
            return fori_loop(
                -2, 6, [](Tensor i, Tensor c) { return c * 2 + i; }, v, unroll);
          },
          {.mode = mode});
      EXPECT_EQ(counted(1).item<int>(), [] {
        int c = 1;
        for (int i = -2; i < 6; ++i) c = c * 2 + i;
        return c;
      }());
    }
  // Containers, several carries and outputs, none of either.
  auto f = jit([](std::map<std::string, Tensor> over) {
    return scan(
        [](std::tuple<Tensor, std::vector<Tensor>> c, std::map<std::string, Tensor> x) {
          std::get<0>(c) = std::get<0>(c) + x.at("a");
          std::get<1>(c)[0] = std::get<1>(c)[0] * x.at("b");
          return std::pair{c, std::array{x.at("a"), std::get<0>(c)}};
        },
        std::tuple{0, std::vector{1}}, over);
  });
  const auto [c, ys] =
      f(std::map<std::string, Tensor>{{"a", iota<int>(4)}, {"b", tensor<int>({1, 2, 3, 4})}});
  EXPECT_EQ(std::get<1>(c)[0].item<int>(), 24);
  EXPECT_EQ(ys[1].to_vector<int>(), (Ints{0, 1, 3, 6}));
  EXPECT_EQ(map([](Tensor v) { return v * v; }, xs).to_vector<float>()[3], 16);
  EXPECT_EQ(jit([](Tensor m) { return map([](Tensor row) { return sum(row); }, m); })(
                ones(type<float>({2, 3})))
                .to_vector<float>(),
            (Floats{3, 3}));
}

TEST(Control, LoopsOfNoSteps) {
  RecordProperty("covers", "CTRL-11");
  for (const Mode mode : both_modes) {
    int fired = 0, pure = 0;
    auto loop = [&](Tensor n, Effect effect, int* count) {
      return fori_loop(
          0, n,
          [=](Tensor, Tensor c) {
            return c + call(
                           {.effect = effect}, type<int>(),
                           [=](int a) {
                             ++*count;
                             return a;
                           },
                           Tensor(7));
          },
          0);
    };
    auto effectful =
        jit([&](Tensor n) { return loop(n, Effect::unordered, &fired); }, {.mode = mode});
    EXPECT_EQ(effectful(5).item<int>(), 35);
    EXPECT_EQ(fired, 5);
    EXPECT_EQ(effectful(0).item<int>(), 0);
    EXPECT_EQ(effectful(-3).item<int>(), 0);
    EXPECT_EQ(fired, 5);
    auto without = jit([&](Tensor n) { return loop(n, Effect::pure, &pure); }, {.mode = mode});
    EXPECT_EQ(without(5).item<int>(), 35);
    EXPECT_GE(pure, 1);
    EXPECT_LE(pure, 5);
    fired = 0;
    auto known = jit([&](Tensor x) { return x + loop(Tensor(0), Effect::unordered, &fired); },
                     {.mode = mode});
    EXPECT_EQ(known(3).item<int>(), 3);
    EXPECT_EQ(fired, 0);
    auto empty = jit(
        [](Tensor xs) {
          return scan([](Tensor c, Tensor x) { return std::pair{c + x, c}; }, 1.0f, xs);
        },
        {.mode = mode});
    const auto [last, ys] = empty(zeros(type<float>({0})));
    EXPECT_EQ(last.item<float>(), 1);
    EXPECT_EQ(to_string(ys.type()), "f32[0]");
  }
}

// Nothing of a body is computed before a loop of no steps, where it might not end; nor is its
// slope.
TEST(Control, LoopsKnownToHaveNoStepsAreNotEntered) {
  const auto halted = [](const Tensor& c) {  // for c > 0 it never ends
    return while_loop([](Tensor a) { return a > 0; }, [](Tensor a) { return a * 1; }, c);
  };
  const auto f = [&](Tensor x, Tensor c) {
    return sum(fori_loop(
        0, 0, [&](Tensor, Tensor y) { return y * halted(c); }, x));
  };
  const Tensor x = tensor<float>({1, 2});
  EXPECT_EQ(grad(f)(x, Tensor(1.0f)).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(jit(grad(f))(x, Tensor(1.0f)).to_vector<float>(), (Floats{1, 1}));
  const auto scanned = [](Tensor c) {
    const auto step = [&](Tensor y, Tensor row) { return std::pair{y * sqrt(c), sum(row)}; };
    return scan(step, Tensor(1.0f), zeros(type<float>({0, 2}))).first;
  };
  const auto counted = [](Tensor c) {
    return fori_loop(
        0, 0, [&](Tensor, Tensor y) { return y * sqrt(c); }, Tensor(1.0f));
  };
  EXPECT_EQ(grad(grad(scanned))(Tensor(0.0f)).item<float>(), 0);
  EXPECT_EQ(grad(grad(counted))(Tensor(0.0f)).item<float>(), 0);
}

TEST(Control, CountersAreWideWhereNeeded) {
  auto counter = [](Tensor lower, Tensor upper) {
    return fori_loop(
        lower, upper, [](Tensor i, Tensor) { return i; }, convert(lower, lower.dtype()));
  };
  EXPECT_EQ(counter(Tensor(2), Tensor(5)).dtype(), DType::s32);
  auto last = [](auto lower, auto upper) {
    return jit([=] {
      return fori_loop(
          lower, upper, [](Tensor i, Tensor c) { return c + convert<double>(i); }, 0.0);
    })();
  };
  EXPECT_EQ(last(0, 5).template item<double>(), 10);
  const std::int64_t big = std::int64_t{1} << 40;
  EXPECT_EQ(last(big, big + 3).template item<double>(), 3.0 * double(big) + 3);
  EXPECT_EQ(last(Tensor(big), Tensor(big + 3)).template item<double>(), 3.0 * double(big) + 3);
  auto traced = jit([](Tensor upper) {
    return fori_loop(
        upper - 2, upper, [](Tensor i, Tensor c) { return c + convert<double>(i); }, 0.0);
  });
  EXPECT_EQ(traced(Tensor(big)).item<double>(), 2.0 * double(big) - 3);
  EXPECT_EQ(traced(Tensor(9)).item<double>(), 15);
}

TEST(Control, BoundsBeyondTheCounter) {
  const auto steps = [](Tensor lower, Tensor upper) {
    return fori_loop(
        lower, upper, [](Tensor, Tensor n) { return n + 1; }, 0);
  };
  constexpr std::uint64_t half = std::uint64_t{1} << 63;
  for (const Mode mode : all_modes) {
    auto traced = jit(steps, {.mode = mode});
    auto count = [&](std::uint64_t lower, std::uint64_t upper) {
      return traced(Tensor(lower), Tensor(upper)).item<int>();
    };
    EXPECT_EQ(count(half + half - 2, 5), 0) << static_cast<int>(mode);
    EXPECT_EQ(count(half + 1, 5), 0) << static_cast<int>(mode);
    EXPECT_EQ(count(half - 1, half + 2), 0) << static_cast<int>(mode);
    EXPECT_EQ(count(half - 3, half + 2), 2) << static_cast<int>(mode);
    EXPECT_EQ(count(half - 3, half - 1), 2) << static_cast<int>(mode);
    EXPECT_EQ(count(2, 5), 3) << static_cast<int>(mode);
    auto to_known = jit([&](Tensor lower) { return steps(lower, 5); }, {.mode = mode});
    EXPECT_EQ(to_known(Tensor(half + 1)).item<int>(), 0) << static_cast<int>(mode);
    auto known = jit([&] { return steps(Tensor(std::uint64_t{0}), Tensor(half + half - 1)); },
                     {.mode = mode});
    expect_error<TypeError>([&] { known(); },
                            {"fori_loop", "must fit s64", "18446744073709551615"});
  }
  auto each = vmap([&](Tensor lower) { return steps(lower, 5); });
  EXPECT_EQ(each(tensor<std::uint64_t>({half + 1, 3, half - 1})).to_vector<int>(), (Ints{0, 2, 0}));
  const std::pair<std::uint64_t, std::uint64_t> wide[] = {
      {half + half - 2, 5}, {half + 1, 5}, {half - 1, half + 2}, {0, half + half - 1}};
  for (const auto& [lower, upper] : wide)
    expect_error<TypeError>(
        [&, lower = lower, upper = upper] { steps(Tensor(lower), Tensor(upper)); },
        {"fori_loop", "must fit s64", "control_test_loops.cc"});
}

TEST(Control, LongLoopsNeedNoMemory) {
  RecordProperty("covers", "CTRL-13");
  const bool slowly = std::getenv("POSTERN_TEST_STAND_IN") || !plugin_info().calls_back;
  const int steps = slowly ? 100'000 : 1'000'000;
  std::int64_t fired = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, steps,
        [&](Tensor, Tensor v) {
          return call(
              {.effect = Effect::unordered}, v.type(),
              [&](float a) {
                ++fired;
                return a + 1;
              },
              v);
        },
        x);
  });
  f(0.0f).item<float>();
  const long before = test::resident_kib();
  EXPECT_EQ(f(0.0f).item<float>(), static_cast<float>(steps));
  EXPECT_EQ(fired, 2 * steps);
  if (test::counts_memory) {
    EXPECT_LT(test::resident_kib(), before + 5 * 1024);
  }
}

TEST(Control, ACountedLoopIsACounterAndACompare) {
  auto f = jit([](Tensor x) {
    return fori_loop(
        3, 1'000'000,
        [](Tensor, Tensor v) {
          return call(
              {.effect = Effect::unordered}, v.type(), [](float a) { return a; }, v);
        },
        x);
  });
  const std::string text = f.lower(abstract(type<float>())).stablehlo();
  auto times = [&](std::string_view part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(times("stablehlo.add"), 1u) << text;
  EXPECT_EQ(times("stablehlo.compare"), 1u);
  EXPECT_EQ(times("dynamic"), 0u);
}

}  // namespace
}  // namespace postern
