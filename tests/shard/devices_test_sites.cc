// Calls, taps and prints in programs that XLA cuts, and in programs on several devices at once.
#include "devices_test.h"

namespace postern::test {
namespace {

using Devices = EightDevices;

TEST_F(Devices, ACallInACutProgramSeesTheWholeOnce) {
  RecordProperty("covers", "DEV-02 DEV-03 ORDER-07");
  const Sharding s(Mesh({{"d", 4}}), P("d"));
  std::atomic<int> calls{0}, device{-1};
  auto program = [&](int on, Effect effect) {
    return jit(
        [&, on, effect](Tensor x) {
          return call(
                     {.name = "whole", .effect = effect, .device = on}, x.type(),
                     [&](const CallInfo& info, View<const float> in, View<float> out) {
                       ++calls;
                       device = info.device;
                       for (std::int64_t i = 0; i < in.size(); ++i)
                         out[i] = in[i] + static_cast<float>(i);
                     },
                     x) *
                 1.0f;
        },
        {.out_shardings = {s}});
  };
  for (const Effect effect : {Effect::pure, Effect::unordered, Effect::ordered})
    for (const int on : {-1, 0, 3}) {
      calls = 0;
      const Tensor y = program(on, effect)(device_put(counting({8}), s));
      EXPECT_EQ(y.to_vector<float>(), (Floats{0, 2, 4, 6, 8, 10, 12, 14}));
      EXPECT_EQ(calls, 1);
      EXPECT_EQ(device, std::max(on, 0));
      EXPECT_EQ(*sharding_of(y), s);
    }
  expect_error<TypeError>([&] { program(7, Effect::pure)(device_put(counting({8}), s)); },
                          {"device 7", "0, 1, 2, 3"});
  // A program on one device has no other, and a function that is called outside of programs is told
  // what it was given.
  const auto single = jit([](Tensor x) {
    return call(
        {.name = "there", .device = 2}, x,
        [](const CallInfo& info, float) { return static_cast<float>(info.device); }, x);
  });
  expect_error<TypeError>([&] { single(Tensor(1.0f)); },
                          {"call 'there'", "for device 2", "runs on device 0 alone"});
  EXPECT_EQ(single(device_put(Tensor(1.0f), 2)).item<float>(), 2);
  auto outside = [](int on) {
    return call({.device = on}, type<float>(),
                [](const CallInfo& info) { return static_cast<float>(info.device); });
  };
  EXPECT_EQ(outside(2).item<float>(), 2);
  expect_error<TypeError>([&] { outside(8); }, {"there is no device 8", "devices() has 8"});
  // Taps, prints and hooks too; in order with each other.
  std::string seen;
  const auto f = jit([&](Tensor x) {
    x = tap({.name = "first"}, x * 2.0f,
            [&](View<const float> v) { seen += "a" + std::to_string(v.size()); });
    x = hook("h", x, [&](View<const float>) { seen += "b"; });
    return tap({.name = "last"}, x + 1.0f, [&](View<const float>) { seen += "c"; });
  });
  for (int i = 0; i < 20; ++i) EXPECT_EQ(f(device_put(counting({8}), s)).to_vector<float>()[7], 15);
  std::string want;
  for (int i = 0; i < 20; ++i) want += "a8bc";
  EXPECT_EQ(seen, want);
}

TEST_F(Devices, LoopsAndBranchesOfACutProgramCall) {
  const Sharding s(Mesh({{"d", 4}}), P("d"));
  std::atomic<int> calls{0};
  const auto f = jit([&](Tensor x) {
    return while_loop([](Tensor v) { return sum(v) < 1000.0f; },
                      [&](Tensor v) {
                        return call(
                            {.effect = Effect::ordered}, v.type(),
                            [&](View<const float> in, View<float> out) {
                              ++calls;
                              for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * 2;
                            },
                            v);
                      },
                      x);
  });
  const Tensor y = f(device_put(counting({8}), s));
  EXPECT_EQ(y.to_vector<float>()[1], 64);  // 28 * 2^6 = 1792
  EXPECT_EQ(calls, 6);
  const auto g = jit([&](Tensor x) {
    return cond(
        sum(x) > 0.0f, [&](Tensor v) { return tap(v * 3.0f, [&](View<const float>) { ++calls; }); },
        [](Tensor v) { return v; }, x);
  });
  calls = 0;
  EXPECT_EQ(g(device_put(counting({8}), s)).to_vector<float>()[1], 3);
  EXPECT_EQ(g(device_put(-counting({8}), s)).to_vector<float>()[1], -1);
  EXPECT_EQ(calls, 1);
}

TEST_F(Devices, PartitionedFiresOnceForEachPart) {
  RecordProperty("covers", "DEV-05 DEV-08 PRINT-11");
  const Mesh mesh({{"d", 2}});
  const Sharding s(mesh, P("d"));
  std::mutex guard;
  std::map<int, std::pair<IndexRange, Floats>> seen;
  int replicated = 0;
  const auto f = jit([&](Tensor x) {
    x = tap({.partitioned = s}, x * 1.0f, [&](const TapInfo& info, View<const float> v) {
      std::scoped_lock lock(guard);
      seen.emplace(info.device, std::pair{info.part[0], Floats(v.begin(), v.end())});
    });
    x = tap({.partitioned = Sharding(mesh, P())}, x, [&](View<const float>) { ++replicated; });
    return call(
        {.partitioned = s}, x.type(),
        [](const CallInfo& info, View<const float> in, View<float> out) {
          for (std::int64_t i = 0; i < in.size(); ++i)
            out[i] = in[i] + static_cast<float>(100 * info.part[0].begin);
        },
        x);
  });
  const Tensor y = f(device_put(counting({8}), s));
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 1, 2, 3, 404, 405, 406, 407}));
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], (std::pair{IndexRange{0, 4}, Floats{0, 1, 2, 3}}));
  EXPECT_EQ(seen[1], (std::pair{IndexRange{4, 8}, Floats{4, 5, 6, 7}}));
  EXPECT_EQ(replicated, 1);
  std::vector<std::string> lines;
  const auto p = jit([&](Tensor x) {
    print_value({.partitioned = s,
                 .log =
                     [&](const PrintRecord& r) {
                       std::scoped_lock lock(guard);
                       lines.push_back(r.text);
                     }},
                x * 1.0f);
    return x;
  });
  p(device_put(counting({8}), s)).block_until_ready();
  barrier();
  std::ranges::sort(lines);
  EXPECT_EQ(lines,
            (std::vector<std::string>{"[0:4] f32[4] [0. 1. 2. 3.]", "[4:8] f32[4] [4. 5. 6. 7.]"}));
  const std::string optimized = p.compile(device_put(counting({8}), s)).optimized();
  EXPECT_FALSE(has(optimized, "all-gather"));
}

TEST_F(Devices, PrintsSayWhichDevice) {
  RecordProperty("covers", "PRINT-11");
  // Whole lines from all devices at once, with the part of each where a print has parts.
  std::ostringstream out;
  const Sharding s(Mesh({{"d", 4}}), P("d"));
  const auto each = jit(shard_map(
      [&](Tensor v) {
        return fori_loop(
            0, 50,
            [&](Tensor, Tensor c) {
              print({.stream = &out}, "at {} of a line that is long enough to be torn apart",
                    sum(c));
              return c + 1.0f;
            },
            v);
      },
      s.mesh(), {.in = {P("d")}, .out = {P("d")}}));
  each(device_put(counting({4}), s)).block_until_ready();
  barrier();
  std::map<std::string, int> lines;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) {
    ++lines[line.substr(0, line.find(']') + 1)];
    EXPECT_TRUE(line.starts_with("[device ") && line.ends_with("torn apart")) << line;
  }
  EXPECT_EQ(lines,
            (std::map<std::string, int>{
                {"[device 0]", 50}, {"[device 1]", 50}, {"[device 2]", 50}, {"[device 3]", 50}}));
  out.str("");
  const Sharding two(Mesh({{"d", 2}}), P("d"));
  jit([&](Tensor x) {
    print_value({.stream = &out, .partitioned = two}, x * 1.0f);
    return x;
  })(device_put(counting({8}), two))
      .block_until_ready();
  barrier();
  EXPECT_TRUE(has(out.str(), "[device 0]") && has(out.str(), "0:4")) << out.str();
  EXPECT_TRUE(has(out.str(), "[device 1]") && has(out.str(), "4:8")) << out.str();
}

TEST_F(Devices, ProgramsOnTwoDevicesRunAtTheSameTime) {
  RecordProperty("covers", "DEV-13");
  // Each function waits until the other has begun: if the devices took turns, neither would end.
  std::atomic<int> begun{0};
  const auto f = jit([&](Tensor x) {
    return call(
        {.effect = Effect::unordered}, x.type(),
        [&](float) -> float {
          ++begun;
          return wait_until([&] { return begun == 2; }) ? 1.0f : 0.0f;
        },
        x);
  });
  auto one = f.start(device_put(Tensor(1.0f), 1)), two = f.start(device_put(Tensor(1.0f), 2));
  EXPECT_EQ(one.result().item<float>() + two.result().item<float>(), 2);
}

}  // namespace
}  // namespace postern::test
