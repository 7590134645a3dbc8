// Branches and loops: what they compute, what fires in them, and what is refused.
#include "support.h"

namespace postern {
namespace {

using test::both_modes, test::expect_error;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Strings = std::vector<std::string>;

TEST(Control, OnlyTheChosenBranchFires) {
  RecordProperty("covers", "CTRL-01");
  for (const Mode mode : both_modes) {
    Strings log;
    auto note = [&](const char* name) { return [&log, name](float) { log.push_back(name); }; };
    auto f = jit(
        [&](Tensor p, Tensor x) {
          return cond(
              p, [&](Tensor v) { return tap(v + 1.0f, note("then")); },
              [&](Tensor v) { return tap(v + 2.0f, note("else")); }, x);
        },
        {.mode = mode});
    EXPECT_EQ(f(true, 1.0f).item<float>(), 2);
    EXPECT_EQ(f(false, 1.0f).item<float>(), 3);
    EXPECT_EQ(log, (Strings{"then", "else"}));
    auto g = jit(
        [](Tensor x) {
          return cond(
              x > 0.0f,
              [](Tensor v) {
                return call(
                    v.type(), [](float a) { return 2 * a; }, v);
              },
              [](Tensor v) { return -v; }, x);
        },
        {.mode = mode});
    EXPECT_EQ(g(5.0f).item<float>(), 10);
    EXPECT_EQ(g(-3.0f).item<float>(), 3);
    log.clear();
    auto s = jit(
        [&](Tensor i, Tensor x) {
          return switch_(i,
                         std::tuple{[&](Tensor v) { return tap(v, note("b1")); },
                                    [&](Tensor v) { return tap(v * 2.0f, note("b2")); },
                                    [&](Tensor v) { return tap(v * 3.0f, note("b3")); }},
                         x);
        },
        {.mode = mode});
    for (int i : {0, 1, 2}) EXPECT_EQ(s(i, 1.0f).item<float>(), float(i + 1));
    EXPECT_EQ(log, (Strings{"b1", "b2", "b3"}));
    EXPECT_EQ(s(-5, 1.0f).item<float>(), 1);
    EXPECT_EQ(s(77, 1.0f).item<float>(), 3);
  }
}

TEST(Control, CallsInLoopBodies) {
  RecordProperty("covers", "CTRL-03");
  for (const Mode mode : both_modes) {
    int fired = 0;
    auto plus_one = [&](Tensor x) {
      return call(
          x.type(),
          [&](View<const int> a, View<int> out) {
            ++fired;
            for (std::int64_t i = 0; i < a.size(); ++i) out[i] = a[i] + 1;
          },
          x);
    };
    auto scalar =
        jit([&](Tensor x) { return while_loop([](Tensor v) { return v < 10; }, plus_one, x); },
            {.mode = mode});
    EXPECT_EQ(scalar(0).item<int>(), 10);
    EXPECT_EQ(fired, 10);
    auto vector =
        jit([&](Tensor x) { return while_loop([](Tensor v) { return any(v < 10); }, plus_one, x); },
            {.mode = mode});
    EXPECT_EQ(vector(iota<int>(5)).to_vector<int>(), (Ints{10, 11, 12, 13, 14}));
    auto tuple = jit(
        [&](Tensor n) {
          return while_loop([](Tensor, Tensor i) { return i > 0; },
                            [](Tensor v, Tensor i) {
                              return std::tuple{call(
                                                    v.type(), [](int a) { return 2 * a; }, v),
                                                i - 1};
                            },
                            std::tuple{1, n});
        },
        {.mode = mode});
    EXPECT_EQ(std::get<0>(tuple(3)).item<int>(), 8);
    fired = 0;
    auto accumulated = jit(
        [&](Tensor x) {
          return fori_loop(
              0, 4,
              [&](Tensor, Tensor v, Tensor total) {
                const Tensor now = call(
                    v.type(),
                    [&](int a) {
                      ++fired;
                      return a;
                    },
                    v);
                return std::tuple{v * 2, total + now};
              },
              std::tuple{x, 0});
        },
        {.mode = mode});
    EXPECT_EQ(std::get<1>(accumulated(10)).item<int>(), 150);
    EXPECT_EQ(fired, 4);
  }
}

TEST(Control, ConditionsFireOnceMore) {
  RecordProperty("covers", "CTRL-04");
  for (const Mode mode : both_modes) {
    int asked = 0;
    auto f = jit(
        [&](Tensor x) {
          return while_loop(
              [&](Tensor v) {
                return call(
                    type<bool>(),
                    [&](int a) {
                      ++asked;
                      return a < 10;
                    },
                    v);
              },
              [](Tensor v) { return v + 1; }, x);
        },
        {.mode = mode});
    EXPECT_EQ(f(5).item<int>(), 10);
    EXPECT_EQ(asked, 6);
    asked = 0;
    EXPECT_EQ(f(10).item<int>(), 10);
    EXPECT_EQ(asked, 1);
    Strings log;
    auto g = jit(
        [&](Tensor x) {
          return while_loop(
              [&](Tensor v) { return tap(v < 3, [&](bool b) { log.push_back(b ? "T" : "F"); }); },
              [&](Tensor v) {
                return tap(v + 1, [&](int i) { log.push_back(std::to_string(i)); });
              },
              x);
        },
        {.mode = mode});
    EXPECT_EQ(g(1).item<int>(), 3);
    EXPECT_EQ(log, (Strings{"T", "2", "T", "3", "F"}));
  }
}

TEST(Control, TheHostDecides) {
  RecordProperty("covers", "CTRL-05");
  for (const Mode mode : both_modes) {
    auto chosen = jit(
        [](Tensor x) {
          const Tensor p = call(
              type<bool>(), [](float a) { return a > 1; }, x);
          return cond(
              p, [](Tensor v) { return v * 10.0f; }, [](Tensor v) { return v; }, x);
        },
        {.mode = mode});
    EXPECT_EQ(chosen(2.0f).item<float>(), 20);
    EXPECT_EQ(chosen(1.0f).item<float>(), 1);
    auto until = jit(
        [](Tensor x) {
          return while_loop(
              [](Tensor v) {
                return call(
                    type<bool>(), [](bool b) { return b; }, any(v < 10));
              },
              [](Tensor v) { return v + 1; }, x);
        },
        {.mode = mode});
    EXPECT_EQ(until(iota<int>(5)).to_vector<int>(), (Ints{10, 11, 12, 13, 14}));
    int left = 3;
    auto stops = jit(
        [&](Tensor x) {
          return while_loop(
              [&](Tensor) {
                return call({.effect = Effect::unordered}, type<bool>(),
                            [&] { return left-- > 0; });
              },
              [](Tensor v) { return v + 1; }, x);
        },
        {.mode = mode});
    EXPECT_EQ(stops(0).item<int>(), 3);
  }
}

TEST(Control, CountersHoldEachStepOfALongLoop) {
  const auto long_sum = [](Tensor v) {
    const auto step = [&](Tensor i, Tensor s) { return s + dynamic_index(v, i % 3); };
    return fori_loop(-2'000'000'000, 2'000'000'000, step, Tensor(0.0f));
  };
  const Tensor v = tensor<float>({1, 2, 3});
  EXPECT_FALSE(
      test::has(jit(grad(long_sum)).lower(v).stablehlo(), "dense<4000000000> : tensor<i32>"));
  const auto least = std::numeric_limits<std::int64_t>::min();
  expect_error<TypeError>(
      [&] {
        fori_loop(
            least, 1, [](Tensor, Tensor s) { return s; }, Tensor(0.0f));
      },
      {"fori_loop", "more steps than can be counted"});
}

TEST(Control, CarriesAreChecked) {
  const Tensor v = tensor<float>({1, 2, 3});
  expect_error<TypeError>(
      [&] { while_loop([](Tensor) { return Tensor(true); }, [](Tensor x) { return sum(x); }, v); },
      {"while_loop", "f32[3]", "f32[]", "control_test.cc"});
  expect_error<TypeError>(
      [&] {
        fori_loop(
            0, 3,
            [](Tensor, std::map<std::string, Tensor> c) {
              c["mean"] = convert<int>(c["mean"]);
              return c;
            },
            std::map<std::string, Tensor>{{"mean", v}});
      },
      {"fori_loop", ".mean", "f32[3]", "s32[3]", "control_test.cc"});
  expect_error<TypeError>(
      [&] {
        scan([](Tensor c, Tensor) { return std::pair{convert<double>(c), c}; }, Tensor(1.0f), v);
      },
      {"scan", "f32[]", "f64[]"});
  expect_error<TypeError>(
      [&] {
        fori_loop(
            0, 3,
            [](Tensor, std::vector<Tensor> c) {
              c.push_back(c[0]);
              return c;
            },
            std::vector{v});
      },
      {"structure"});
  expect_error<TypeError>(
      [&] { while_loop([](Tensor x) { return x; }, [](Tensor x) { return x; }, Tensor(1.0f)); },
      {"condition", "pred[]", "f32[]"});
  expect_error<TypeError>(
      [&] {
        cond(
            Tensor(1.0f), [](Tensor x) { return x; }, [](Tensor x) { return x; }, v);
      },
      {"cond", "pred", "f32[]", "control_test.cc"});
  expect_error<TypeError>(
      [&] {
        cond(
            true, [](Tensor x) { return x; }, [](Tensor x) { return sum(x); }, v);
      },
      {"f32[3]", "f32[]", "control_test.cc"});
  expect_error<TypeError>(
      [&] {
        scan([](Tensor c, Tensor x) { return std::pair{c, x}; }, 0.0f, Tensor(1.0f));
      },
      {"first axis", "f32[]"});
  expect_error<TypeError>(
      [&] {
        scan(
            [](Tensor c, std::pair<Tensor, Tensor> x) {
              return std::pair{c, x};
            },
            0.0f, std::pair{v, iota<int>(4)});
      },
      {"one length", "s32[4]"});
  expect_error<TypeError>(
      [&] {
        scan([](Tensor c) { return std::pair{c, c}; }, 0.0f, {.unroll = 2});
      },
      {"length"});
  expect_error<TypeError>(
      [&] {
        fori_loop(
            0.5f, 3, [](Tensor, Tensor c) { return c; }, v);
      },
      {"bound", "f32[]"});
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) { return switch_(x, std::tuple{[](Tensor a) { return a; }}, x); })(1.0f);
      },
      {"switch_", "integer"});
}

TEST(Control, NumbersInCarriesAdoptTheBodysType) {
  EXPECT_EQ(fori_loop(
                0, 3, [](Tensor, Tensor c) { return c + Tensor(0.5); }, 0.0f)
                .dtype(),
            DType::f64);
  EXPECT_EQ(while_loop([](Tensor c) { return c < 3; }, [](Tensor c) { return c + Tensor(0.5f); }, 0)
                .item<float>(),
            3);
  EXPECT_EQ(scan(
                [](Tensor c, Tensor x) {
                  return std::pair{c + x, x};
                },
                0, tensor<float>({1.5f, 2}))
                .first.item<float>(),
            3.5f);
  EXPECT_EQ(cond(
                true, [](Tensor x) { return x; }, [](Tensor) { return 1.0f; }, Tensor(2.0))
                .dtype(),
            DType::f64);
}

TEST(Control, CapturedTensorsAndOuterValues) {
  const Tensor big = iota<float>(5000);
  for (const Mode mode : both_modes) {
    auto f = jit(
        [&](Tensor x) {
          const Tensor y = x * 2.0f;
          const Tensor unused = sin(y);
          return fori_loop(
              0, 2,
              [&](Tensor i, Tensor c) {
                return cond(
                    equal(i, 0), [&](Tensor v) { return v + y; },
                    [&](Tensor v) { return v + sum(big) * 0.0f + unused * 0.0f + x; }, c);
              },
              x);
        },
        {.mode = mode});
    EXPECT_EQ(f(3.0f).item<float>(), 12);
  }
}

TEST(Control, FoldsAreOrderedAndReducersRefuseEffects) {
  RecordProperty("covers", "CTRL-12");
  Ints log;
  auto fold = jit([&](Tensor xs) {
    return scan(
               [&](Tensor c, Tensor x) {
                 return std::pair{tap(c + x, [&](int v) { log.push_back(v); }), std::tuple<>()};
               },
               0, xs)
        .first;
  });
  EXPECT_EQ(fold(tensor<int>({1, 2, 3})).item<int>(), 6);
  EXPECT_EQ(log, (Ints{1, 3, 6}));
  expect_error<TypeError>(
      [&] {
        jit([](Tensor xs) {
          return reduce([](Tensor a, Tensor b) { return tap({.name = "fold"}, a + b, [](int) {}); },
                        xs, 0);
        })(tensor<int>({1, 2, 3}));
      },
      {"fold", "control_test.cc"});
}

/// One of the weights times x, as an else-if for each would have it; the last is x alone.
Tensor chosen(const Tensor& i, const Tensor& x, const std::vector<Tensor>& w, int k = 0) {
  if (k == static_cast<int>(w.size())) return x;
  return cond(
      i == k, [&](Tensor v) { return w[static_cast<std::size_t>(k)] * v; },
      [&](Tensor v) { return chosen(i, v, w, k + 1); }, x);
}

TEST(Control, ABranchInABranchIsTransformedOnce) {
  constexpr int count = 24;  // twice for each would be for ever
  std::vector<Tensor> w, dw;
  for (int k = 0; k < count; ++k) w.emplace_back(0.5f * static_cast<float>(k + 1));
  dw.assign(count, Tensor(1.0f));
  for (const Mode mode : both_modes) {
    auto slopes = jit(
        [](Tensor i, Tensor x, std::vector<Tensor> v) {
          return grad([&](std::vector<Tensor> u) { return chosen(i, x, u); })(v);
        },
        {.mode = mode});
    auto moved = jit(
        [](Tensor i, Tensor x, std::vector<Tensor> v, std::vector<Tensor> dv) {
          return jvp([&](std::vector<Tensor> u) { return chosen(i, x, u); }, std::tuple{v},
                     std::tuple{dv});
        },
        {.mode = mode});
    auto batched = jit(
        [](Tensor i, Tensor xs, std::vector<Tensor> v) {
          return vmap([&](Tensor x) { return chosen(i, x, v); })(xs);
        },
        {.mode = mode});
    for (const int k : {0, 1, count - 1, count}) {
      const auto got = slopes(k, 3.0f, w);
      for (int j = 0; j < count; ++j)
        EXPECT_EQ(got[static_cast<std::size_t>(j)].item<float>(), j == k ? 3 : 0) << k << ' ' << j;
      const float weight = k < count ? 0.5f * static_cast<float>(k + 1) : 1;
      const auto [y, dy] = moved(k, 3.0f, w, dw);
      EXPECT_EQ(y.item<float>(), 3 * weight);
      EXPECT_EQ(dy.item<float>(), k < count ? 3 : 0);
      EXPECT_EQ(batched(k, tensor<float>({1, 2}), w).to_vector<float>(),
                (Floats{weight, 2 * weight}));
    }
  }
}

TEST(Control, AResultIsWeakWhereItIsInAllBranches) {
  const auto product = [](bool number_first) {
    return jit([=](Tensor p, Tensor x, Tensor h) {
      const auto number = [](Tensor) { return Tensor(0.0f); };
      const auto same = [](Tensor v) { return v; };
      return number_first ? cond(p, number, same, x) * h : cond(p, same, number, x) * h;
    });
  };
  const Tensor half = convert(Tensor(1.0f), DType::bf16),
               precise = reshape(tensor<float>({1.001f}), {});
  for (const bool number_first : {true, false}) {
    const Tensor got = product(number_first)(!number_first, precise, half);
    EXPECT_EQ(got.dtype(), DType::f32);
    EXPECT_EQ(got.item<float>(), 1.001f);
  }
}

}  // namespace
}  // namespace postern
