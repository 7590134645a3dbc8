// shard_map: loops and branches that call, and loops in reverse.
#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesShardMap = EightDevices;

TEST_F(DevicesShardMap, GroupsThatMeetGoTheirOwnWays) {
  // Devices meet along "a"; how many steps they take depends on where they are along "b".
  const Mesh mesh({{"a", 2}, {"b", 2}});
  std::atomic<int> calls{0};
  const auto f = jit(shard_map(
      [&](Tensor v) {
        const Tensor steps = axis_index("b") * 3 + 1;
        return fori_loop(
            0, steps,
            [&](Tensor, Tensor c) {
              c = call(
                  {.effect = Effect::unordered}, c.type(),
                  [&](View<const float> in, View<float> out) {
                    ++calls;
                    out[0] = in[0];
                  },
                  c);
              return psum(c, "a");
            },
            v);
      },
      mesh, {.in = {P(AxisNames{"a", "b"})}, .out = {P(AxisNames{"a", "b"})}}));
  EXPECT_EQ(f(full(type<float>({4}), 1.0f)).to_vector<float>(), (Floats{2, 16, 2, 16}));
  EXPECT_EQ(calls, 2 * 1 + 2 * 4);
}

int count_of(std::string_view text, std::string_view word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size()))
    ++n;
  return n;
}

TEST_F(DevicesShardMap, SmallLoopsThatCallAreWrittenForEachDevice) {
  struct Case {
    const char* what;
    Effect effect;
    std::int64_t steps;
    bool meets;
    int sines;        // that make the body large
    int calls, asks;  // custom calls in the text
  };
  for (const Case& c :
       {Case{"a loop", Effect::unordered, 9, false, 0, 4, 0},
        Case{"in order", Effect::ordered, 9, false, 0, 4, 0},
        Case{"XLA may take a pure call out of it", Effect::pure, 9, false, 0, 4, 4},
        Case{"devices meet in it", Effect::unordered, 9, true, 0, 1, 0},
        Case{"no loop", Effect::unordered, 0, false, 0, 1, 0},
        Case{"it would take long to compile", Effect::unordered, 9, false, 200, 1, 0}}) {
    auto part = [&](Tensor v) {
      auto step = [&](Tensor a) {
        for (int i = 0; i < c.sines; ++i) a = sin(a);
        a = call(
            {.effect = c.effect}, a.type(),
            [](const CallInfo& info, View<const float> in, View<float> out) {
              out[0] = in[0] + float(info.device);
            },
            a);
        return c.meets ? psum(a, "d") : a;
      };
      return c.steps ? fori_loop(
                           0, c.steps, [&](Tensor, Tensor a) { return step(a); }, v)
                     : step(v);
    };
    const auto f = jit(shard_map(part, Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}}));
    const std::string text = f.lower(zeros(type<float>({4}))).stablehlo();
    EXPECT_EQ(count_of(text, "\"postern_call\""), c.calls) << c.what;
    EXPECT_EQ(count_of(text, "\"postern_goes_on\""), c.asks) << c.what;
    const auto y = f(zeros(type<float>({4}))).to_vector<float>();
    const auto steps = static_cast<float>(std::max<std::int64_t>(c.steps, 1));
    EXPECT_TRUE(c.sines > 0 || c.meets || y[3] == 3 * steps) << c.what;
  }
}

TEST_F(DevicesShardMap, WhileLoopsInReverse) {
  RecordProperty("covers", "CTRL-16");
  const Mesh mesh({{"d", 2}}, {0, 1});
  auto parts = shard_map(
      [](Tensor v) {
        return while_loop([](Tensor u) { return sum(u) < 100.0f; },
                          [](Tensor u) { return u * 2.0f; }, v);
      },
      mesh, {.in = {P("d")}, .out = {P("d")}});
  auto total = [&](Tensor v) { return sum(parts(v)); };
  EXPECT_EQ(jit(grad(total))(tensor<float>({3, 60})).to_vector<float>(), (Floats{64, 2}));
  // Loops in a loop, in which devices meet; and beside a function that may fail.
  const auto nested = [](auto sums_all) {
    return [sums_all](Tensor v) {
      auto halve = [sums_all](Tensor u) {
        return while_loop([sums_all](Tensor a) { return sums_all(sum(a * a)) > 1.0f; },
                          [sums_all](Tensor a) { return 0.5f * a + 0.125f * sums_all(a); }, u);
      };
      auto step = [&](Tensor i, Tensor u) { return std::pair{i + 1, 2.0f * halve(u)}; };
      return while_loop([](Tensor i, Tensor) { return i < 3; }, step, std::pair{Tensor(0), v})
          .second;
    };
  };
  const auto on_both = nested([](Tensor a) { return psum(a, "d"); });
  const auto on_one = nested([](Tensor a) { return sum(a); });
  const Tensor x = tensor<float>({3, -1}),
               slope = jit(grad([&](Tensor v) { return sum(on_one(v)); }))(x);
  for (const bool calls : {false, true}) {
    auto part = [&](Tensor v) {
      const Tensor y = on_both(v);
      return calls ? tap(y, [](AnyView) {}) : y;
    };
    auto sums = [&](Tensor v) {
      return sum(shard_map(part, mesh, {.in = {P("d")}, .out = {P("d")}})(v));
    };
    expect_near(jit(grad(sums))(x), slope);
  }
  // What is gathered for a tape is a step's share of a block.
  auto cut = [](Tensor v) {
    return sum(while_loop([](Tensor u) { return sum(u) < 100.0f; },
                          [](Tensor u) { return 1.5f * u + sin(u); }, v));
  };
  const Tensor spread = device_put(iota<float>(8), Sharding(mesh, P("d")));
  expect_near(jit(grad(cut), {.gather_limit = 1024})(spread), jit(grad(cut))(iota<float>(8)));
}

TEST_F(DevicesShardMap, LoopsInReverseRememberWhatEachDeviceHad) {
  const Mesh mesh({{"d", 2}});
  const auto steps = [](bool calls) {  // what differs comes in inside of the loop
    return [calls](Tensor v) {
      const auto next = [calls](std::pair<Tensor, Tensor> c) {
        Tensor k = convert<float>(axis_index("d")) + 1.0f;
        if (calls)
          k = call(
              type<float>({}), [](float in) { return in; }, k);
        return std::pair{c.first * c.first * k, c.second + 1};
      };
      return while_loop([](std::pair<Tensor, Tensor> c) { return c.second < 2; }, next,
                        std::pair{v, Tensor(0)})
          .first;
    };
  };
  const auto outer = [](auto loss) {
    return [loss](Tensor w) {
      return grad([loss](Tensor a) {
        return fori_loop(
            0, 2, [loss](Tensor, Tensor c) { return loss(c) * 0.1f; }, a);
      })(w);
    };
  };
  const auto batch = [one = steps(false)](Tensor v) {
    return sum(vmap([one, v](Tensor) { return one(v); }, {.axis_name = "d"})(iota<float>(2)));
  };
  const float want = jit(outer(batch))(Tensor(1.1f)).item<float>();
  for (const Mode mode : test::all_modes) {
    for (const bool calls : {false, true}) {
      const auto parts = [mesh, one = steps(calls)](Tensor v) {
        const auto row = [one](Tensor part) { return expand_dims(one(part), 0); };
        return sum(shard_map(row, mesh, {.in = {P()}, .out = {P("d")}})(v));
      };
      const Tensor got = jit(outer(parts), {.mode = mode})(Tensor(1.1f));
      EXPECT_NEAR(got.item<float>(), want, 1e-4f * want) << static_cast<int>(mode) << calls;
    }
  }
}

}  // namespace
}  // namespace postern::test
