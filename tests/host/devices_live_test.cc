// Live hooks on several devices at once, and what host functions are told of their device.
#include <atomic>
#include <map>

#include "host/live_test.h"

namespace postern {
namespace {

using test::Steps;

TEST(DevicesLive, EachDeviceShowsItsPartWhileSwitchesGoOnAndOff) {
  for (const bool one_order : {false, true}) {
    const Mesh mesh({{"x", 4}});
    constexpr int steps = 1000;
    const auto f = jit(shard_map(
        [&](Tensor x) {
          return fori_loop(
              0, steps,
              [&](Tensor, Tensor v) {
                const Tensor shown = hook("part", v + 1.0f, {.one_order = one_order, .live = true});
                return shown - 0.5f * psum(shown, "x") / 4.0f;
              },
              x);
        },
        mesh, {.in = P("x"), .out = P("x")}));
    const Tensor x = iota<float>(8);
    const auto plain = f(x).to_vector<float>();
    std::mutex guard;
    std::map<int, int> seen;
    const auto count = Callee([&](const TapInfo& info, View<const float> v) {
      EXPECT_EQ(v.size(), 2);
      std::scoped_lock lock(guard);
      ++seen[info.device];
    });
    const LiveHook hook = test::only(live_hooks(), "part");
    Listening on = hook.turn_on(count);
    const auto run = f.start(x);
    ASSERT_EQ(hooks_of(run).size(), 1u);
    for (int times = 0; run.status() == RunStatus::running && times < 100; ++times) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      on.off();
      on = hook.turn_on(count);
    }
    EXPECT_EQ(run.result().to_vector<float>(), plain);
    barrier();  // on a GPU listeners may be behind the results
    {
      std::scoped_lock lock(guard);
      EXPECT_FALSE(seen.empty());
      seen.clear();
    }
    f(x).block_until_ready();
    barrier();
    std::scoped_lock lock(guard);
    EXPECT_EQ(seen.size(), 4u);
    for (const auto& [device, times] : seen) EXPECT_EQ(times, steps) << device;
  }
}

TEST(DevicesLive, AListenerThatThrowsOnOneDeviceEndsAll) {
  const Mesh mesh({{"x", 4}});
  const auto f = jit(shard_map(
      [&](Tensor x) {
        return fori_loop(
            0, 100,
            [&](Tensor, Tensor v) { return psum(hook("v", v + 1.0f, {.live = true}), "x") / 4.0f; },
            x);
      },
      mesh, {.in = P("x"), .out = P("x")}));
  const Tensor x = iota<float>(4);
  f(x).block_until_ready();
  Listening on =
      test::only(live_hooks(), "v").turn_on(Callee([](const TapInfo& info, View<const float>) {
        if (info.device == 2) throw std::runtime_error("enough");
      }));
  test::expect_error<CallbackError>([&] { f(x).block_until_ready(); },
                                    {"hook 'v'", "on device 2", "enough"});
  on.off();
  f(x).block_until_ready();
}

TEST(DevicesLive, OfSeveralDevicesOneIsShownInAnInterval) {
  std::atomic<int> shown = 0;
  const auto f = jit(shard_map(
      [&](Tensor x) {
        return tap({.interval = std::chrono::hours(1)}, x, [&](View<const float>) { ++shown; });
      },
      Mesh({{"x", 4}}), {.in = P("x"), .out = P("x")}));
  for (int i = 0; i < 2; ++i) f(iota<float>(8)).block_until_ready();
  barrier();
  EXPECT_EQ(shown, 1);
}

TEST(DevicesLive, CallsBesideEachOtherKnowTheThreadsDevice) {
  std::atomic<int> inside = 0, elsewhere = 0;
  const auto ask = [&](const Tensor& x) {
    return call(
        x.type(),
        [&](const CallInfo& info, float v) {
          ++inside;
          test::wait_until([&] { return inside >= 2; });
          elsewhere += info.device != 3;
          return v;
        },
        x);
  };
  auto f = jit([&](Tensor x) { return ask(x) + ask(x); }, {.mode = Mode::staged});
  const DeviceScope scope(3);
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
  EXPECT_EQ(elsewhere.load(), 0);
}

}  // namespace
}  // namespace postern
