// Where programs are cut that could run as one: by what it costs, and with what reasons.
#include "devices_test.h"
#include "run/costs.h"

#include <thread>

namespace postern::test {
namespace {

using DevicesChoice = EightDevices;
using internal::run::CostsScope;

std::vector<std::string> kinds(const std::vector<StageInfo>& stages) {
  std::vector<std::string> out;
  for (const StageInfo& s : stages) out.push_back(s.kind);
  return out;
}
using Kinds = std::vector<std::string>;

constexpr Costs slow_launches{1, 1, 1e9, 1e12, 1e12}, slow_memory{1e-9, 1e-9, 1e9, 1e12, 1e3},
    slow_numbers{1e-6, 1e-6, 1e12, 1e6, 1e12};

/// A device on which a function is, told by a call in it.
Tensor seen_on(std::atomic<int>& device, const Tensor& x) {
  return call(
      {.effect = Effect::unordered}, x.type(),
      [&device](const CallInfo& info, View<const float> in, View<float> out) {
        device = info.device;
        std::copy_n(in.data(), in.size(), out.data());
      },
      x);
}

TEST_F(DevicesChoice, CostDecidesBetweenASiteAndAStage) {
  std::atomic<int> device{-1};
  const auto inner = jit([&](Tensor x) { return seen_on(device, sin(x)); });
  const auto sine = jit([](Tensor x) { return sin(x); });
  const auto f = [&](Tensor x) {
    return call({.name = "over", .device = 1}, x, inner, x * 2.0f) + 1.0f;
  };
  const Tensor x = counting({64});
  const Tensor want = sin(x * 2.0f) + 1.0f;
  const auto tried = [&](const Costs& costs, const Kinds& stages, const std::string& reason) {
    const CostsScope scope(costs);
    const auto g = jit(f);
    const auto cut = g.stages(x);
    EXPECT_EQ(kinds(cut), stages);
    EXPECT_TRUE(has(to_string(cut), reason)) << to_string(cut);
    for (int i = 0; i < 3; ++i) {
      device = -1;
      expect_near(g(x), want);
      EXPECT_EQ(device, 1);
    }
    const auto slope =
        jit(grad([&](Tensor v) { return sum(call({.device = 1}, v, sine, v * 2.0f)); }));
    expect_near(slope(x), 2.0f * cos(x * 2.0f), 1e-4f);
    expect_near(jit(vmap([&](Tensor v) { return f(v); }))(reshape(x, {8, 8})),
                reshape(want, {8, 8}));
  };
  tried(slow_launches, {"xla"},
        "one program; call 'over' on device 1: 2000.0 ms as a stage, 1000.0 ms from inside");
  tried(slow_memory, {"xla", "call_on_device", "xla"},
        "call 'over' on device 1: 0.0 us as a stage, 512.0 ms from inside of the program");
}

TEST_F(DevicesChoice, WhatDoesNotDependOnItGoesOnBeside) {
  const auto inner = jit([](Tensor x) { return dot(x, x); });
  const auto f = jit([&](Tensor x, Tensor w) {
    const Tensor y = call({.name = "over", .device = 1}, x, inner, x * 2.0f);
    return y + dot(dot(w, w), w);
  });
  const Tensor x = counting({128, 128}) / 5000.0f, w = counting({128, 128}) / 9000.0f;
  const Tensor want = dot(x * 2.0f, x * 2.0f) + dot(dot(w, w), w);
  const CostsScope scope(slow_numbers);
  const auto cut = f.stages(x, w);
  ASSERT_EQ(kinds(cut), (Kinds{"xla", "xla", "call_on_device", "xla"})) << to_string(cut);
  EXPECT_EQ(cut[0].reason, "the program begins");
  EXPECT_EQ(cut[0].equations, 1);
  EXPECT_EQ(cut[1].reason, "nothing that follows waits for it: it runs beside the host");
  EXPECT_EQ(cut[1].equations, 2);
  EXPECT_EQ(cut[2].device, 1);
  EXPECT_EQ(cut[2].name, "over");
  EXPECT_TRUE(has(cut[2].reason, " of other work beside it, ")) << cut[2].reason;
  EXPECT_EQ(cut[3].reason, "reads what call 'over' on device 1 gives");
  expect_near(f(x, w), want, 1e-4f);
}

TEST_F(DevicesChoice, HostFunctionsBeginWhenTheirOperandsAreThere) {
  const CostsScope scope(slow_numbers);
  const auto f = jit(
      [](Tensor x, Tensor w) {
        const Tensor y = host_plus_one(sum(x));
        const Tensor z = tap(dot(w, w), [](View<const float>) {});
        return y + sum(dot(z, w)) + sum(dot(dot(w, w), w));
      },
      {.mode = Mode::staged});
  const Tensor x = counting({4}), w = counting({128, 128}) / 9000.0f;
  const auto cut = f.stages(x, w);
  ASSERT_EQ(kinds(cut), (Kinds{"xla", "xla", "call", "xla"})) << to_string(cut);
  EXPECT_EQ(cut[2].reason, "Mode::staged cuts at calls");
  const float want = sum(x).item<float>() + 1 + 2 * sum(dot(dot(w, w), w)).item<float>();
  EXPECT_NEAR(f(x, w).item<float>(), want, 1e-2f * std::abs(want));
  // A little more is not worth a program.
  const auto small =
      jit([](Tensor v) { return host_plus_one(sum(v)) + sum(sin(v)); }, {.mode = Mode::staged});
  EXPECT_EQ(kinds(small.stages(x)), (Kinds{"xla", "call", "xla"}));
}

TEST_F(DevicesChoice, CallsThatNeedNotBeStagesStayInside) {
  std::vector<std::string> order;
  const auto noted = [&](const char* name, Tensor x) {
    return call(
        {.name = name, .effect = Effect::ordered}, x.type(),
        [&order, name](float v) {
          order.emplace_back(name);
          return v;
        },
        x);
  };
  const auto inner = jit([](Tensor x) { return x + 10.0f; });
  const auto f = jit([&](Tensor x) {
    const Tensor y = noted("first", x);
    const Tensor z = call({.name = "over", .device = 1}, y, inner, y * 2.0f);
    return noted("last", noted("second", y) + z);
  });
  const CostsScope scope(slow_memory);
  const auto cut = f.stages(Tensor(1.0f));
  EXPECT_EQ(kinds(cut), (Kinds{"xla", "call_on_device", "xla"})) << to_string(cut);
  for (int i = 0; i < 3; ++i) {
    order.clear();
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 13);
    EXPECT_EQ(order, (std::vector<std::string>{"first", "second", "last"}));
  }
  const auto fails = jit([&](Tensor x) {
    const Tensor y = call({.device = 1}, x, inner, x);
    return call(
        {.name = "bad"}, x.type(), [](float) -> float { throw std::runtime_error("no"); }, y);
  });
  ASSERT_EQ(kinds(fails.stages(Tensor(1.0f))), (Kinds{"call_on_device", "xla"}));
  const auto e = error_of<CallbackError>([&] { fails(Tensor(1.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->site().name, "bad");
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 13);
}

TEST_F(DevicesChoice, LoopsGoToTheHostWithTheirStages) {
  const auto inner = jit([](Tensor x) { return x + 1.0f; });
  const auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 4,
        [&](Tensor, Tensor c) { return call({.name = "step", .device = 1}, c, inner, c * 2.0f); },
        x);
  });
  const Tensor x = counting({64});
  const Floats want = (x * 16.0f + 15.0f).to_vector<float>();
  {
    const CostsScope scope(slow_memory);
    const auto cut = f.stages(x);
    ASSERT_EQ(kinds(cut), (Kinds{"scan"})) << to_string(cut);
    EXPECT_EQ(cut[0].reason, "call 'step' on device 1 is in it, so the host drives it");
    EXPECT_EQ(f(x).to_vector<float>(), want);
  }
  const CostsScope scope(slow_launches);
  const auto whole = jit([&](Tensor v) { return f(v) * 1.0f; });
  EXPECT_EQ(kinds(whole.stages(x)), (Kinds{"xla"}));
  EXPECT_EQ(whole(x).to_vector<float>(), want);
}

TEST_F(DevicesChoice, ACallWhereTheProgramIsIsAPartOfIt) {
  std::atomic<int> device{-1};
  const auto inner = jit([&](Tensor x) { return seen_on(device, x * x); });
  const auto f = jit([&](Tensor x) { return call({.device = 1}, x, inner, x + 1.0f) * 2.0f; });
  const auto printed = [&](const Tensor& x) { return f.program(x).text(); };
  const Tensor here = counting({3}), there = device_put(counting({3}), 1);
  EXPECT_TRUE(has(printed(here), "call_on_device"));
  EXPECT_FALSE(has(printed(there), "call_on_device"));
  for (int i = 0; i < 2; ++i)
    for (const Tensor& x : {here, there}) {
      device = -1;
      EXPECT_EQ(f(x).to_vector<float>(), (Floats{2, 8, 18}));
      EXPECT_EQ(device, 1);
    }
  EXPECT_EQ(kinds(f.stages(there)), (Kinds{"xla"}));
  EXPECT_EQ(f.stages(there)[0].reason,
            "one program; its host functions are called from inside of it");
  EXPECT_EQ(jit([](Tensor x) { return x; }).stages(here)[0].reason,
            "one program; it calls nothing");
  const auto loop = jit([&](Tensor x) {
    return fori_loop(
        0, 3, [&](Tensor, Tensor c) { return call({.device = 1}, c, inner, c); }, x);
  });
  EXPECT_FALSE(has(loop.program(there).text(), "call_on_device"));
  EXPECT_EQ(loop(there).to_vector<float>(), (Floats{0, 1, 256}));
}

TEST_F(DevicesChoice, CallsThatGoOnKeepTheirProgramWhole) {
  const auto inner = jit([](Tensor x) { return x + 1.0f; });
  const auto f = jit([&](Tensor x) {
    const auto started = start_call(
        x.type(), [](float v) { return v * 2; }, x);
    return call({.device = 1}, x, inner, x) + wait(started);
  });
  const CostsScope scope(slow_memory);
  EXPECT_EQ(kinds(f.stages(Tensor(1.0f))), (Kinds{"xla"}));
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 4);
}

TEST_F(DevicesChoice, ReasonsOfWhatTheUserAsksFor) {
  const auto before = [](const StageNode& n) {
    return n.operation == "exp" ? Cut::before : Cut::none;
  };
  const auto after = [](const StageNode& n) {
    return n.operation == "sin" ? Cut::after : Cut::none;
  };
  const auto reason = [](std::function<Cut(const StageNode&)> cut) {
    const auto f = jit([](Tensor x) { return exp(sin(x) + 1.0f); }, {.cut = std::move(cut)});
    const auto stages = f.stages(Tensor(1.0f));
    EXPECT_EQ(stages.size(), 2u);
    return stages.back().reason;
  };
  EXPECT_EQ(reason(before), "JitOptions::cut says so before exp");
  EXPECT_EQ(reason(after), "JitOptions::cut says so after sin");
  const auto loop = jit(
      [](Tensor x) {
        return fori_loop(
            0, 2, [](Tensor, Tensor c) { return host_plus_one(c); }, x);
      },
      {.mode = Mode::staged});
  EXPECT_TRUE(has(to_string(loop.stages(Tensor(1.0f))), "is in it, so the host drives it"));
}

TEST_F(DevicesChoice, CostsAreMeasured) {
  const Costs c = costs(1);
  for (const double one : {c.launch, c.latency, c.bandwidth, c.flops, c.bytes}) EXPECT_GT(one, 0);
  EXPECT_LT(c.launch, 0.1);
  EXPECT_GT(c.flops, 1e7);
  EXPECT_EQ(costs(0).launch, c.launch) << "once for a platform";
  EXPECT_TRUE(has(to_string(c), "launch ") && has(to_string(c), "GFLOP/s")) << to_string(c);
  EXPECT_THROW(costs(99), TypeError);
}

}  // namespace
}  // namespace postern::test
