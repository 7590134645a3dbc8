// What functions of calls read and write is the program's memory.
#include "platform/cuda_fake.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::expect_error;
using Floats = std::vector<float>;

TEST(Call, ViewsAreXlasOwnMemory) {
  if (!test::leaves_are_in_place()) GTEST_SKIP() << "leaves are copied to the host";
  RecordProperty("covers", "CALL-14");
  const std::int64_t n = 1 << 24;  // 64 MiB
  const std::shared_ptr<float> memory(
      static_cast<float*>(std::aligned_alloc(64, std::size_t(n) * 4)), std::free);
  std::fill_n(memory.get(), n, 1.0f);
  const void *first_in = nullptr, *first_out = nullptr, *second_in = nullptr;
  auto f = jit([&](Tensor x) {
    Tensor y = call(
        x.type(),
        [&](View<const float> in, View<float> out) {
          first_in = in.data();
          first_out = out.data();
          out[n - 1] = in[n - 1] + 1;
        },
        x);
    return call(
        type<float>(),
        [&](View<const float> in) {
          second_in = in.data();
          return in[n - 1];
        },
        y);
  });
  EXPECT_EQ(f(Tensor::borrow(type<float>({n}), memory.get(), {})).item<float>(), 2);
  EXPECT_EQ(first_in, memory.get()) << "the caller's memory, lent to XLA";
  EXPECT_EQ(first_out, second_in) << "one call's result is the other's operand";
  EXPECT_NE(first_in, first_out);
}

TEST(Call, InPlaceResultsAreTheProgramsOwn) {
  if (!test::leaves_are_in_place()) GTEST_SKIP() << "leaves are copied to the host";
  const void* written = nullptr;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](View<const int> in, View<int> out) {
          written = out.data();
          std::copy(in.begin(), in.end(), out.begin());
        },
        x);
  });
  Tensor y = f(iota<int>(5000));
  const void* read = nullptr;
  jit([&](Tensor x) {
    return call(
        type<int>(),
        [&](View<const int> in) {
          read = in.data();
          return in[4999];
        },
        x);
  })(y)
      .block_until_ready();
  EXPECT_EQ(written, read);
  EXPECT_EQ(y.to_vector<int>()[4999], 4999);
}

TEST(Call, DonatedOperandsAreSeenFirst) {
  RecordProperty("covers", "CALL-17");
  auto f = jit(
      [](Tensor x, Tensor y) {
        return call(
                   x.type(),
                   [](View<const float> v) {
                     return v[0] == 2 ? Floats{v[0], v[1]} : Floats();
                   },
                   x) +
               y;
      },
      {.donate = {0}});
  for (Tensor x : {tensor<float>({2, 2}), tensor<float>({1, 1}) * 2.0f}) {
    EXPECT_EQ(f(x, tensor<float>({3, 4})).to_vector<float>(), (Floats{5, 6}));
    expect_error<TypeError>([&] { x.to_vector<float>(); }, {"donated", "f32[2]"});
    expect_error<TypeError>([&] { f(x, x); }, {"donated", "f32[2]"});
    expect_error<TypeError>([&] { (x + 1.0f).block_until_ready(); }, {"donated", "f32[2]"});
  }
  EXPECT_EQ(f(tensor<float>({2, 2}), tensor<float>({3, 4})).to_vector<float>(), (Floats{5, 6}));
}

}  // namespace
}  // namespace postern
