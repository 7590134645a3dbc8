// Programs cut where the user says, and stages on devices that the user names.
#include <postern/block.h>

#include <cmath>

#include "devices_test.h"
#include "host/timeline.h"
#include "resident.h"

namespace postern::test {
using namespace internal;
namespace {

using DevicesStages = EightDevices;
using Operations = std::vector<std::string>;

Tensor three(Tensor x) { return exp(sin(x) * 2.0f); }

std::vector<int> equations(const std::vector<StageInfo>& stages) {
  std::vector<int> out;
  for (const StageInfo& s : stages) out.push_back(s.equations);
  return out;
}

auto cut_at(std::string operation, Cut cut) {
  return [=](const StageNode& node) { return node.operation == operation ? cut : Cut::none; };
}

TEST_F(DevicesStages, CutBeforeAfterOnBothSidesOrNot) {
  RecordProperty("covers", "STAGE-06");
  const Tensor x = tensor<float>({1, 2, 3});
  const auto whole = jit(three)(x);
  struct Case {
    Cut cut;
    std::vector<int> equations;  // by stage
  };
  for (const Case& c : {Case{Cut::none, {3}},
                        {Cut::before, {1, 2}},
                        {Cut::after, {2, 1}},
                        {Cut::both, {1, 1, 1}}}) {
    auto f = jit(three, {.cut = cut_at("multiply", c.cut)});
    EXPECT_EQ(equations(f.stages(x)), c.equations) << static_cast<int>(c.cut);
    expect_near(f(x), whole);
  }
  auto all = jit(three, {.mode = Mode::staged, .cut = [](const StageNode&) { return Cut::both; }});
  EXPECT_EQ(all.stages(x).size(), 3u);
  for (const StageInfo& s : all.stages(x))
    EXPECT_EQ(s.inputs.size() + s.outputs.size(), 2u) << "a number is no input";
  expect_near(all(x), whole);
}

TEST_F(DevicesStages, ANodeTellsWhatItIs) {
  RecordProperty("covers", "STAGE-06");
  Operations seen;
  auto f = jit(
      [](Tensor x) {
        return call(
                   x.type(),
                   [](View<const float> in, View<float> out) {
                     std::ranges::copy(in, out.begin());
                   },
                   dot(x, x)) +
               1.0f;
      },
      {.cut = [&](const StageNode& node) {
        if (node.operation == "dot_general") {
          EXPECT_EQ(node.inputs, (std::vector<Type>(2, type<float>({2, 2}))));
          EXPECT_EQ(node.outputs, (std::vector<Type>{type<float>({2, 2})}));
          EXPECT_TRUE(has(node.place.file, "devices_test_stages.cc"));
        }
        seen.emplace_back(node.operation);
        return Cut::none;
      }});
  f(ones(type<float>({2, 2}))).block_until_ready();
  EXPECT_EQ(seen, (Operations{"dot_general", "add"})) << "calls are cut at anyway, numbers never";
}

TEST_F(DevicesStages, CutsAndCallsTogetherKeepValuesAndOrder) {
  RecordProperty("covers", "STAGE-06 STAGE-09");
  for (const Cut cut : {Cut::before, Cut::after, Cut::both}) {
    std::vector<float> shown;
    auto body = [&](Tensor x, Tensor y) {
      x = tap(sin(x), [&](float v) { shown.push_back(v); });
      const Tensor z = call(
          {.effect = Effect::ordered}, x.type(), [](float v) { return v + 1; }, cos(y) * x);
      const Tensor w = fori_loop(
          0, 3,
          [&](Tensor, Tensor v) { return tap(v * 2.0f, [&](float n) { shown.push_back(n); }); }, z);
      return std::pair{grad([](Tensor v) { return v * v * v; })(w), exp(x) * y};
    };
    const Tensor x(0.3f), y(0.8f);
    const auto [a, b] = jit(body)(x, y);
    const std::vector<float> want = std::exchange(shown, {});
    auto f = jit(body, {.cut = [&](const StageNode&) { return cut; }});
    const auto [c, d] = f(x, y);
    EXPECT_NEAR(a.item<float>(), c.item<float>(), 1e-3f * std::abs(a.item<float>()));
    EXPECT_NEAR(b.item<float>(), d.item<float>(), 1e-5f);
    ASSERT_EQ(shown.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      EXPECT_NEAR(shown[i], want[i], 1e-4f * (1 + std::abs(want[i])));
    barrier();
  }
}

struct Squared {
  int power = 2;
};

TEST_F(DevicesStages, ABlockIsNeverCutInside) {
  RecordProperty("covers", "STAGE-06");
  auto with_block = [](Tensor x) {
    return exp(block(
        Squared{}, [](const Squared&, Tensor v) { return sin(v) * v; }, cos(x)));
  };
  Operations seen;
  auto f = jit(with_block, {.cut = [&](const StageNode& node) {
                 seen.emplace_back(node.operation);
                 return Cut::both;
               }});
  EXPECT_EQ(f.stages(Tensor(0.5f)).size(), 3u);
  EXPECT_EQ(seen, (Operations{"cos", "block", "exp"}));
  EXPECT_FLOAT_EQ(f(Tensor(0.5f)).item<float>(),
                  std::exp(std::sin(std::cos(0.5f)) * std::cos(0.5f)));
  // One that calls is the host's to drive, as a whole.
  auto with_call = [](Tensor x) {
    return exp(block(
        Squared{},
        [](const Squared&, Tensor v) {
          return cos(sin(call(
              v.type(), [](float n) { return n; }, v * 2.0f)));
        },
        x));
  };
  seen.clear();
  auto g = jit(with_call, {.cut = [&](const StageNode& node) {
                 seen.emplace_back(node.operation);
                 return Cut::both;
               }});
  EXPECT_EQ(equations(g.stages(Tensor(0.5f))), (std::vector<int>{1, 1}));
  EXPECT_EQ(seen, (Operations{"exp"}));
  EXPECT_FLOAT_EQ(g(Tensor(0.5f)).item<float>(), std::exp(std::cos(std::sin(1.0f))));
}

TEST_F(DevicesStages, StagesRunWhereTheUserSays) {
  RecordProperty("covers", "STAGE-08");
  int asked = 0;
  auto body = [&](Tensor x) {
    const Tensor y = sin(x);
    const Tensor z = call(
        y.type(), [](View<const float> in, View<float> out) { std::ranges::copy(in, out.begin()); },
        y);
    return std::pair{z * y, y};
  };
  auto f = jit(body, {.stage_device = [&](const StageInfo& stage) {
                 EXPECT_EQ(stage.kind, "xla");
                 return ++asked == 1 ? 2 : 5;
               }});
  const Tensor x = counting({4});
  const auto stages = f.stages(x);
  ASSERT_EQ(stages.size(), 3u);
  EXPECT_EQ(stages[0].device, 2);
  EXPECT_EQ(stages[1].device, -1);
  EXPECT_EQ(stages[2].device, 5);
  for (int i = 0; i < 3; ++i) {
    const auto [product, y] = f(x);
    EXPECT_EQ(product.device(), 5);
    EXPECT_EQ(y.device(), 2) << "what nobody needs elsewhere stays";
    expect_near(product, jit([](Tensor v) { return sin(v) * sin(v); })(x));
  }
  EXPECT_EQ(asked, 2) << "once for each stage";
  // Stages that are not placed run where the arguments are.
  auto rest = jit(body, {.stage_device = [](const StageInfo& stage) {
                    return stage.inputs.size() == 2 ? 3 : -1;
                  }});
  const auto [product, y] = rest(device_put(x, 6));
  EXPECT_EQ(product.device(), 3);
  EXPECT_EQ(y.device(), 6);
}

TEST_F(DevicesStages, CutStagesGoFromDeviceToDevice) {
  RecordProperty("covers", "STAGE-08 STAGE-06");
  for (const int n : {1, 2, 4, 8}) {
    int next = 0;
    auto chain = [](Tensor x) {
      for (int i = 0; i < 12; ++i) x = sin(x) + x;
      return x;
    };
    auto f = jit(chain, {.cut = cut_at("add", Cut::after),
                         .stage_device = [&](const StageInfo&) { return next++ % n; }});
    const Tensor x = counting({8});
    EXPECT_EQ(f.stages(x).size(), 12u);
    const Tensor y = f(x);
    EXPECT_EQ(y.device(), 11 % n);
    expect_near(y, jit(chain)(x));
  }
}

TEST_F(DevicesStages, WhatNoLaterStageNeedsIsFreed) {
  RecordProperty("covers", "STAGE-08");
  constexpr int links = 6;
  constexpr std::int64_t size = 16 << 20;  // 64 MiB
  std::vector<long> held;
  int next = 0;
  auto f = jit(
      [&](Tensor x) {
        for (int i = 0; i < links; ++i) {
          const Tensor large = sin(iota<float>(size) * x);  // goes from one device to the next
          x = call(
              {.effect = Effect::ordered}, x.type(),
              [&](float v) {
                held.push_back(resident_kib());
                return v + 1;
              },
              max(large));
        }
        return x;
      },
      {.cut = cut_at("reduce_max", Cut::before),
       .stage_device = [&](const StageInfo&) { return next++ % 2; }});
  ASSERT_EQ(f.stages(Tensor(1.0f)).size(), 3u * links);
  for (int i = 0; i < 2; ++i) f(Tensor(1.0f)).block_until_ready();
  ASSERT_EQ(held.size(), 2u * links);
  for (std::size_t i = links; counts_memory && i < held.size(); ++i)
    EXPECT_LT(held[i] - held[0], 3 * (size * 4 / 1024) / 2) << i << ": KiB more than at first";
}

TEST_F(DevicesStages, AValueMovesWhileOthersWork) {
  RecordProperty("covers", "STAGE-08");
  const auto transfers = [] {
    std::uint64_t count = 0;
    for (const auto& total : host::timeline::totals())
      count += total.kind == host::timeline::Kind::transfer ? total.count : 0;
    return count;
  };
  barrier();  // or else an earlier run may still have the device, and the stage be computed beside
              // it
  const std::uint64_t before = transfers();
  bool moved = false;
  int next = 0;
  auto f = jit(
      [&](Tensor x) {
        Tensor large = iota<float>(1 << 22) * x;
        for (int i = 0; i < 20; ++i)
          large = sin(large) + x;  // not over when the next line of the host is reached
        const Tensor y = call(
            x.type(),
            [&](float v) {
              moved = wait_until([&] { return transfers() > before; });
              return v + 1;
            },
            x);
        return sum(large * y);
      },
      {.stage_device = [&](const StageInfo&) { return next++ % 2; }});
  ASSERT_EQ(f.stages(Tensor(2.0f)).size(), 3u);
  record_timeline(true);
  const Tensor y = f(Tensor(2.0f)).block_until_ready();
  record_timeline(false);
  EXPECT_TRUE(moved) << "before the stage that reads it, while a function runs";
  EXPECT_EQ(y.device(), 1);
  const auto whole = jit([](Tensor x) {
    Tensor large = iota<float>(1 << 22) * x;
    for (int i = 0; i < 20; ++i) large = sin(large) + x;
    return sum(large * (x + 1.0f));
  });
  expect_near(y, whole(Tensor(2.0f)), 1e-3f);
}

TEST_F(DevicesStages, WhatCannotBeIsRefused) {
  const JitOptions compiled{.mode = Mode::compiled,
                            .cut = [](const StageNode&) { return Cut::both; }};
  expect_error<TypeError>([&] { jit(three, compiled); }, {"cut", "Mode::staged", "compiled"});
  auto far = jit(three, {.stage_device = [](const StageInfo&) { return 8; }});
  expect_error<TypeError>([&] { far(Tensor(1.0f)); }, {"stage_device", "8"});
  auto throws =
      jit(three, {.cut = [](const StageNode&) -> Cut { throw std::runtime_error("undecided"); }});
  for (int i = 0; i < 2; ++i)
    expect_error<std::runtime_error>([&] { throws(Tensor(1.0f)); }, {"undecided"});
}

TEST_F(DevicesStages, TapsFireOnTheDeviceOfTheirStage) {
  std::vector<std::pair<int, float>> seen;
  const auto show = [&](const TapInfo& info, float v) { seen.emplace_back(info.device, v); };
  auto f = jit([&](Tensor x) { return tap(exp(tap(x + 1.0f, show)), show); },
               {.cut = cut_at("exp", Cut::before),
                .stage_device = [](const StageInfo& s) { return s.equations == 1 ? 2 : 1; }});
  const auto stages = f.stages(Tensor(0.0f));
  ASSERT_EQ(stages.size(), 2u);
  EXPECT_FLOAT_EQ(f(Tensor(0.0f)).item<float>(), std::exp(1.0f));
  barrier();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], (std::pair{stages[0].device, 1.0f}));
  EXPECT_EQ(seen[1].first, stages[1].device);
}

TEST_F(DevicesStages, ACancelledRunEndsInsideShardMap) {
  const Mesh mesh({{"d", 4}});
  std::atomic<int> entered = 0;
  auto f = jit(
      [&](Tensor x) {
        x = shard_map(
            [&](Tensor v) {
              return fori_loop(
                  0, 100'000,
                  [&](Tensor, Tensor c) {
                    return call(
                        {.effect = Effect::unordered}, c.type(),
                        [&](View<const float> in, View<float> out) {
                          ++entered;
                          std::this_thread::sleep_for(std::chrono::milliseconds(1));
                          std::copy(in.begin(), in.end(), out.begin());
                        },
                        c);
                  },
                  v);
            },
            mesh, {.in = {P("d")}, .out = {P("d")}})(x);
        return call(
            {.name = "behind"}, x.type(),
            [&](std::span<const AnyView>, std::span<const AnyMutableView>) {
              entered += 1'000'000;
            },
            x);
      },
      {.mode = Mode::staged});
  auto run = f.start(counting({8}));
  EXPECT_TRUE(wait_until([&] { return entered > 4; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  barrier();
  EXPECT_LT(entered, 100'000);
}

}  // namespace
}  // namespace postern::test
