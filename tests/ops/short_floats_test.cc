// Sums, products and counts of floats of one and two bytes are kept in f32: their own dtypes stop
// counting at 8 (f8e5m2), 256 (bf16) or 2048 (f16).
#include <cmath>

#include "support.h"

namespace postern {
namespace {

using Floats = std::vector<float>;

Floats floats(const Tensor& x) { return convert(x, DType::f32).to_vector<float>(); }
Tensor many(DType dtype, const Dims& dims, float value = 1) {
  return convert(full(type<float>(dims), value), dtype);
}
Tensor halves(const Floats& numbers) { return convert(tensor<float>(numbers), DType::f16); }
/// The first element of a function's result, in all modes.
template <class F>
void expect_near(F&& f, const Tensor& x, float want, float within) {
  for (const Mode mode : test::both_modes) {
    const Tensor y = jit(f, {.mode = mode})(x);
    EXPECT_EQ(y.dtype(), x.dtype());
    EXPECT_NEAR(floats(y).at(0), want, within) << to_string(y.type());
  }
}

TEST(ShortFloats, AveragesOfConstantsAreThese) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    for (const std::int64_t n : {16, 31, 32}) {
      const auto average = [n](Tensor v) { return avg_pool(v, {n, n}); };
      expect_near(average, many(dtype, {1, 1, n, n}, 1.5f), 1.5f, 0);
    }
    const auto average = [](Tensor v) { return avg_pool(v, {5000}); };
    expect_near(average, many(dtype, {1, 1, 5000}, 1.5f), 1.5f, 0);
  }
}

TEST(ShortFloats, WindowsCountBeyondTheirDType) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor y = reduce_window(Monoid::add, many(dtype, {800}), {400}, {.strides = {400}});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(floats(y), (Floats{400, 400}));
    const auto slope = grad([](Tensor v) { return sum(reduce_window(Monoid::add, v, {400})); });
    expect_near([&](Tensor v) { return max(slope(v)); }, many(dtype, {1000}), 400, 0);
  }
  const auto product = [](Tensor v) { return reduce_window(Monoid::multiply, v, {4}); };
  expect_near(product, halves({300, 300, 0.001f, 0.001f}), 0.09f, 1e-3f);
}

}  // namespace
}  // namespace postern
