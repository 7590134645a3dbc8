// Compiled functions called on other devices from inside programs.
#include <postern/c.h>

#include <atomic>
#include <cfenv>
#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <thread>

#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesCall = EightDevices;

/// f called on device 1.
auto on_one(const auto& f) {
  return [f = jit(f)](Tensor x) { return call({.name = "there", .device = 1}, x, f, x); };
}

TEST_F(DevicesCall, ACompiledFunctionRunsThereAndHasItsOwnDerivatives) {
  RecordProperty("covers", "FOREIGN-04");
  std::atomic<int> where = -1;
  const auto watched = on_one([&](Tensor x) {
    return tap(sin(x), [&](const TapInfo& info, float) { where = info.device; });
  });
  EXPECT_FLOAT_EQ(jit(watched)(Tensor(3.0f)).item<float>(), std::sin(3.0f));
  EXPECT_EQ(where, 1);
  const auto sine = on_one([](Tensor x) { return sin(x); });
  auto twice = [&](Tensor x) { return 2.0f * sine(x); };
  EXPECT_NEAR(jit(grad(twice))(Tensor(3.0f)).item<float>(), -1.979985, 1e-5);
  const auto cube = on_one([](Tensor x) { return x * x * x; });
  auto f = [&](Tensor x) { return 2.0f * cube(x); };
  EXPECT_FLOAT_EQ(jit(grad(grad(f)))(Tensor(5.0f)).item<float>(), 60);
  EXPECT_FLOAT_EQ(grad(f)(Tensor(5.0f)).item<float>(), 150) << "without jit too";
  const auto [y, dy] =
      jit([&](Tensor x) { return jvp(f, std::tuple{x}, std::tuple{Tensor(1.0f)}); })(Tensor(2.0f));
  EXPECT_FLOAT_EQ(y.item<float>() + dy.item<float>(), 16 + 24);
  EXPECT_EQ(jit(vmap(f))(tensor<float>({1, 2, 3})).to_vector<float>(),
            (std::vector<float>{2, 16, 54}));
  EXPECT_EQ(jit(vmap(grad(f)))(tensor<float>({1, 2})).to_vector<float>(),
            (std::vector<float>{6, 24}));
}

TEST_F(DevicesCall, ContainersGoInAndOut) {
  RecordProperty("covers", "FOREIGN-04 FOREIGN-02");
  using Map = std::map<std::string, Tensor>;
  const auto f = jit([](Map m) {
    return std::vector<Tensor>{2.0f * m.at("a"), m.at("a") * m.at("b")};
  });
  auto loss = [&](Map m) {
    const auto parts = call({.device = 3}, std::vector<Type>{type<float>(), type<float>()}, f, m);
    return 3.0f * parts[0] + 4.0f * parts[1];
  };
  const Map x{{"a", Tensor(5.0f)}, {"b", Tensor(6.0f)}};
  EXPECT_FLOAT_EQ(jit(loss)(x).item<float>(), 3 * 10 + 4 * 30);
  const Map g = jit(grad(loss))(x);
  EXPECT_FLOAT_EQ(g.at("a").item<float>(), 30);
  EXPECT_FLOAT_EQ(g.at("b").item<float>(), 20);
}

TEST_F(DevicesCall, InLoopsWithCallsOfTheirOwnAndOnTheSameDevice) {
  int calls = 0;
  const auto f = jit([&](Tensor x) {
    return call(
        {.effect = Effect::unordered}, x.type(),
        [&](float v) {
          ++calls;
          return v + 1;
        },
        x);
  });
  for (const int device : {0, 2}) {
    auto loop = jit([&](Tensor x) {
      return fori_loop(
          0, 5, [&](Tensor, Tensor v) { return call({.device = device}, v, f, v); }, x);
    });
    calls = 0;
    EXPECT_EQ(loop(Tensor(0.0f)).item<float>(), 5);
    EXPECT_EQ(calls, 5);
  }
}

TEST_F(DevicesCall, WithoutADeviceOrOnItsOwnNothingIsCalled) {
  RecordProperty("covers", "STAGE-10");
  const auto f = jit([](Tensor x) { return sin(x); });
  auto inlined = jit([&](Tensor x) { return call(CallOptions{}, x, f, x); });
  EXPECT_EQ(inlined.lower(Tensor(1.0f)).stablehlo().find("custom_call"), std::string::npos);
  EXPECT_FLOAT_EQ(inlined(Tensor(1.0f)).item<float>(), std::sin(1.0f));
  auto here = jit([&](Tensor x) { return call({.device = 0}, x, f, x); });
  EXPECT_EQ(here.lower(Tensor(1.0f)).stablehlo().find("custom_call"), std::string::npos);
  EXPECT_FLOAT_EQ(here(Tensor(1.0f)).item<float>(), std::sin(1.0f));
  auto called = jit([&](Tensor x) { return call({.device = 1}, x, f, x); });
  EXPECT_NE(called.lower(Tensor(1.0f)).stablehlo().find("custom_call"), std::string::npos);
}

TEST_F(DevicesCall, EvaluatedAndStagedAlike) {
  const auto sine = on_one([](Tensor x) { return sin(x); });
  for (const Mode mode : {Mode::evaluate, Mode::staged, Mode::compiled})
    EXPECT_FLOAT_EQ(
        jit([&](Tensor x) { return sine(x * 2.0f) + 1.0f; }, {.mode = mode})(Tensor(1.0f))
            .item<float>(),
        std::sin(2.0f) + 1);
  const auto stages = jit([&](Tensor x) { return sine(x * 2.0f) + 1.0f; }, {.mode = Mode::staged})
                          .stages(Tensor(1.0f));
  ASSERT_EQ(stages.size(), 3u) << "it is cut there";
  EXPECT_EQ(stages[1].kind, "call_on_device");
}

TEST_F(DevicesCall, OneWithoutResultsIsWaitedForAndFailsItsCaller) {
  std::atomic<int> least = 0, after = 0;
  std::atomic<bool> fails = false;
  const auto inner = jit([&](Tensor y) {
    const Tensor z = fori_loop(
        0, 200, [=](Tensor, Tensor c) { return sin(c) * 0.5f + y * 0.5f; }, y);
    tap(std::pair{min(y), max(z)}, [&](float lowest, float) {
      least = static_cast<int>(lowest);
      if (fails) throw std::runtime_error("no");
    });
  });
  const auto outer = jit([&](Tensor x) {
    call({.name = "inner", .device = 1}, std::tuple<>(), inner, x * 2.0f);
    tap(sum(x), [&](float) { after = least.load(); });
    return sum(x * 0.0f - 7.0f);
  });
  for (const Mode mode : {Mode::automatic, Mode::evaluate}) {
    least = after = 0;
    const auto run = jit([&](Tensor x) { return outer(x); }, {.mode = mode});
    run(ones(type<float>({1 << 16})) * 3.0f).block_until_ready();
    EXPECT_EQ(least, 6) << "it had its operand's memory to the end";
    EXPECT_EQ(after, 6) << "and has ended before what follows";
    fails = true;
    expect_error<CallbackError>([&] { run(ones(type<float>({1 << 16}))).block_until_ready(); },
                                {"no"});
    fails = false;
  }
}

TEST_F(DevicesCall, NotInAFunctionThatXlaReducesWith) {
  const auto add = jit([](Tensor a, Tensor b) { return a + b; });
  auto f = jit([&](Tensor x) {
    return reduce([&](Tensor a, Tensor b) { return call({.device = 1}, a, add, a, b); }, x, 0.0f);
  });
  expect_error<TypeError>(
      [&] {
        f(tensor<float>({1, 2}));
      },
      {"reduce", "a compiled function on another device"});
}

TEST_F(DevicesCall, FailuresAndMisuseAreSaid) {
  const auto fails = jit([](Tensor x) {
    return call(
        {.name = "inner", .effect = Effect::unordered}, x.type(),
        [](float) -> float { throw std::runtime_error("no"); }, x);
  });
  auto f = jit([&](Tensor x) { return call({.name = "outer", .device = 1}, x, fails, x); });
  for (int i = 0; i < 2; ++i)
    expect_error<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); },
                                {"call 'outer' at devices_test_calls.cc:", "inner", "no"});
  const auto sine = jit([](Tensor x) { return sin(x); });
  const Tensor x(1.0f);
  expect_error<TypeError>([&] { call({.device = 1}, type<float>({2}), sine, x); },
                          {"declared f32[2]", "returns f32[]"});
  expect_error<TypeError>(
      [&] {
        call({.device = 1}, std::tuple{x, x}, sine, x);
      },
      {"expected 2 results", "returns 1"});
  expect_error<TypeError>([&] { call({.device = 8}, x, sine, x); }, {"no device 8", "has 8"});
  expect_error<TypeError>(
      [&] { call({.timeout = std::chrono::seconds(1), .device = 1}, x, sine, x); },
      {"only name and device"});
}

TEST_F(DevicesCall, StartedOnesAreEachDevicesOwn) {
  RecordProperty("covers", "OVERLAP-12");
  const Mesh mesh({{"x", 8}}, {0, 1, 2, 3, 4, 5, 6, 7});
  std::mutex guard;
  std::set<int> seen;
  const auto ask = [&](const CallInfo& info, float v) {
    std::scoped_lock lock(guard);
    seen.insert(info.device);
    return v * 10;
  };
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  const auto part = [&](Tensor x) {
    const auto begin = [&](const Tensor& v) {
      return start_call({.name = "part"}, type<float>(), ask, sum(v));
    };
    return fori_loop(
               0, 2,
               [&](Tensor, Tensor v, Pending<Tensor> p) {
                 Tensor y = v + wait(p);
                 return Carry{y, begin(y)};
               },
               Carry{x, begin(x)})
        .first;
  };
  const auto f = jit(shard_map(part, mesh, {.in = {P("x")}, .out = {P("x")}}));
  const Tensor y = f(counting({8}));
  std::vector<float> want;
  for (int i = 0; i < 8; ++i) want.push_back(static_cast<float>(i) * 121);
  EXPECT_EQ(y.to_vector<float>(), want);
  barrier();
  EXPECT_EQ(seen.size(), 8u);

  const auto fails = jit(shard_map(
      [](Tensor v) {
        return wait(start_call(
            {.name = "third"}, v.type(),
            [](const CallInfo& info, View<const float> in, View<float> out) {
              if (info.device == 3) throw std::runtime_error("not here");
              out[0] = in[0];
            },
            v));
      },
      mesh, {.in = {P("x")}, .out = {P("x")}}));
  expect_error<CallbackError>([&] { fails(counting({8})).to_vector<float>(); },
                              {"third", "device 3", "not here"}, ErrorCode::threw);
  EXPECT_EQ(f(counting({8})).to_vector<float>(), want) << "the next run works";
  barrier();  // the last of each device, for which nobody waits, use what is declared above
}

TEST_F(DevicesCall, FunctionsOnAllDevicesComputeAsWhoAsks) {
  std::atomic<int> right = 0;
  const auto see = [&](const CallInfo&, View<const float> in, View<float> out) {
    volatile double least = std::numeric_limits<double>::min();
    least = least / 4;
    right += least > 0 && std::fegetround() == FE_UPWARD;
    std::copy(in.begin(), in.end(), out.begin());
  };
  const auto part = [&](Tensor v) { return call({.effect = Effect::ordered}, v.type(), see, v); };
  const auto f = jit(shard_map(part, Mesh({{"x", 8}}), {.in = {P("x")}, .out = {P("x")}}));
  std::jthread([&] {
    std::fesetround(FE_UPWARD);
    f(counting({8}));
    EXPECT_EQ(right, 8) << "and all have returned";
  }).join();
}

TEST_F(DevicesCall, FunctionsOfCAreToldTheirPlaceOnTheMesh) {
  const auto place = [](void*, const pn_firing* f) -> int {
    float digits = -1;  // the coordinates are those of a number
    if (f->coordinate_count > 0) digits = 0;
    for (std::size_t i = 0; i < f->coordinate_count; ++i)
      digits = 10 * digits + static_cast<float>(f->coordinates[i]);
    *static_cast<float*>(f->results[0].data) = digits;
    return PN_OK;
  };
  ASSERT_EQ(pn_register("devices_test.c_place", place, nullptr, nullptr, 1), PN_OK);
  const auto ask = [](Tensor x) { return call(x.type(), Named{"devices_test.c_place"}, x); };
  const Mesh mesh({{"x", 2}, {"y", 2}}, {1, 3, 0, 2});
  const auto f = jit(shard_map(ask, mesh, {.in = {P("x", "y")}, .out = {P("x", "y")}}));
  EXPECT_EQ(f(counting({2, 2})).to_vector<float>(), (std::vector<float>{0, 1, 10, 11}));
  EXPECT_EQ(jit(ask)(counting({1, 1})).to_vector<float>(), (std::vector<float>{-1}));
  const auto alone = jit(shard_map(ask, Mesh({{"x", 1}}), {.in = {P()}, .out = {P()}}));
  const DeviceScope there(2);
  EXPECT_EQ(alone(counting({1, 1})).to_vector<float>(), (std::vector<float>{0}));
  pn_unregister("devices_test.c_place");
}

}  // namespace
}  // namespace postern::test
