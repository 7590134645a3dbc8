// One order of effects over all devices, and limits on what a call gathers.
#include <cmath>
#include <thread>

#include "devices_test.h"

namespace postern::test {
namespace {

using namespace std::chrono_literals;
using DevicesOrder = EightDevices;
using DevicesGather = EightDevices;

/// What was entered: place and device, in order.
class Entered {
 public:
  void add(const char* what, int device) {
    const std::scoped_lock lock(guard_);
    list_.push_back(fmt::format("{}{}", what, device));
  }
  std::vector<std::string> take() {
    const std::scoped_lock lock(guard_);
    return std::exchange(list_, {});
  }

 private:
  std::mutex guard_;
  std::vector<std::string> list_;
};

std::vector<std::string> in_turn(std::initializer_list<const char*> places, int devices,
                                 int rounds = 1) {
  std::vector<std::string> out;
  for (int r = 0; r < rounds; ++r)
    for (const char* place : places)
      for (int d = 0; d < devices; ++d) out.push_back(fmt::format("{}{}", place, d));
  return out;
}

constexpr int counts[] = {2, 4, 8};

TEST_F(DevicesOrder, OneOrderOverAllDevices) {
  for (const int n : counts) {
    Entered entered;
    const Mesh mesh({{"d", n}});
    auto f = jit(shard_map(
        [&](Tensor x) {
          x = tap({.name = "a", .one_order = true}, x, [&](const TapInfo& info, View<const float>) {
            // The later a device's turn, the sooner it would be here by itself.
            std::this_thread::sleep_for(std::chrono::microseconds(100 * (n - info.device)));
            entered.add("a", info.device);
          });
          x = call(
              {.name = "b", .effect = Effect::ordered, .one_order = true}, x.type(),
              [&](const CallInfo& info, View<const float> in, View<float> out) {
                entered.add("b", info.device);
                out[0] = 2 * in[0];
              },
              x);
          return psum(sum(x), "d");
        },
        mesh, {.in = {P("d")}, .out = {P()}}));
    for (int run = 0; run < 5; ++run) {
      EXPECT_EQ(f(counting({n})).item<float>(), static_cast<float>(n * (n - 1)));
      EXPECT_EQ(entered.take(), in_turn({"a", "b"}, n)) << n << " devices";
    }
  }
}

TEST_F(DevicesOrder, AlsoInLoopsWithCollectivesAndBesideOtherEffects) {
  for (const int n : counts) {
    Entered entered;
    std::atomic<int> others = 0;
    const Mesh mesh({{"d", n}});
    auto f = jit(shard_map(
        [&](Tensor x) {
          return fori_loop(
              0, 10,
              [&](Tensor, Tensor v) {
                v = tap({.one_order = true}, v, [&](const TapInfo& info, View<const float>) {
                  entered.add("t", info.device);
                });
                v = tap(v, [&](View<const float>) { ++others; });
                return v + pmean(v, "d");
              },
              x);
        },
        mesh, {.in = {P("d")}, .out = {P("d")}}));
    f(counting({n})).block_until_ready();
    EXPECT_EQ(entered.take(), in_turn({"t"}, n, 10)) << n << " devices";
    EXPECT_EQ(others, 10 * n);
  }
}

TEST_F(DevicesOrder, AsynchronousTapsAreDeliveredInThatOrderToo) {
  for (const int n : counts) {
    Entered entered;
    const Mesh mesh({{"d", n}});
    const TapOptions options{.mode = TapMode::async, .one_order = true};
    auto f = jit(shard_map(
        [&](Tensor x) {
          return scan(
                     [&](Tensor c, Tensor) {
                       c = tap(options, c, [&](const TapInfo& info, View<const float>) {
                         entered.add("t", info.device);
                         EXPECT_EQ(info.coordinates[0], info.device);
                       });
                       return std::pair{c + 1.0f, std::tuple<>()};
                     },
                     x, iota<float>(20))
              .first;
        },
        mesh, {.in = {P("d")}, .out = {P("d")}}));
    f(counting({n})).block_until_ready();
    barrier();
    EXPECT_EQ(entered.take(), in_turn({"t"}, n, 20)) << n << " devices";
  }
}

TEST_F(DevicesOrder, PartsOfAProgramThatXlaCutsAndPrints) {
  const Mesh mesh({{"d", 4}});
  const Sharding spread(mesh, P("d")), whole(mesh, P());
  Entered entered;
  std::ostringstream lines;
  auto f = jit([&](Tensor x) {
    x = tap({.partitioned = spread, .one_order = true}, x,
            [&](const TapInfo& info, View<const float>) { entered.add("p", info.device); });
    x = tap({.partitioned = whole, .one_order = true}, x,
            [&](const TapInfo& info, View<const float>) { entered.add("w", info.device); });
    print_value({.stream = &lines, .one_order = true, .show_device = false, .partitioned = spread},
                x);
    return x * 2.0f;
  });
  f(device_put(counting({4}), spread)).block_until_ready();
  EXPECT_EQ(entered.take(), (std::vector<std::string>{"p0", "p1", "p2", "p3", "w0"}));
  const std::string text = lines.str();
  std::vector<std::size_t> at;
  for (const char* value : {"0", "1", "2", "3"})
    at.push_back(text.find(fmt::format("f32[1] [{}.]", value)));
  EXPECT_TRUE(std::ranges::is_sorted(at) && at.back() != std::string::npos) << text;
}

TEST_F(DevicesOrder, AFailureOnOneDeviceLeavesNobodyWaiting) {
  RecordProperty("covers", "DEV-11");
  for (const int n : counts)
    for (int bad = 0; bad < n; ++bad) {
      const Mesh mesh({{"d", n}});
      std::atomic<int> entered = 0;
      auto f = jit(shard_map(
          [&](Tensor x) {
            return fori_loop(
                0, 6,
                [&](Tensor i, Tensor v) {
                  v = call(
                      {.name = "turn", .effect = Effect::ordered, .one_order = true}, v.type(),
                      [&](const CallInfo& info, std::int32_t step, View<const float> in,
                          View<float> out) {
                        ++entered;
                        if (info.device == bad && step == 3) throw std::runtime_error("not here");
                        out[0] = in[0];
                      },
                      i, v);
                  return v + psum(v, "d");
                },
                x);
          },
          mesh, {.in = {P("d")}, .out = {P("d")}}));
      const auto start = std::chrono::steady_clock::now();
      expect_error<CallbackError>([&] { f(counting({n})).block_until_ready(); },
                                  {"call 'turn'", fmt::format("on device {}", bad), "not here"});
      EXPECT_EQ(entered, 3 * n + bad + 1) << "nobody had a turn after the failure";
      EXPECT_LT(seconds_since(start), 60);
    }
}

TEST_F(DevicesOrder, ACancelledOrLateRunLeavesNobodyWaiting) {
  const Mesh mesh({{"d", 4}});
  std::atomic<bool> inside = false;
  auto slow = [&](auto until) {
    return jit(shard_map(
        [&, until](Tensor x) {
          return call(
              {.name = "slow", .effect = Effect::ordered, .one_order = true}, x.type(),
              [&, until](const CallInfo& info, View<const float> in, View<float> out) {
                inside = true;
                until(info);
                out[0] = in[0];
              },
              x);
        },
        mesh, {.in = {P("d")}, .out = {P("d")}}));
  };
  auto f = slow([](const CallInfo& info) {
    while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
  });
  auto run = f.start(counting({4}));
  ASSERT_TRUE(wait_until([&] { return inside.load(); }));
  run.cancel();
  expect_error<CallbackError>([&] { run.result(); }, {"cancelled"}, ErrorCode::cancelled);
  auto late = f.start_with({.deadline = 500ms}, counting({4}));
  expect_error<TimeoutError>([&] { late.result().block_until_ready(); },
                             {"call 'slow'", "deadline"});
  auto quick = slow([](const CallInfo&) {});
  EXPECT_EQ(quick(counting({4})).to_vector<float>(), (Floats{0, 1, 2, 3}))
      << "the next run goes well";
}

TEST_F(DevicesOrder, WhereDevicesMayGoDifferentWaysItIsRefused) {
  const Mesh mesh({{"d", 2}});
  const TapOptions options{.name = "seen", .one_order = true};
  auto shown = [&](Tensor v) { return tap(options, v, [](View<const float>) {}); };
  auto in_cond = jit(shard_map(
      [&](Tensor x) {
        return cond(
            sum(x) > 0.0f, shown, [](Tensor v) { return v; }, x);
      },
      mesh, {.in = {P("d")}, .out = {P("d")}}));
  expect_error<TypeError>([&] { in_cond(counting({2})); },
                          {"tap 'seen'", "one_order", "inside a cond", "devices_test_order.cc:"});
  auto in_while = jit(shard_map(
      [&](Tensor x) { return while_loop([](Tensor v) { return sum(v) < 9.0f; }, shown, x); }, mesh,
      {.in = {P("d")}, .out = {P("d")}}));
  expect_error<TypeError>([&] { in_while(counting({2})); },
                          {"tap 'seen'", "inside a while", "scan"});
  auto in_derivative = jit(shard_map(
      [&](Tensor x) {
        return grad([&](Tensor y) {
          return sum(while_loop([](Tensor v) { return sum(v) < 9.0f; },
                                [&](Tensor v) { return shown(v * v); }, y));
        })(x);
      },
      mesh, {.in = {P("d")}, .out = {P("d")}}));
  expect_error<TypeError>([&] { in_derivative(counting({2})); },
                          {"tap 'seen'", "inside a while", "scan"});
  expect_error<TypeError>(
      [&] { tap({.ordered = false, .one_order = true}, Tensor(1.0f), [](float) {}); },
      {"one_order"});
  expect_error<TypeError>(
      [&] {
        call(
            {.one_order = true}, type<float>(), [](float v) { return v; }, Tensor(1.0f));
      },
      {"one_order", "Effect::ordered"});
}

// --- between programs ---

/// What XLA judges worth a thread of its own, so that the caller goes on.
Tensor heavy(Tensor x) {
  const Tensor m = broadcast_to(x * 0.0f + 0.01f, {96, 96});
  return x + 0.0f * sum(fori_loop(
                        0, 300, [&](Tensor, Tensor v) { return tanh(matmul(v, m)); }, m));
}

TEST_F(DevicesOrder, OrderedCallsGoFromProgramToProgram) {
  RecordProperty("covers", "ORDER-05");
  Entered entered;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::string> want;
    std::vector<Tensor> results;
    for (int i = 0; i < 8; ++i) {
      const std::vector<int> pair = {i % 8, (i + 1 + round) % 8};
      const auto f = jit([&, i](Tensor x) {
        const Tensor s = sum(x);
        return call(
            {.effect = Effect::ordered}, s.type(),
            [&entered, i](float v) {
              std::this_thread::sleep_for(std::chrono::milliseconds(20 + 5 * (i * 3 % 5)));
              entered.add("sum", static_cast<int>(v));
              return v;
            },
            s);
      });
      results.push_back(f(device_put(full(type<float>({2}), static_cast<float>(i)),
                                     Sharding(Mesh({{"d", 2}}, pair), P("d")))));
      want.push_back(fmt::format("sum{}", 2 * i));
    }
    for (Tensor& r : results) r.block_until_ready();
    EXPECT_EQ(entered.take(), want) << round;
  }
}

TEST_F(DevicesOrder, AHeavyProgramComesBeforeALightOneOnAnotherDevice) {
  RecordProperty("covers", "ORDER-05");
  Entered entered;
  auto note = [&](const char* what) {
    return [&entered, what](Tensor x) {
      return call(
          {.effect = Effect::ordered}, x.type(),
          [&entered, what](const CallInfo& info, float v) {
            entered.add(what, info.device);
            return v;
          },
          x);
    };
  };
  for (const Mode mode : {Mode::compiled, Mode::staged}) {
    const auto slow = jit([&](Tensor x) { return note("heavy")(heavy(x)); });
    const auto quick = jit(note("light"), {.mode = mode});
    const Tensor here = device_put(Tensor(1.0f), 0), there = device_put(Tensor(1.0f), 1);
    slow.compile(here);
    quick.compile(there);
    for (int round = 0; round < 3; ++round) {
      const Tensor a = slow(here), b = quick(there);
      a.block_until_ready();
      b.block_until_ready();
      EXPECT_EQ(entered.take(), (std::vector<std::string>{"heavy0", "light1"})) << round;
    }
  }
}

TEST_F(DevicesOrder, TapsOfProgramsKeepItOnTheirDeviceAlone) {
  Entered entered;
  // Programs with asynchronous taps alone go on when the call has returned.
  const auto shown = [&](const char* what, const Tensor& x) {
    return tap({.mode = TapMode::async}, x,
               [&entered, what](const TapInfo& info, float) { entered.add(what, info.device); });
  };
  const auto first = jit([&](Tensor x) { return shown("first", heavy(heavy(heavy(x)))); });
  const auto last = jit([&](Tensor x) { return shown("last", x); });
  const Tensor here = device_put(Tensor(1.0f), 0), there = device_put(Tensor(1.0f), 1);
  first.compile(here);
  last.compile(there);
  first(here);
  last(there);
  barrier();
  EXPECT_EQ(entered.take(), (std::vector<std::string>{"last1", "first0"}));
  for (int round = 0; round < 3; ++round) {
    first(here);
    last(here);
    barrier();
    EXPECT_EQ(entered.take(), (std::vector<std::string>{"first0", "last0"})) << round;
  }
}

TEST_F(DevicesOrder, RunsThatWereStartedKeepNone) {
  std::atomic<bool> second = false;
  const auto waits = jit([&](Tensor x) {
    return call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) { return wait_until([&] { return second.load(); }) ? v : -1; }, x);
  });
  const auto lets_go = jit([&](Tensor x) {
    return call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          second = true;
          return v;
        },
        x);
  });
  auto run = waits.start(Tensor(1.0f));
  EXPECT_EQ(lets_go(device_put(Tensor(2.0f), 1)).item<float>(), 2);
  EXPECT_EQ(run.result().item<float>(), 1);
}

TEST_F(DevicesOrder, OnOneDeviceItIsTheOrderOfTheProgram) {
  Entered entered;
  auto f = jit([&](Tensor x) {
    x = tap({.one_order = true}, x,
            [&](const TapInfo& info, float) { entered.add("a", info.device); });
    return tap({.one_order = true}, x,
               [&](const TapInfo& info, float) { entered.add("b", info.device); });
  });
  f(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(entered.take(), (std::vector<std::string>{"a0", "b0"}));
}

TEST_F(DevicesGather, MoreThanTheLimitIsRefused) {
  RecordProperty("covers", "DEV-04");
  const Mesh mesh({{"d", 4}});
  const Sharding spread(mesh, P("d"));
  const Tensor x = device_put(zeros(type<float>({1 << 20})), spread);
  std::atomic<int> entered = 0;
  auto gathers = [&](Tensor v) {
    return call(
        {.name = "whole"}, v.type(),
        [&](View<const float>, View<float> out) {
          ++entered;
          std::ranges::fill(out, 1.0f);
        },
        v);
  };
  auto limited = jit(gathers, {.gather_limit = std::size_t{1} << 20});
  for (int i = 0; i < 2; ++i)
    expect_error<TypeError>([&] { limited(x); },
                            {"call 'whole'", "4194304 bytes", "f32[1048576]", "at most 1048576",
                             "partitioned", "devices_test_order.cc:"});
  EXPECT_EQ(entered, 0);
  EXPECT_EQ(jit(gathers, {.gather_limit = std::size_t{4} << 20})(x).to_vector<float>()[7], 1);
  auto in_parts = jit(
      [&](Tensor v) {
        return call(
            {.name = "parts", .partitioned = spread}, v.type(),
            [&](View<const float>, View<float> out) { std::ranges::fill(out, 2.0f); }, v);
      },
      {.gather_limit = 16});
  EXPECT_EQ(in_parts(x).to_vector<float>()[1 << 19], 2) << "nothing is gathered";
  auto tapped =
      jit([&](Tensor v) { return tap({.name = "seen"}, v, [](View<const float>) {}) * 2.0f; },
          {.gather_limit = 16});
  expect_error<TypeError>([&] { tapped(x); }, {"tap 'seen'", "at most 16"});
  EXPECT_EQ(tapped(zeros(type<float>({100}))).to_vector<float>()[0], 0)
      << "on one device nothing is gathered";
  auto mapped = jit(shard_map([&](Tensor v) { return tap(v, [](View<const float>) {}); }, mesh,
                              {.in = {P("d")}, .out = {P("d")}}),
                    {.gather_limit = 16});
  EXPECT_EQ(mapped(x).to_vector<float>()[0], 0) << "nor in shard_map";
}

TEST(DevicesConfig, TheLimitOfTheProcess) {
  RecordProperty("covers", "DEV-04");
  const Ended ended = run_program("gather_limit");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(has(ended.out, "call 'whole'") && has(ended.out, "at most 1024")) << ended.out;
}

}  // namespace
}  // namespace postern::test
