// Pinned memory of programs on a GPU, with the stand-in: it is there before a function is called.
#include "platform/cuda_fake.h"
#include "platform/gpu/handler.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::FakeCuda;

TEST(CallPinned, MemoryForAllCallsIsTakenBeforeTheFirst) {
  RecordProperty("covers", "GPU-08");
  if (!gpu::stood_in()) GTEST_SKIP() << "only the stand-in counts what is pinned";
  std::vector<int> counts;
  const auto counted = [&counts](View<const float> in, View<float> out) {
    counts.push_back(FakeCuda::get().count("allocate"));
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
  };
  const auto f = jit([&](Tensor x) {
    for (const std::int64_t size : {100, 3'000, 700'000}) {
      const Tensor wide = broadcast_to(sum(x) / 100.0f, {size});
      x = call({.effect = Effect::ordered}, wide.type(), counted, wide);
      x = x + tap({.mode = TapMode::async}, x, [](View<const float>) {});
    }
    return x;
  });
  const int before = FakeCuda::get().count("allocate");
  f(ones(type<float>({100}))).block_until_ready();
  barrier();
  ASSERT_EQ(counts.size(), 3u);
  EXPECT_GT(counts[0], before) << "nothing was taken";
  EXPECT_EQ(counts[2], counts[0]) << "a call pinned memory while the device waited";
  EXPECT_EQ(FakeCuda::get().count("allocate"), counts[0]);
  f(ones(type<float>({100}))).block_until_ready();
  barrier();
  EXPECT_EQ(FakeCuda::get().count("allocate"), counts[0]);
}

TEST(CallPinned, WhereNoneCanBeTakenBeforehandCallsTakeTheirOwn) {
  if (!gpu::stood_in()) GTEST_SKIP() << "only the stand-in fails when it is asked to";
  FakeCuda::get().fail("context_of_device");
  const auto f = jit([](Tensor x) {
    return call(
        x.type(), [](View<const float> in, View<float> out) { out[0] = in[0] * 2; }, x);
  });
  EXPECT_EQ(f(tensor<float>({21})).to_vector<float>(), std::vector<float>{42});
}

}  // namespace
}  // namespace postern
