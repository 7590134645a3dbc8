// Functions that are given device memory, pinned memory, and the platform where its driver or
// plug-in is missing.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "cuda_fake.h"
#include "platform/cuda/cuda.h"
#include "platform/gpu/staging.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using test::FakeCuda, test::has, test::run_program, test::wait_until;
using Floats = std::vector<float>;

TEST(CudaOptions, DeviceMemoryIsForFunctionsThatDoNotReadIt) {
  RecordProperty("covers", "GPU-04");
  const CallOptions there{.name = "there", .memory = Memory::device};
  const Tensor x = tensor<float>({1, 2});
  auto twice = [](const CallInfo& info, View<const float> in, View<float> out) {
    EXPECT_EQ(info.stream, nullptr) << "on a CPU";
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = 2 * in[i];
  };
  EXPECT_EQ(jit([&](Tensor v) { return call(there, v, twice, v); })(x).to_vector<float>(),
            (Floats{2, 4}));
  EXPECT_EQ(call(there, x, twice, x).to_vector<float>(), (Floats{2, 4}));
  CallOptions batched = there;
  batched.vmap = VmapMethod::expand_dims;
  auto in_batch = jit(vmap([&](Tensor v) { return call(batched, v, twice, v); }));
  EXPECT_EQ(in_batch(tensor<float>({1, 2, 3})).to_vector<float>(), (Floats{2, 4, 6}));
  auto refused = [](auto f, std::initializer_list<std::string_view> texts) {
    test::expect_error<TypeError>(f, texts);
  };
  refused(
      [&] {
        call(
            there, type<float>(), [](float v) { return v; }, Tensor(1.0f));
      },
      {"call 'there'", "Memory::device", "in place"});
  refused([&] { call(there, make_type(DType::s4, {2}), [](AnyMutableView) {}); },
          {"call 'there'", "packed"});
  CallOptions limited = there;
  limited.timeout = 1s;
  refused([&] { call(limited, x, twice, x); }, {"call 'there'", "time limit"});
  refused([&] { jit(vmap([&](Tensor v) { return call(there, v, twice, v); }))(x); },
          {"Memory::device", "expand_dims"});
}

TEST(CudaOptions, WorkThatMayBeRecordedIsAnotherTargetForXla) {
  RecordProperty("covers", "GPU-04");
  auto twice = [](View<const float> in, View<float> out) {
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = 2 * in[i];
  };
  CallOptions recorded{.name = "graph", .memory = Memory::device_recorded};
  const Tensor x = tensor<float>({1, 2});
  auto f = jit([&](Tensor v) { return call(recorded, v, twice, v); });
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{2, 4}));
  EXPECT_TRUE(has(f.lower(x).stablehlo(), "postern_recorded_call"));
  recorded.memory = Memory::device;
  const std::string text =
      jit([&](Tensor v) { return call(recorded, v, twice, v); }).lower(x).stablehlo();
  EXPECT_FALSE(has(text, "postern_recorded_call")) << text;
  recorded.memory = Memory::device_recorded;
  for (const Effect effect : {Effect::unordered, Effect::ordered}) {
    recorded.effect = effect;
    test::expect_error<TypeError>([&] { call(recorded, x, twice, x); },
                                  {"call 'graph'", "device_recorded", "pure"});
  }
}

TEST(CudaStaging, NobodyWaitsWhileAnotherPinsMemory) {
  static std::atomic<bool> held{false}, pins{false};
  gpu::Driver slow = FakeCuda::driver();
  slow.allocate = [](void** memory, std::size_t bytes) {
    if (held) {
      pins = true;
      wait_until([] { return !held; });
    }
    return FakeCuda::driver().allocate(memory, bytes);
  };
  gpu::Staging staging(slow, nullptr);
  const auto use = [&](std::size_t bytes) {
    return std::async(std::launch::async,
                      [&, bytes] { const gpu::Staging::Block block(staging, bytes); });
  };
  use(1000).get();
  pins = false;
  held = true;
  const auto large = use(std::size_t{1} << 20);
  EXPECT_TRUE(wait_until([] { return pins.load(); }));
  EXPECT_EQ(use(1000).wait_for(10s), std::future_status::ready) << "there is a block";
  held = false;
  large.wait();
  EXPECT_GT(staging.bytes(), std::size_t{1} << 20);
}

TEST(CudaStaging, EventsComeBackAndAreUsedAgain) {
  // Never destroyed: it keeps its events, and a block may be in flight.
  static auto& staging = *new gpu::Staging(FakeCuda::driver(), nullptr);
  // A tap's leaves give their event back in a destructor.
  static_assert(noexcept(staging.give_back(nullptr)));
  FakeCuda& cuda = FakeCuda::get();
  cuda.reset();
  for (int round = 0; round < 3; ++round) {
    std::vector<void*> events;
    for (int i = 0; i < 5; ++i) events.push_back(staging.record(nullptr));
    for (void* const event : events) staging.give_back(event);
    gpu::Staging::Block block(staging, 1000);
    block.used_by(nullptr);
  }
  EXPECT_EQ(cuda.count("create_event"), 6) << "the last one is behind the last block";
}

TEST(CudaPlatform, AMissingDriverOrPlugInIsAnErrorAndTheCpuGoesOn) {
  RecordProperty("covers", "GPU-07");
  const auto result = run_program("cuda_missing", {}, {{"POSTERN_PLUGIN", ""}});
  EXPECT_EQ(result.code, 0) << result.out << result.err;
  EXPECT_TRUE(has(result.out, "then on the cpu: 6")) << result.out;
}

TEST(CudaPlatform, ThePlugInThatAWheelBroughtIsFound) {
  RecordProperty("covers", "GPU-07");
  if (std::getenv("POSTERN_PLUGIN")) GTEST_SKIP() << "POSTERN_PLUGIN names one";
  const test::TemporaryFolder temporary;
  const std::filesystem::path folder = temporary.path();
  const char* before = std::getenv("PYTHONPATH");
  const std::string old = before ? before : "";
  setenv("PYTHONPATH", ("/nowhere:" + folder.string()).c_str(), 1);
  const auto put = [&](const char* name) {
    const auto file = folder / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << "a plug-in";
    return file.string();
  };
  const std::string older = put("xla_plugins/xla_cuda12_pjrt/xla_gpu_pjrt.so");
  EXPECT_EQ(platforms::plugin_path(platforms::cuda), older);
  const std::string newer = put("jax_plugins/xla_cuda13/xla_cuda_plugin.so");
  EXPECT_EQ(platforms::plugin_path(platforms::cuda), newer);
  std::filesystem::remove_all(folder / "jax_plugins");
  std::filesystem::remove_all(folder / "xla_plugins");
  if (old.empty())
    unsetenv("PYTHONPATH");
  else
    setenv("PYTHONPATH", old.c_str(), 1);
}

}  // namespace
}  // namespace postern
