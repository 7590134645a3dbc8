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

TEST(ShortFloats, UpdatesOfOneElementAllCount) {
  const auto zeros_of = [](std::int64_t n) { return zeros(type<int>({n})); };
  for (const DType dtype : {DType::bf16, DType::f16, DType::f8e5m2}) {
    const Tensor ones_of = many(dtype, {1000});
    const auto added = [&](Tensor v) { return index_add(v, zeros_of(1000), ones_of); };
    expect_near(added, many(dtype, {2}, 0), 1000, 40);
    const auto taken =
        grad([&](Tensor v) { return sum(convert(take(v, zeros_of(1000)), DType::f32)); });
    expect_near(taken, many(dtype, {2}), 1000, 40);
    const auto along = grad(
        [&](Tensor v) { return sum(convert(take_along_axis(v, zeros_of(1000), 0), DType::f32)); });
    expect_near(along, many(dtype, {2}), 1000, 40);
    // Each row counts for itself.
    const Tensor rows = vmap(taken)(many(dtype, {2, 2}));
    EXPECT_NEAR(floats(rows).at(0), 1000, 40);
    EXPECT_NEAR(floats(rows).at(2), 1000, 40);
  }
  const auto added = [&](Tensor v) {
    return index_add(v, zeros_of(5000), many(DType::f16, {5000}));
  };
  expect_near(added, many(DType::f16, {2}, 0), 5000, 0);
  const auto multiplied = [&](Tensor v) {
    return index_multiply(v, zeros_of(4), halves({300, 300, 0.001f, 0.001f}));
  };
  expect_near(multiplied, many(DType::f16, {2}), 0.09f, 1e-3f);
}

TEST(ShortFloats, UniqueUpdatesAreAdded) {
  const auto added = [](Tensor v) {
    return scatter(Update::add, v, tensor<int>({{2}, {0}}), many(v.dtype(), {2}, 0.5f),
                   {{}, {0}, {0}, {}, {}}, {.unique = true});
  };
  for (const Mode mode : test::both_modes)
    EXPECT_EQ(floats(jit(added, {.mode = mode})(many(DType::bf16, {3}))), (Floats{1.5, 1, 1.5}));
}

TEST(ShortFloats, ManyThatAreTheExtremumShareItsDerivative) {
  const Tensor at = zeros(type<int>({5000}));
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor updates = many(dtype, {5000});
    const auto largest = [&](Tensor u) { return index_max(many(dtype, {1}, -1), at, u); };
    const auto smallest = [&](Tensor u) { return index_min(many(dtype, {1}, 2), at, u); };
    const auto of_x = [&](Tensor v) { return index_max(v, at, updates); };
    for (const Tensor& slopes : {grad([&](Tensor u) { return sum(largest(u)); })(updates),
                                 grad([&](Tensor u) { return sum(smallest(u)); })(updates)}) {
      EXPECT_EQ(slopes.dtype(), dtype);
      EXPECT_NEAR(sum(convert(slopes, DType::f32)).item<float>(), 1, 0.01);
    }
    const Tensor tangent = jvp(largest, std::tuple{updates}, std::tuple{updates}).second;
    EXPECT_EQ(tangent.dtype(), dtype);
    EXPECT_NEAR(floats(tangent).at(0), 1, 0.01);
    const Tensor share = grad([&](Tensor v) { return sum(of_x(v)); })(many(dtype, {1}));
    EXPECT_NEAR(floats(share).at(0), 1.0f / 5001, 2e-6f);
  }
}

TEST(ShortFloats, SlopesByPaddingAreSumsOfThePaddingAlone) {
  const auto by_value = [](const Tensor& x, Dims low, Dims high, Dims interior, const Tensor& by) {
    return grad([=](Tensor value) {
      return sum(convert(pad(x, value, low, high, interior), DType::f32) * by);
    });
  };
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = many(dtype, {dtype == DType::bf16 ? 1000 : 100'000});
    expect_near(by_value(x, {1}, {0}, {0}, Tensor(1.0f)), many(dtype, {}, 0), 1, 0);
  }
  const Tensor two = many(DType::f32, {2}), zero = many(DType::f32, {}, 0);
  for (const Floats& weights : {Floats{1, 1e10f, 3e9f}, Floats{1, INFINITY, 3}})
    expect_near(by_value(two, {1}, {0}, {0}, tensor<float>(weights)), zero, 1, 0);
  struct Row {
    std::int64_t low, high, interior;
    float want;  // of the weights 1, 2, 4 ... those at padding
  };
  for (const Row& row : {Row{1, 2, 1, 1 + 4 + 16 + 64 + 128}, Row{-1, 0, 1, 1 + 4},
                         Row{-2, 1, 2, 1 + 4 + 8 + 32}, Row{0, -3, 1, 2}, Row{0, 0, 0, 0}}) {
    const std::int64_t extent = 3 + 2 * row.interior + row.low + row.high;
    Floats weights;
    for (int i = 0; i < extent; ++i) weights.push_back(std::ldexp(1.0f, i));
    const auto slope = by_value(many(DType::f32, {3}), {row.low}, {row.high}, {row.interior},
                                tensor<float>(weights));
    expect_near(slope, zero, row.want, 0);
    EXPECT_EQ(floats(vmap(slope)(many(DType::f32, {2}))), Floats(2, row.want));
  }
}

TEST(ShortFloats, NaNOfEitherSignIsTheLargest) {
  const auto quotients = [](Tensor v) { return top_k(v / v, 3); };
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::f8e5m2, DType::f8e4m3fn,
        DType::f8e4m3, DType::f8e3m4, DType::f8e4m3b11fnuz, DType::f8e4m3fnuz, DType::f8e5m2fnuz})
    for (const Mode mode : test::both_modes) {
      SCOPED_TRACE(to_string(dtype));
      const Tensor x = convert(tensor<float>({1, 0, 2, 0}), dtype);  // 0 / 0 has a sign on x86
      const auto [values, places] = jit(quotients, {.mode = mode})(x);
      EXPECT_EQ(values.dtype(), dtype);
      EXPECT_EQ(places.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 3, 0}));
      const Floats numbers = floats(values);
      EXPECT_TRUE(std::isnan(numbers[0]) && std::isnan(numbers[1])) << numbers[0] << numbers[1];
      EXPECT_EQ(numbers[2], 1);
    }
  // 1, NaN with a sign, NaN without one, 2
  const Tensor x =
      bitcast(tensor<std::int32_t>({0x3f800000, -1, 0x7fc00000, 0x40000000}), DType::f32);
  EXPECT_EQ(top_k(x, 3).second.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(floats(grad([](Tensor v) { return sum(top_k(v, 3).first); })(x)), (Floats{0, 1, 1, 1}));
}

TEST(ShortFloats, RootsOfVariancesAreTakenBeforeTheyAreRounded) {
  const auto deviation = [](Tensor v) { return standard_deviation(v); };
  expect_near(deviation, halves({300, -300}), 300, 0);
  expect_near(deviation, halves({1e-4f, -1e-4f}), 1e-4f, 1e-6f);
  expect_near(grad(deviation), halves({300, -300}), 0.5f, 1e-3f);
}

}  // namespace
}  // namespace postern
