// vmap of loops and branches: what runs and fires for which elements.
#include "vmap_test.h"

namespace postern {
namespace {

using test::both_modes, test::Seen, test::expect_error;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Strings = std::vector<std::string>;

TEST(Vmap, LoopsRunForTheElementsThatAreAlive) {
  RecordProperty("covers", "VMAP-13");
  for (const Mode mode : both_modes) {
    Seen body, predicate;
    auto f = jit(vmap([&](Tensor x) {
                   return while_loop([&](Tensor v) { return tap(v < 2, predicate.shows()); },
                                     [&](Tensor v) { return tap(v + 1, body.shows()); }, x);
                 }),
                 {.mode = mode});
    EXPECT_EQ(f(iota<int>(5)).to_vector<int>(), (Ints{2, 2, 2, 3, 4}));
    EXPECT_EQ(body.lines, (Strings{"[1 2 3 4 5] batch(0) TTFFF", "[2 3 3 4 5] batch(0) TFFFF"}));
    EXPECT_EQ(predicate.lines, (Strings{"[1 1 0 0 0] batch(0)", "[1 0 0 0 0] batch(0) TTFFF",
                                        "[0 0 0 0 0] batch(0) TFFFF"}));
  }
}

TEST(Vmap, CallsInLoopsAndBranchesRunForLiveElements) {
  RecordProperty("covers", "VMAP-14");
  for (const Mode mode : both_modes)
    for (const Effect effect : {Effect::pure, Effect::unordered, Effect::ordered}) {
      int fired = 0;
      auto f = jit(vmap([&](Tensor x) {
                     return while_loop([](Tensor v) { return v < 5; },
                                       [&](Tensor v) {
                                         return call(
                                             {.effect = effect}, v.type(),
                                             [&](int a) {
                                               ++fired;
                                               return a + 1;
                                             },
                                             v);
                                       },
                                       x);
                   }),
                   {.mode = mode});
      EXPECT_EQ(f(tensor<int>({0, 4})).to_vector<int>(), (Ints{5, 5}));
      EXPECT_EQ(fired, 6);
      auto guarded = jit(vmap([&](Tensor x) {
                           return cond(
                               x > 0.0f,
                               [&](Tensor v) {
                                 return call(
                                     {.effect = effect}, v.type(),
                                     [](float a) {
                                       if (a < 0) throw std::domain_error("negative");
                                       return std::sqrt(a);
                                     },
                                     v);
                               },
                               [](Tensor v) { return -v; }, x);
                         }),
                         {.mode = mode});
      EXPECT_EQ(guarded(tensor<float>({-1, 1, 4})).to_vector<float>(), (Floats{1, 1, 2}));
      // In both at once, nested.
      Ints calls;
      auto nested = jit(vmap([&](Tensor x) {
                          return while_loop([](Tensor v) { return v < 6; },
                                            [&](Tensor v) {
                                              return cond(
                                                  equal(v % 2, 0),
                                                  [&](Tensor a) {
                                                    return call(
                                                        {.effect = effect}, a.type(),
                                                        [&](int b) {
                                                          calls.push_back(b);
                                                          return b + 1;
                                                        },
                                                        a);
                                                  },
                                                  [](Tensor a) { return a + 1; }, v);
                                            },
                                            x);
                        }),
                        {.mode = mode});
      EXPECT_EQ(nested(tensor<int>({1, 4, 9})).to_vector<int>(), (Ints{6, 6, 9}));
      EXPECT_EQ(calls, (Ints{4, 2, 4}));
    }
}

TEST(Vmap, BranchesFireForTheElementsThatTakeThem) {
  RecordProperty("covers", "VMAP-15");
  for (const Mode mode : both_modes) {
    Seen first, second;
    Ints called;
    auto f = jit(vmap([&](Tensor p, Tensor x) {
                   return cond(
                       p,
                       [&](Tensor v) {
                         const Tensor y = tap(v * 2, first.shows());
                         return call(
                             {.effect = Effect::unordered}, y.type(),
                             [&](const CallInfo& info, int a) {
                               called.push_back(int(info.element));
                               return a;
                             },
                             y);
                       },
                       [&](Tensor v) { return tap(-v, second.shows()); }, x);
                 }),
                 {.mode = mode});
    EXPECT_EQ(f(tensor<bool>({true, true, true}), tensor<int>({1, 2, 3})).to_vector<int>(),
              (Ints{2, 4, 6}));
    EXPECT_EQ(first.lines.size(), 1u);
    EXPECT_TRUE(second.lines.empty()) << "a branch that nobody takes";
    first.lines.clear();
    called.clear();
    EXPECT_EQ(f(tensor<bool>({true, false, true}), tensor<int>({1, 2, 3})).to_vector<int>(),
              (Ints{2, -2, 6}));
    EXPECT_EQ(first.lines, (Strings{"[2 4 6] batch(0) TFT"}));
    EXPECT_EQ(second.lines, (Strings{"[-1 -2 -3] batch(0) FTF"}));
    EXPECT_EQ(called, (Ints{0, 2}));
    // Two predicates on different axes.
    Seen inner;
    auto g = [&](Tensor p, Tensor q) {
      return cond(
          p,
          [&](Tensor r) {
            return cond(
                r, [&] { return tap(Tensor(1), inner.shows()); }, [] { return Tensor(2); });
          },
          [](Tensor) { return Tensor(3); }, q);
    };
    auto grid =
        jit(vmap(vmap(g, {.in_axes = {unmapped, 0}}), {.in_axes = {0, unmapped}}), {.mode = mode});
    EXPECT_EQ(grid(tensor<bool>({true, false, true}), tensor<bool>({false, true})).to_vector<int>(),
              (Ints{2, 1, 3, 3, 2, 1}));
    ASSERT_EQ(inner.lines.size(), 1u);
    EXPECT_TRUE(test::has(inner.lines[0], "FTFFFT")) << inner.lines[0];
  }
}

TEST(Vmap, OrderedConditionsAreRefused) {
  auto f = [](Tensor x) {
    return while_loop(
        [](Tensor v) {
          return call(
              {.name = "go", .effect = Effect::ordered}, type<bool>(), [](int a) { return a < 3; },
              v);
        },
        [](Tensor v) { return v + 1; }, x);
  };
  EXPECT_EQ(jit(f)(0).item<int>(), 3);
  expect_error<TypeError>([&] { jit(vmap(f))(iota<int>(3)); },
                          {"go", "ordered", "while_loop", "vmap_test_loops.cc"});
}

TEST(Vmap, LoopsThatEndTogetherStayPlain) {
  auto f = vmap([](Tensor x) {
    return std::get<1>(while_loop([](Tensor i, Tensor) { return i < 3; },
                                  [](Tensor i, Tensor v) {
                                    return std::tuple{i + 1, v * 2};
                                  },
                                  std::tuple{0, x}));
  });
  EXPECT_EQ(jit(f)(iota<int>(3)).to_vector<int>(), (Ints{0, 8, 16}));
  EXPECT_FALSE(test::has(jit(f).program(iota<int>(3)).text(), "select"));
}

}  // namespace
}  // namespace postern
