// The block behind cumsum and its kin: kernel and default agree, wherever the axis lies and however
// long it is.
#include <algorithm>
#include <numeric>

#include "support.h"

namespace postern {
namespace {

using test::has;

/// The default instead of the kernel while it lives.
struct ByDefault {
  OverrideHandle handle = keep_default<Cumulative>();
  ~ByDefault() { handle.remove(); }
};

using Operation = Tensor (*)(const Operand&, std::int64_t, bool);
struct Named {
  const char* name;
  Operation operation;
};
constexpr Named operations[] = {
    {"cumsum", cumsum}, {"cumprod", cumprod}, {"cummax", cummax}, {"cummin", cummin}};

/// Small whole numbers, whose sums every dtype holds, with signs; for products 1, -1 and now and
/// then 2.
Tensor numbers(DType dtype, const Dims& dims, bool products) {
  const Tensor i = reshape(
      iota({DType::s32,
            {std::accumulate(dims.begin(), dims.end(), std::int64_t{1}, std::multiplies<>())}},
           0),
      dims);
  const Tensor mixed = (i * 7919) % 23;
  if (!products)
    return convert(mixed - (dtype != DType::u32 && dtype != DType::u64 ? 11 : 0), dtype);
  return convert(where(mixed == 0, 2, 1), dtype);
}

void expect_both_agree(const Named& op, DType dtype, const Dims& dims, std::int64_t axis,
                       bool reverse) {
  const Tensor x = numbers(dtype, dims, op.operation == Operation(cumprod));
  const auto f = [&](const Tensor& v) { return op.operation(v, axis, reverse); };
  const Tensor native = jit(f)(x);
  const ByDefault by_default;
  const Tensor usual = jit(f)(x);
  ASSERT_EQ(native.type(), usual.type());
  EXPECT_TRUE(all(native == usual).item<bool>())
      << op.name << " of " << to_string(x.type()) << " along " << axis
      << (reverse ? " from the end" : "");
}

TEST(Cumulative, KernelAndDefaultAgree) {
  RecordProperty("covers", "BLOCK-16");
  for (const Named& op : operations)
    for (const DType dtype :
         {DType::f32, DType::f64, DType::s32, DType::s64, DType::u32, DType::u64})
      for (const bool reverse : {false, true}) {
        expect_both_agree(op, dtype, {7}, 0, reverse);
        expect_both_agree(op, dtype, {3, 5}, 1, reverse);
        expect_both_agree(op, dtype, {6, 5, 3}, 1, reverse);
      }
  for (const bool reverse : {false, true})
    expect_both_agree(operations[0], DType::c64, {4, 6}, 0, reverse);
}

// Long rows are cut into runs, many rows go side by side, wide ones in strips; none of the lengths
// is a multiple of anything.
TEST(Cumulative, EveryShapeOfTheKernelAgreesWithTheDefault) {
  for (const Named& op : operations)
    for (const bool reverse : {false, true}) {
      expect_both_agree(op, DType::f32, {255}, 0, reverse);
      expect_both_agree(op, DType::f32, {100'003}, 0, reverse);
      expect_both_agree(op, DType::s64, {2, 1'001}, 1, reverse);
      expect_both_agree(op, DType::f32, {11, 9'973}, 1, reverse);
      expect_both_agree(op, DType::f64, {2, 33, 2'051}, 1, reverse);
    }
}

TEST(Cumulative, KernelAndDefaultAgreeOnEmptyArraysAndNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(cumsum(zeros(type<float>({0}))).dims(), (Dims{0}));
  EXPECT_EQ(cummax(zeros(type<float>({3, 0})), 1).dims(), (Dims{3, 0}));
  const Tensor x = tensor<float>({1, -inf, nan, 3, inf, 2});
  for (const Named& op : operations) {
    const Tensor native = op.operation(x, 0, false);
    const ByDefault by_default;
    EXPECT_TRUE(allclose(native, op.operation(x, 0, false), 0, 0, true).item<bool>()) << op.name;
  }
}

// Combined in any other order, these overflow or vanish on the way.
TEST(Cumulative, LongRowsAreCombinedInTheirOrder) {
  std::vector<float> factors;
  std::vector<double> terms;
  for (int i = 0; i < 100'003; ++i) {
    factors.push_back(i % 2 ? 0x1p-100f : 0x1p100f);
    terms.push_back(i % 2 ? -1e308 : 1e308);
  }
  const std::vector<float> products =
      cumprod(Tensor(type<float>({100'003}), factors.data())).to_vector<float>();
  const std::vector<double> sums =
      cumsum(Tensor(type<double>({100'003}), terms.data())).to_vector<double>();
  for (std::size_t i = 0; i < factors.size(); ++i) {
    ASSERT_EQ(products[i], i % 2 ? 1.0f : 0x1p100f) << i;
    ASSERT_EQ(sums[i], i % 2 ? 0.0 : 1e308) << i;
  }
}

// Nor may a part of a row, combined by itself, that no part of the whole row's way is as large as.
TEST(Cumulative, PartsOfLongRowsMayOverflowByThemselves) {
  if (test::skipped_in_stages("sums in order are the kernel's, and kernels are custom calls"))
    return;
  for (const std::int64_t parts : {4, 8, 1'000}) {  // of 64 elements
    SCOPED_TRACE(parts);
    std::vector<float> factors, want;
    std::vector<double> terms, sums;
    float product = 1;
    double sum = 0;
    for (std::int64_t i = 0; i < 64 * parts + 3; ++i) {
      const bool down = i / 64 % 2 == 0;
      factors.push_back(down ? 0.125f : 8.0f);
      const double size = i < 64 ? 0x1p1017 : 0x1p1018;  // between -2^1023 and 2^1023 on the way
      terms.push_back(down ? -size : size);
      product *= factors.back();
      sum += terms.back();
      want.push_back(product);
      sums.push_back(sum);
    }
    const Tensor x(type<float>({64 * parts + 3}), factors.data());
    EXPECT_EQ(cumprod(x).to_vector<float>(), want);
    const Tensor t(type<double>({64 * parts + 3}), terms.data());
    EXPECT_EQ(cumsum(t).to_vector<double>(), sums);
  }
}

// A part of a row that comes back from what is too small to be exact, by itself, or in the row.
TEST(Cumulative, ProductsMayComeBackFromSubnormalNumbers) {
  if (test::skipped_in_stages("products in order are the kernel's, and kernels are custom calls"))
    return;
  std::vector<float> factors(1024, 1.0f), want;
  factors[0] = 0x1p70f;
  factors[256] = 0x1p-80f;
  factors[257] = 0x1.8p-69f;
  factors[258] = 0x1p100f;
  float product = 1;
  for (const float x : factors) want.push_back(product *= x);
  const Tensor x(type<float>({1024}), factors.data());
  EXPECT_EQ(cumprod(x).to_vector<float>(), want);
  std::ranges::fill(factors, 1.0f);
  factors[0] = 0x1p-80f;
  factors[256] = 0x1.000002p-60f;  // the product is subnormal, and so 2^-140 or 0
  factors[257] = 0x1p100f;
  const std::vector<float> row =
      cumprod(Tensor(type<float>({1024}), factors.data())).to_vector<float>();
  EXPECT_TRUE(row[511] == 0x1p-40f || row[511] == 0) << row[511];
  EXPECT_EQ(row[512], row[511]) << "the row goes in order";
}

// Where there is no kernel either.
TEST(Cumulative, ProductsOfOtherDtypesKeepTheirOrder) {
  std::vector<float> factors(700, 100.0f);
  factors[0] = 0;
  const Tensor x(type<float>({700}), factors.data());
  for (const DType dtype : {DType::bf16, DType::f16, DType::c64}) {
    SCOPED_TRACE(to_string(dtype));
    const Tensor y = cumprod(convert(x, dtype));
    EXPECT_TRUE(all(equal(y, 0.0f)).item<bool>());
  }
  const ByDefault by_default;
  EXPECT_TRUE(all(equal(cumprod(x), 0.0f)).item<bool>());
}

// What has become infinite or 0 on the way stays so, whatever comes behind.
TEST(Cumulative, LongRowsThatOverflowStayInfinite) {
  std::vector<float> factors(2'000, 1.0f);
  factors[100] = factors[101] = 0x1p100f;
  factors[900] = factors[901] = 0x1p-100f;
  const std::vector<float> up =
      cumprod(Tensor(type<float>({2'000}), factors.data())).to_vector<float>();
  std::swap(factors[100], factors[900]);
  std::swap(factors[101], factors[901]);
  const std::vector<float> down =
      cumprod(Tensor(type<float>({2'000}), factors.data())).to_vector<float>();
  EXPECT_EQ(up[99], 1);
  EXPECT_EQ(down[99], 1);
  for (std::size_t i = 101; i < up.size(); ++i) {
    ASSERT_EQ(up[i], std::numeric_limits<float>::infinity()) << i;
    ASSERT_EQ(down[i], 0) << i;
  }
}

TEST(Cumulative, LongSumsOfFloatsAreExactToTheLastDigit) {
  if (test::skipped_in_stages("the kernel sums in f64, and kernels are custom calls")) return;
  const std::int64_t n = 1'000'000;
  const Tensor sums = cumsum(broadcast_to(Tensor(0.1f), {n}));
  EXPECT_FLOAT_EQ(sums.to_vector<float>().back(),
                  static_cast<float>(0.1f * static_cast<double>(n)));
}

TEST(Cumulative, IsOneStepOfTheProgramUntilItIsLowered) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const Tensor x = tensor<float>({1, 2, 3});
  const auto f = jit([](Tensor v) { return cumsum(v); });
  EXPECT_TRUE(has(to_string(f.program(x)), "cumulative")) << to_string(f.program(x));
  EXPECT_TRUE(has(f.lower(x).stablehlo(), "postern_call"));
  EXPECT_EQ(block_path(Cumulative{}, {type<float>({3})}).kind, BlockPath::Kind::native);
  EXPECT_EQ(block_path(Cumulative{"logsumexp"}, {type<float>({3})}).kind,
            BlockPath::Kind::default_body);
  EXPECT_EQ(block_path(Cumulative{}, {{DType::bf16, {3}}}).kind, BlockPath::Kind::default_body);
  const ByDefault by_default;
  EXPECT_FALSE(has(f.lower(x).stablehlo(), "postern_call"));
}

TEST(Cumulative, DerivativesAndBatchesGoThroughTheBlock) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const Tensor x = reshape(iota<float>(6), {2, 3}) + 1.0f;
  const auto loss = [](Tensor v) { return sum(cumprod(v, 1) * cumsum(v, 1, true)); };
  const Tensor g = jit(grad(loss))(x);
  const Tensor per_row = jit(vmap([](Tensor row) { return cumsum(row); }))(x);
  EXPECT_EQ(per_row.to_vector<float>(), cumsum(x, 1).to_vector<float>());
  EXPECT_TRUE(
      has(jit(vmap([](Tensor row) { return cumsum(row); })).lower(x).stablehlo(), "postern_call"));
  const ByDefault by_default;
  EXPECT_EQ(g.to_vector<float>(), jit(grad(loss))(x).to_vector<float>());
}

// Elements of a batch that have left the loop are masked; the others go on.
TEST(Cumulative, MayBeInALoopOfABatch) {
  const auto f = [](Tensor limit) {
    return while_loop([limit](Tensor v) { return max(v) < limit; },
                      [](Tensor v) { return cumsum(v); }, ones(type<float>({3})));
  };
  const Tensor limits = tensor<float>({2, 7, 40});
  const std::vector<float> want = vmap(f)(limits).to_vector<float>();
  EXPECT_EQ(jit(vmap(f))(limits).to_vector<float>(), want);
  EXPECT_EQ(want, (std::vector<float>{1, 2, 3, 1, 4, 10, 1, 9, 45}));
}

}  // namespace
}  // namespace postern
