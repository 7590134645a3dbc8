// Two platforms in one process: where programs and arrays are. platforms_test_calls.cc has the
// calls between them.
#include "platforms_test.h"

#include <postern/linalg.h>

#include <cmath>
#include <fstream>

#include "run/array.h"
#include "run/compiled.h"

namespace postern::test {
namespace {

TEST_F(Platforms, DevicesOfAllAreNumberedOn) {
  const std::vector<DeviceInfo> all = devices();
  ASSERT_EQ(all.size(), 4u) << "two of each";
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(all.at(static_cast<std::size_t>(i)).ordinal, i);
    EXPECT_EQ(all.at(static_cast<std::size_t>(i)).kind, i < 2 ? "cpu" : "newer");
  }
  EXPECT_EQ(devices("cpu").size(), 2u);
  EXPECT_EQ(devices("newer").at(1).ordinal, 3);
  expect_error<TypeError>([] { devices("cuda"); }, {"does not use", "'cuda'", "cpu, newer"});
  expect_error<TypeError>([] { plugin_info("rocm"); }, {"plugin_info", "'rocm'"});
  EXPECT_EQ(plugin_info().platform, "cpu");
  EXPECT_EQ(plugin_info("cpu").path, plugin_info().path);
  EXPECT_EQ(plugin_info("newer").platform, "newer");
  expect_error<TypeError>([] { device_put(Tensor(1.0f), 4); }, {"device 4", "4 of devices()"});
}

TEST_F(Platforms, ProgramsRunWhereTheirArgumentsAre) {
  std::atomic<int> where = -1;
  int traced = 0;
  const auto f = jit([&](Tensor x) {
    ++traced;
    return seen_at(where)(x * 2.0f) + 1.0f;
  });
  for (int round = 0; round < 3; ++round)
    for (const Side& s : sides())
      for (const int device : {s.device, s.device + 1}) {
        const Tensor y = f(device_put(counting(5), device));
        EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{3, 5, 7, 9, 11}));
        EXPECT_EQ(where, device) << s.name;
        EXPECT_TRUE(y.device() == device || !calls_back(s));
      }
  EXPECT_EQ(traced, 2) << "once for each platform";
  {
    const DeviceScope scope(there);
    EXPECT_EQ(f(counting(5)).to_vector<float>()[4], 11);
    EXPECT_EQ(where, there);
    EXPECT_EQ((counting(5) + 1.0f).device(), there);
  }
  EXPECT_EQ(f(counting(5)).to_vector<float>()[4], 11);
  EXPECT_EQ(where, 0);
}

TEST_F(Platforms, OperationsAtOnceRunWhereTheirOperandsAre) {
  for (const Side& s : sides()) {
    const Tensor x = device_put(counting(6), s.device);
    const Tensor y = sin(x) * x + 1.0f;
    EXPECT_EQ(y.device(), s.device);
    EXPECT_FLOAT_EQ(y.to_vector<float>()[2], std::sin(3.0f) * 3 + 1);
    EXPECT_EQ(sort(-x).device(), s.device);
    EXPECT_EQ(grad([](Tensor v) { return sum(v * v); })(x).device(), s.device);
    EXPECT_EQ(cumsum(x, 0).to_vector<float>()[5], 21);
  }
  expect_error<TypeError>([&] { device_put(Tensor(1.0f), 0) + device_put(Tensor(1.0f), there); },
                          {"put on devices 0 (cpu) and 2 (newer)", "device_put"});
}

TEST_F(Platforms, ArraysGoToAndFro) {
  const Tensor x = counting(1000);
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::s64, DType::u8, DType::pred,
                            DType::c64, DType::s4, DType::f16})
    for (const std::int64_t n : {1000, 1, 0}) {
      const Tensor here = device_put(convert(slice(x, {0}, {n}), dtype), 0);
      const Tensor over = device_put(here, there), back = device_put(over, 1);
      EXPECT_EQ(over.device(), there);
      EXPECT_EQ(back.device(), 1);
      EXPECT_EQ(convert(back, DType::f32).to_vector<float>(),
                convert(here, DType::f32).to_vector<float>())
          << to_string(dtype) << " " << n;
      EXPECT_EQ(convert(over, DType::f32).to_vector<float>(),
                convert(here, DType::f32).to_vector<float>());
    }
}

TEST_F(Platforms, TwoThatComputeInTheHostsMemoryCopyNothing) {
  if (!internal::run::Runtime::get().backend_of(there).platform().on_host)
    GTEST_SKIP() << "nothing is known of the memory of newer";
  const Tensor here = jit([](Tensor x) { return x * 2.0f; })(device_put(counting(4096), 0));
  const Tensor over = device_put(here, there);
  std::shared_ptr<const void> keep, kept;
  EXPECT_EQ(internal::run::host_view(here, keep), internal::run::host_view(over, kept));
  EXPECT_EQ(jit([](Tensor x) { return sum(x); })(over).item<float>(), 2.0f * 4096 * 4097 / 2);
}

TEST_F(Platforms, AnArrayOutlivesTheOneThatItIsAViewOf) {
  Tensor over;
  {
    const Tensor here = jit([](Tensor x) { return x * 2.0f; })(device_put(counting(4096), 0));
    over = device_put(here, there);
  }
  for (int i = 0; i < 20; ++i) jit([](Tensor x) { return x * 0.0f; })(counting(4096));
  EXPECT_EQ(over.to_vector<float>()[4095], 8192);
}

TEST_F(Platforms, ADonatedArgumentOfTheOtherPlatform) {
  const auto f = jit([](Tensor x) { return x + 1.0f; }, {.donate = {0}});
  const Tensor here = device_put(counting(4096), 0);
  const Tensor over = device_put(here, there);
  EXPECT_EQ(f(over).to_vector<float>()[0], 2);
  expect_error<TypeError>([&] { over.to_vector<float>(); }, {"donated"});
  const DeviceScope scope(there);
  const Tensor made = counting(4096) + 1.0f;
  EXPECT_EQ(f(made).to_vector<float>()[0], 3);
}

TEST_F(Platforms, SeveralDevicesOfOnePlatform) {
  for (const Side& s : sides()) {
    const Mesh mesh({{"d", 2}}, {s.device, s.device + 1});
    const Tensor x = device_put(counting(8), Sharding(mesh, P("d")));
    EXPECT_EQ(jit([](Tensor v) { return sum(v); })(x).item<float>(), 36) << s.name;
    EXPECT_EQ((x + 1.0f).to_vector<float>()[7], 9);
    const auto f = jit([&](Tensor v) {
      return shard_map([](Tensor part) { return psum(part, "d"); }, mesh,
                       {.in = P("d"), .out = P()})(v);
    });
    EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{6, 8, 10, 12}));
    if (!calls_back(s)) continue;  // a program over several devices is not cut
    std::atomic<int> sum_of_devices = 0;
    const auto g = jit([&](Tensor v) {
      return shard_map(
          [&](Tensor part) {
            return tap(part, [&](const TapInfo& info, View<const float>) {
              sum_of_devices += info.device;
            });
          },
          mesh, {.in = P("d"), .out = P("d")})(v);
    });
    for (int i = 0; i < 3; ++i) {
      sum_of_devices = 0;
      g(x).block_until_ready();
      barrier();
      EXPECT_EQ(sum_of_devices, 2 * s.device + 1) << s.name;
    }
  }
  expect_error<TypeError>(
      [&] {
        device_put(counting(8), Sharding(Mesh({{"d", 2}}, {1, there}), P("d")));
      },
      {"devices of two platforms", "1 (cpu)", "2 (newer)"});
  const Mesh mixed({{"d", 2}}, {0, there});
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor v) {
          return shard_map([](Tensor p) { return p; }, mixed, {.in = P("d"), .out = P("d")})(v);
        })(counting(8));
      },
      {"two platforms"});
}

TEST_F(Platforms, StagesOnBoth) {
  RecordProperty("covers", "STAGE-08");
  const auto model = [](Tensor w, Tensor x) { return tanh(matmul(w, x) + 1.0f); };
  const auto cut = [](const StageNode& n) {
    return n.operation == "dot_general" ? Cut::both : Cut::none;
  };
  const auto place = [&](const StageInfo& s) { return s.inputs.size() > 1 ? there : 0; };
  const auto f = jit(model, {.cut = cut, .stage_device = place});
  const Tensor w = full(type<float>({4, 4}), 0.1f), x = counting(4);
  for (int i = 0; i < 3; ++i) {
    const Tensor y = f(w, x);
    EXPECT_NEAR(y.to_vector<float>()[0], std::tanh(2.0f), 1e-5);
  }
  std::vector<int> where;
  for (const StageInfo& s : f.stages(w, x)) where.push_back(s.device);
  EXPECT_TRUE(std::ranges::count(where, there) == 1 && std::ranges::count(where, 0) >= 1);
}

TEST_F(Platforms, KernelsForTheCpuServeBoth) {
  for (const Side& s : sides()) {
    const Tensor a = device_put(eye(DType::f32, 3, 3) * 4.0f + 1.0f, s.device);
    const auto f = [](Tensor x) { return linalg::cholesky(x); };
    for (const Tensor& l : {f(a), jit(f)(a)})
      EXPECT_TRUE(allclose(matmul(l, transpose(l)), a, 1e-5, 1e-5).item<bool>()) << s.name;
    EXPECT_EQ(jit(f)(a).device(), s.device);
    const auto over = [&](Tensor x) { return call({.device = other(s)}, x, jit(f), x); };
    EXPECT_TRUE(allclose(jit(over)(a), f(a), 1e-5, 1e-5).item<bool>());
    const auto trace_of = [](const auto& g) { return [g](Tensor x) { return sum(g(x)); }; };
    EXPECT_TRUE(
        allclose(jit(grad(trace_of(over)))(a), jit(grad(trace_of(f)))(a), 1e-4, 1e-4).item<bool>());
  }
}

TEST_F(Platforms, SavedAndWrittenProgramsRunOnBoth) {
  std::atomic<int> where = -1;
  register_function("platforms_test.where", [&](const CallInfo& info, float v) {
    where = info.device;
    return v + 1;
  });
  const auto f = jit([](Tensor x) {
    return call({.name = "named"}, x.type(), Named{"platforms_test.where"}, x * 2.0f);
  });
  const TemporaryFolder folder;
  save(folder.path() + "/f.postern", f.lower(Tensor(1.0f)));
  const Loaded loaded = load(folder.path() + "/f.postern");
  for (const Side& s : sides()) {
    EXPECT_EQ(loaded(device_put(Tensor(2.0f), s.device)).at(0).item<float>(), 5) << s.name;
    EXPECT_EQ(where, s.device);
  }
  unregister_function("platforms_test.where");
}

TEST_F(Platforms, AProgramOfOneRefusesArgumentsOfTheOther) {
  const auto f = jit([](Tensor x) { return x + 1.0f; });
  const Tensor here = device_put(Tensor(1.0f), 0), over = device_put(Tensor(1.0f), there),
               nowhere(1.0f);
  const auto compiled = f.compile(over).internal();
  const auto run = [&](const Tensor& x) {
    const Tensor* const argument = &x;
    Tensor result;
    compiled->run({&argument, 1}, {&result, 1});
    return result;
  };
  EXPECT_EQ(run(over).item<float>(), 2);
  EXPECT_EQ(run(nowhere).device(), there) << "what was put nowhere goes there";
  expect_error<TypeError>([&] { run(here); },
                          {"compiled for newer", "put on device 0 (cpu)", "device_put"});
}

TEST_F(Platforms, OrderedEffectsKeepTheOrderAcross) {
  std::vector<int> order;
  const auto note = [&](int what) {
    return jit([&order, what](Tensor x) {
      return call(
          {.effect = Effect::ordered}, x.type(),
          [&order, what](float v) {
            order.push_back(what);
            return v + 1;
          },
          x);
    });
  };
  const auto first = note(1), second = note(2), third = note(3);
  const auto f = jit([&](Tensor x) {
    Tensor y = first(x);
    static_cast<void>(call({.device = there}, x, second, x));
    return third(x) + y;
  });
  for (int i = 0; i < 10; ++i) f(Tensor(1.0f)).block_until_ready();
  barrier();
  ASSERT_EQ(order.size(), 30u);
  for (std::size_t i = 0; i < 30; ++i) EXPECT_EQ(order[i], static_cast<int>(i % 3) + 1);
}

/// What a process says that is told to use these.
Ended run_with(const std::string& platforms) {
  return run_program("error_plugin", {}, {{"POSTERN_PLATFORM", platforms}, {"POSTERN_PLUGIN", ""}});
}

TEST(PlatformsAsked, ListsThatAreNone) {
  for (const auto& [list, told] :
       {std::pair{"cpu,cpu", "'cpu' is named twice"},
        {"cpu,", "'' is neither a platform nor"},
        {"cpu,newer=", "'newer=' is neither"},
        {"cpu,=x.so", "'=x.so' is neither"},
        {"cpu,vulkan", "'vulkan' is no known platform"},
        {"cpu,newer=/nowhere/x.so", "cannot load the plug-in /nowhere/x.so"},
        {"newer=/nowhere/x.so,cpu", "cannot load the plug-in /nowhere/x.so"}}) {
    const Ended ended = run_with(list);
    EXPECT_EQ(ended.code, 3) << list << ended.err;
    EXPECT_TRUE(has(ended.out, told)) << list << ": " << ended.out;
  }
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/text.so") << "no library";
  const Ended ended = run_with("cpu,newer=" + folder.path() + "/text.so");
  EXPECT_EQ(ended.code, 3);
  EXPECT_TRUE(has(ended.out, "PluginError") && has(ended.out, "text.so")) << ended.out;
  EXPECT_TRUE(has(run_program("error_plugin", {"x.so"}, {{"POSTERN_PLATFORM", "newer=/y.so"}}).out,
                  "'newer=/y.so' names a plug-in, and Config::plugin another one, 'x.so'"));
  expect_error<TypeError>([] { configure({.platform = "cpu", .platforms = {"cpu"}}); },
                          {"platform and plugin must be empty", "'cpu'"});
  expect_error<TypeError>(
      [] {
        configure({.platforms = {"cpu", "cpu=x.so"}});
      },
      {"configure: platforms", "'cpu' is named twice"});
  expect_error<TypeError>([] { configure({.platforms = {""}}); }, {"neither a platform nor"});
}

TEST(PlatformsAsked, AfterOneThatIsNotThereAnotherWillDo) {
  const Ended ended =
      run_program("second_platform", {POSTERN_TEST_LIBRARIES "/copied_cpu_plugin.so"},
                  {{"POSTERN_CPU_DEVICES", "1"}, {"POSTERN_PLATFORM", ""}});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(has(ended.out, "none.so") && has(ended.out, "cpu 2\nnewer 3\n")) << ended.out;
}

}  // namespace
}  // namespace postern::test
