// Programs on a GPU. They need one, and POSTERN_PLATFORM=cuda, as ctest sets it; elsewhere they say
// why they are skipped.
#include <postern/postern.h>

#include <dlfcn.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <sstream>
#include <thread>

#include "run/runtime.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::expect_error;
using Floats = std::vector<float>;

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    const char* platform = std::getenv("POSTERN_PLATFORM");
    if (!platform || std::string_view(platform) != "cuda")
      GTEST_SKIP() << "POSTERN_PLATFORM is not cuda";
    try {
      ASSERT_EQ(devices().at(0).kind, "cuda");
    } catch (const PluginError& e) {
      GTEST_SKIP() << "no GPU: " << e.what();
    }
  }
};

TEST_F(Gpu, CallsTapsPrintsAndControlFlow) {
  RecordProperty("covers", "GPU-01");
  std::vector<float> shown;
  std::ostringstream lines;
  auto f = jit([&](Tensor x) {
    x = tap(sin(x), [&](View<const float> v) { shown.assign(v.begin(), v.end()); });
    print_value({.stream = &lines, .show_device = false}, sum(x));
    x = fori_loop(
        0, 3, [](Tensor, Tensor v) { return test::host_plus_one(v, {.effect = Effect::ordered}); },
        x);
    return cond(
        sum(x) > 0.0f, [](Tensor v) { return test::host_plus_one(v * 2.0f); },
        [](Tensor v) { return v; }, x);
  });
  const Floats y = f(tensor<float>({0, 1})).to_vector<float>();
  EXPECT_NEAR(y[0], 7, 1e-5);
  EXPECT_NEAR(y[1], 2 * (std::sin(1.0f) + 3) + 1, 1e-5);
  ASSERT_EQ(shown.size(), 2u);
  EXPECT_NEAR(shown[1], std::sin(1.0f), 1e-6);
  EXPECT_TRUE(test::has(lines.str(), "0.84")) << lines.str();
}

TEST_F(Gpu, AnAsynchronousTapDoesNotHoldUpTheProgram) {
  RecordProperty("covers", "GPU-03");
  std::latch seen(1);
  std::vector<float> values;
  auto f = jit([&](Tensor x) {
    x = tap({.mode = TapMode::async}, x + 1.0f, [&](View<const float> v) {
      seen.wait();  // until the program has ended
      values.push_back(v[0]);
    });
    for (int i = 0; i < 20; ++i) x = dot(x, x) * 0.001f;
    return x;
  });
  f(ones(type<float>({256, 256}))).block_until_ready();
  seen.count_down();
  barrier();
  EXPECT_EQ(values, (Floats{2}));
}

TEST_F(Gpu, AKernelOnTheStreamOfTheProgram) {
  RecordProperty("covers", "GPU-04");
  void* const library = dlopen(POSTERN_TEST_LIBRARIES "/gpu_kernels.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) GTEST_SKIP() << "the kernels were not built: " << dlerror();
  const auto twice = reinterpret_cast<int (*)(const float*, float*, std::int64_t, void*)>(
      dlsym(library, "gpu_twice"));
  ASSERT_TRUE(twice);
  auto f = jit([&](Tensor x) {
    return call(
               {.memory = Memory::device}, x.type(),
               [&](const CallInfo& info, View<const float> in, View<float> out) {
                 if (const int error = twice(in.data(), out.data(), in.size(), info.stream))
                   throw std::runtime_error("CUDA error " + std::to_string(error));
               },
               x + 1.0f) +
           1.0f;
  });
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(f(tensor<float>({0, 1, 2})).to_vector<float>(), (Floats{3, 5, 7}));
}

TEST_F(Gpu, EachStepOfALoopCalls) {
  RecordProperty("covers", "GPU-05");
  int calls = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 10,
        [&](Tensor, Tensor v) {
          return call(
              {.effect = Effect::unordered}, v.type(),
              [&](float n) {
                ++calls;
                return n + 1;
              },
              v * 1.0f);
        },
        x);
  });
  for (int run = 1; run <= 3; ++run) {
    EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 10);
    EXPECT_EQ(calls, 10 * run);
  }
}

TEST_F(Gpu, FailuresAreErrorsAndTheNextRunIsRight) {
  RecordProperty("covers", "GPU-06");
  auto f = jit([](Tensor x) {
    return call(
               {.name = "picky"}, x.type(),
               [](float v) { return v < 0 ? throw std::runtime_error("negative") : v; }, x) *
           2.0f;
  });
  for (int i = 0; i < 3; ++i) {
    expect_error<CallbackError>([&] { f(Tensor(-1.0f)).item<float>(); },
                                {"call 'picky' at gpu_test.cc:", "negative"});
    EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 4);
  }
}

TEST_F(Gpu, LargeOperandsAndResults) {
  RecordProperty("covers", "GPU-08");
  const std::int64_t n = 16 << 20;  // 64 MiB
  auto f = jit([](Tensor x) { return sum(test::host_plus_one(x * 0.0f)); });
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(f(ones(type<float>({n}))).item<float>(), static_cast<float>(n));
}

TEST_F(Gpu, AFunctionRunsProgramsOnTheSameGpu) {
  RecordProperty("covers", "GPU-09");
  auto inner = jit([](Tensor x) { return test::host_plus_one(dot(x, x)); });
  auto outer = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](View<const float> in, View<float> out) {
          const Floats y = inner(Tensor(type<float>({2, 2}), in.data())).to_vector<float>();
          std::ranges::copy(y, out.begin());
        },
        x * 1.0f);
  });
  EXPECT_EQ(outer(ones(type<float>({2, 2}))).to_vector<float>(), (Floats{3, 3, 3, 3}));
}

// XLA's compiler tries kernels with the GPU for itself, which runs in their calls would never give.
TEST_F(Gpu, AFunctionCompilesWhileOthersDo) {
  const auto products = [](float by) {
    return jit([by](Tensor x) { return sum(dot(x, x) * by) / 65536.0f; });
  };
  std::atomic<bool> stop = false;
  std::thread other([&] {
    for (float by = 2; !stop; ++by)
      EXPECT_EQ(products(by)(ones(type<float>({256, 256}))).item<float>(), 256 * by);
  });
  auto outer = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          return products(-v)(ones(type<float>({256, 256}))).item<float>();
        },
        x);
  });
  for (int i = 1; i <= 4; ++i)
    EXPECT_EQ(outer(Tensor(static_cast<float>(i))).item<float>(), static_cast<float>(-256 * i));
  stop = true;
  other.join();
}

TEST_F(Gpu, RunsThatFollowOneAnotherNeedNoSecondClient) {
  auto& runtime = run::Runtime::get();
  const auto before = runtime.lane_count();
  auto f = jit([](Tensor x) {
    x = test::host_plus_one(x);
    for (int i = 0; i < 20; ++i) x = dot(x, x) * 0.001f;
    return x;
  });
  Tensor x = zeros(type<float>({512, 512}));
  for (int i = 0; i < 20; ++i) x = f(x) * 0.0f;
  EXPECT_EQ(x.to_vector<float>()[0], 0);
  EXPECT_EQ(runtime.lane_count(), before);
  barrier();
}

// What a function reads is the outer client's; its owner may go while the GPU still reads it.
TEST_F(Gpu, AViewOutlivesItsOwner) {
  const auto slow = jit([](Tensor x) {
    const Tensor work = fori_loop(
        0, 50, [](Tensor, Tensor v) { return dot(v, v) * 0.001f; }, ones(type<float>({512, 512})));
    return x + sum(work) * 0.0f;
  });
  Tensor given, y;
  auto outer = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          y = slow(given);
          given = Tensor();
          return v;
        },
        x);
  });
  for (int i = 0; i < 20; ++i) {
    const auto value = static_cast<float>(i);
    given = Tensor(value) + zeros(type<float>({1 << 20}));
    outer(Tensor(0.0f)).item<float>();
    const Tensor other = Tensor(-1.0f) + zeros(type<float>({1 << 20}));
    EXPECT_EQ(other.to_vector<float>()[5], -1);
    for (const float got : y.to_vector<float>()) ASSERT_EQ(got, value);
  }
}

TEST_F(Gpu, ProductsOfFloatsAreNotRounded) {
  const float x = 1 + std::ldexp(1.0f, -12);  // 1 in TF32
  const Tensor a = full(type<float>({256, 256}), x), b = ones(type<float>({256, 256}));
  EXPECT_EQ(jit([](Tensor v, Tensor w) { return dot(v, w); })(a, b).to_vector<float>()[0], 256 * x);
  EXPECT_EQ(dot(a, b).to_vector<float>()[0], 256 * x);
}

TEST_F(Gpu, ElementsOfEveryWidthAndEmptyArrays) {
  RecordProperty("covers", "GPU-10");
  for (const DType dtype : {DType::s4, DType::u4, DType::bf16, DType::f16, DType::f8e5m2,
                            DType::f8e4m3fn, DType::s8, DType::f64, DType::c64})
    for (const Dims& dims : {Dims{3}, Dims{0}, Dims{5, 7}}) {
      auto f = jit([&](Tensor x) {
        return call(
            x.type(),
            [](AnyView in, AnyMutableView out) {
              std::memcpy(out.data(), in.data(),
                          static_cast<std::size_t>(in.size()) * byte_width(in.dtype()));
            },
            x);
      });
      const Tensor x = convert(
          remainder(reshape(iota<std::int32_t>(make_type(DType::s32, dims).size()), dims), 5),
          dtype);
      std::vector<std::byte> want(x.type().byte_size()), got(want.size());
      x.read(want.data());
      f(x).read(got.data());
      EXPECT_EQ(got, want) << to_string(x.type());
    }
}

TEST_F(Gpu, CollectivesAroundACallOnEachDevice) {
  RecordProperty("covers", "GPU-11");
  const auto n = static_cast<std::int64_t>(devices().size());
  const Mesh mesh({{"d", n}});
  std::atomic<int> wrong = 0;
  auto f = jit(shard_map(
      [&](Tensor x) {
        x = x + psum(x, "d");
        x = call(
            {.effect = Effect::unordered}, x.type(),
            [&](const CallInfo& info, View<const float> in, View<float> out) {
              if (info.coordinates[0] != info.device) ++wrong;
              out[0] = in[0] + 1;
            },
            x);
        return psum(x, "d");
      },
      mesh, {.in = {P("d")}, .out = {P()}}));
  const auto total = static_cast<float>(n * (n - 1) / 2), size = static_cast<float>(n);
  EXPECT_EQ(f(iota<float>(n)).to_vector<float>()[0], total + size * total + size);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace postern
