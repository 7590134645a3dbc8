// Operations at their edges: the smallest and largest numbers, indices and axes that do not fit,
// numbers that their dtypes do not hold.
#include <postern/optimize.h>
#include <postern/random.h>

#include <cmath>
#include <complex>
#include <limits>
#include <numeric>

#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using Ints = std::vector<std::int32_t>;
using Floats = std::vector<float>;
using Longs = std::vector<std::int64_t>;

Ints ints(const Tensor& x) { return convert(x, DType::s32).to_vector<std::int32_t>(); }
Floats floats(const Tensor& x) { return convert(x, DType::f32).to_vector<float>(); }
Tensor halves(const Tensor& x) { return convert(x, DType::f16); }

void expect_near(const Tensor& got, const Floats& want, float relative = 1e-3f) {
  const Floats numbers = floats(got);
  ASSERT_EQ(numbers.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(numbers[i], want[i], relative * std::abs(want[i])) << "element " << i;
}

TEST(Edges, IntegersOfTwoBitsAreSorted) {
  for (const DType dtype : {DType::s2, DType::u2, DType::s4}) {
    const int least = dtype == DType::u2 ? 0 : -2;
    for (const std::int64_t n : {4, 28}) {
      const Tensor mixed = (iota(type<int>({n}), 0) * 7 + 1) % 4 + least;
      const Ints want = ints(sort(mixed));
      const Tensor x = convert(mixed, dtype);
      EXPECT_EQ(ints(sort(x)), want) << to_string(x.type());
      EXPECT_EQ(ints(jit([](Tensor v) { return sort(v); })(x)), want) << to_string(x.type());
      EXPECT_EQ(ints(jit([](Tensor v) { return sort_by({v}, 1)[0]; })(x)), want);
    }
  }
}

// XLA lays them out anew by strides in bytes that they have not.
TEST(Edges, ConvolutionsOfTwoBits) {
  const Tensor x = tensor<int>({1, -1, 0, 1}, {1, 1, 4}), k = tensor<int>({1, -2}, {1, 1, 2});
  const Tensor y = conv(convert(x, DType::s2), convert(k, DType::s2));
  EXPECT_EQ(y.dtype(), DType::s2);
  EXPECT_EQ(ints(y), ints(convert(conv(x, k), DType::s2)));
}

TEST(Edges, ElementsOfLessThanAByteChangePlacesAsOthersDo) {
  using Many = std::vector<Tensor>;
  const std::function<Many(Tensor)> moves[] = {
      [](Tensor x) {
        return Many{transpose(x, {2, 0, 1}), x * x};
      },
      [](Tensor x) {
        return Many{convert(transpose(convert(x, DType::f32), {2, 1, 0}), x.dtype()), x * x};
      },
      [](Tensor x) {
        return Many{take(x, tensor<int>({1, 0, 2}), 1), take(x, tensor<int>({{1, 0}, {3, 2}}), 2),
                    take(x, tensor<int>({1, 0}), 0), x * x};
      },
      [](Tensor x) {
        const Tensor each = vmap(
            [](Tensor y) {
              return take(y, tensor<int>({1, 0}), 1);
            },
            {.in_axes = 1, .out_axes = 2})(x);
        return Many{each, transpose(each, {1, 2, 0}), x * x};
      },
      [](Tensor x) {
        auto step = [](Tensor, Tensor y) { return transpose(y, {1, 0}); };
        return Many{fori_loop(0, 3, step, slice(reshape(x, {4, 6}), {0, 0}, {4, 4})), x * x};
      },
  };
  for (const DType dtype : {DType::s2, DType::u4, DType::f4e2m1fn})
    for (std::size_t i = 0; i < std::size(moves); ++i) {
      SCOPED_TRACE(std::string(to_string(dtype)) + " " + std::to_string(i));
      const Tensor numbers = iota(type<int>({24}), 0) * iota(type<int>({24}), 0) / 3 % 2;
      const auto moved = [&](DType of) {
        const Many all = jit(moves[i])(convert(reshape(numbers, {2, 3, 4}), of));
        std::vector<Floats> out;
        for (const Tensor& t : all) out.push_back(floats(convert(t, dtype)));
        return out;
      };
      EXPECT_EQ(moved(dtype), moved(DType::f32));
    }
}

TEST(Edges, GatherAndScatterRefuseAxesThatDoNotFit) {
  const Tensor x = zeros(type<float>({4, 3})), i = zeros(type<int>({2, 1}));
  const Tensor updates = zeros(type<float>({2, 3}));
  const auto refuse = [&](const IndexAxes& axes, const Dims& sizes, std::string_view text) {
    for (const OutOfRange mode : {OutOfRange::fill, OutOfRange::promise, OutOfRange::clip})
      expect_error<TypeError>([&] { gather(x, i, axes, sizes, mode); }, {"gather", text});
    expect_error<TypeError>([&] { scatter(Update::add, x, i, updates, axes); }, {"scatter", text});
  };
  refuse({{1}, {}, {0}, {0}, {}}, {1, 3}, "batch axes");
  refuse({{1}, {}, {0}, {0}, {1000000}}, {1, 3}, "axes");
  refuse({{1}, {}, {1}, {0}, {1000000}}, {1, 3}, "batch axes");
  refuse({{1}, {0}, {0}, {}, {0}}, {1, 3}, "batch axes");
  refuse({{}, {0, 0}, {0}, {}, {}}, {1, 3}, "different axes");
  refuse({{0, 1}, {}, {7}, {}, {}}, {1, 3}, "different axes");
  refuse({{1000}, {0}, {0}, {}, {}}, {1, 3}, "window axes");
  refuse({{1, 1}, {}, {0}, {}, {}}, {1, 3}, "window axes");
  const IndexAxes rows{{1}, {0}, {0}, {}, {}};
  expect_error<TypeError>(
      [&] {
        gather(zeros(type<float>({0, 3})), i, rows, {1, 3});
      },
      {"gather", "f32[0,3]"});
  expect_error<TypeError>([&] { gather(x, i, rows, {0, 3}); }, {"gather", "dropped"});
  expect_error<TypeError>(
      [] { take_along_axis(zeros(type<float>({0})), zeros(type<int>({1})), 0); },
      {"take_along_axis", "f32[0]"});
}

Tensor head_of(const Tensor& row) { return slice(row, {0}, {1}); }

TEST(Edges, SlicesSayOneNumberForEachAxis) {
  const Tensor x = zeros(type<float>({2, 3}));
  for (const Dims& start : {Dims{}, Dims{0}, Dims{0, 0, 0}})
    expect_error<TypeError>([&] { slice(x, start, x.dims()); }, {"one number for each axis"});
}

TEST(Edges, UpdatesOfNoRowsAreLeftOut) {
  const Tensor none = zeros(type<float>({0, 3}));
  EXPECT_EQ(index_add(none, tensor<int>({0}), ones(type<float>({1, 3})), 0).dims(), (Dims{0, 3}));
}

// Values are worked out in f32, and so are the derivatives.
TEST(Edges, UpdatesOfNoRowsHaveDerivatives) {
  const Tensor none = zeros(type<float>({0, 4})), at = zeros(type<int>({0, 1}));
  const auto added = vmap([](Tensor row, Tensor i) { return index_add(row, i, head_of(row)); });
  const auto updated =
      vmap([](Tensor row, Tensor i) { return dynamic_update_slice(row, head_of(row), {i[0]}); });
  EXPECT_EQ(grad([&](Tensor x) { return sum(added(x, at)); })(none).dims(), (Dims{0, 4}));
  EXPECT_EQ(grad([&](Tensor x) { return sum(updated(x, at)); })(none).dims(), (Dims{0, 4}));
}

TEST(Edges, DerivativesOfHalvesDoNotOverflow) {
  const Tensor x = halves(tensor<float>({1e-4f, 1e4f, 1e-4f, 1e4f}));
  expect_near(grad([](Tensor v) { return prod(v); })(x), {1e4f, 1e-4f, 1e4f, 1e-4f});
  const Tensor y = halves(tensor<float>({300, 300, 0.01f, 0.01f}));
  const auto products = [](Tensor v) { return cumprod(v); };
  const Tensor dy = jvp(products, std::tuple{y}, std::tuple{y}).second;
  EXPECT_NEAR(floats(dy)[3], 36.0f, 0.1f);  // 4 of the value 9
  const Tensor many = zeros({DType::f16, {70'000}});
  EXPECT_NEAR(floats(grad([](Tensor v) { return min(v); })(many))[5] * 70'000, 1, 1e-2);
  const auto angle = [](Tensor v) { return atan2(v, 300.0f); };
  expect_near(grad(angle)(halves(Tensor(300.0f))), {1.0f / 600});
}

TEST(Edges, SoftmaxOfManyHalves) {
  const Tensor x = zeros({DType::f16, {70'000}});
  EXPECT_NEAR(floats(logsumexp(x))[0], std::log(70'000.0f), 1e-2);
  EXPECT_EQ(logsumexp(x).dtype(), DType::f16);
  EXPECT_NEAR(floats(log_softmax(x))[7], -std::log(70'000.0f), 1e-2);
  EXPECT_NEAR(floats(softmax(x))[7] * 70'000, 1, 1e-2);
  EXPECT_EQ(softmax(x).dtype(), DType::f16);
}

TEST(Edges, NumbersThatADtypeHasNotAreRefused) {
  const Tensor x = tensor<int>({1, 2});
  const auto refuse = [&](auto act, std::string_view what) {
    expect_error<TypeError>(act, {what, "convert it"});
  };
  refuse([&] { pad(x, 0.7, {1}, {0}); }, "pad: the value");
  refuse([&] { pad(x, Tensor(2.7f), {1}, {0}); }, "pad: the value");
  refuse([&] { pad(convert<std::uint8_t>(x), Tensor(300) + x[0], {1}, {0}); }, "pad: the value");
  refuse([&] { pad(convert<float>(x), std::complex<float>(2, 3), {1}, {0}); }, "pad: the value");
  refuse([&] { reduce([](Tensor a, Tensor b) { return a + b; }, x, 0.7); }, "reduce: the initial");
  refuse([] { arange(type<int>({4}), 0, 0.5); }, "arange: the step");
  refuse([] { arange(type<int>({4}), 0.5, 1); }, "arange: the start");
  refuse([&] { index_set(x, tensor<int>({0}), 0.7, 0); }, "index_set: updates");
  EXPECT_EQ(ints(pad(x, 7, {1}, {0})), (Ints{7, 1, 2}));
  EXPECT_EQ(floats(pad(halves(convert<float>(x)), 7, {1}, {0})), (Floats{7, 1, 2}));
}

TEST(Edges, RangesOfLargeIntegers) {
  const std::int64_t wide = std::int64_t{1} << 53;
  EXPECT_EQ(arange<std::int64_t>(wide, wide + 3).to_vector<std::int64_t>(),
            (Longs{wide, wide + 1, wide + 2}));
  const std::uint64_t top = std::uint64_t{1} << 63;
  EXPECT_EQ(arange<std::uint64_t>(top, top + 3).to_vector<std::uint64_t>(),
            (std::vector<std::uint64_t>{top, top + 1, top + 2}));
  EXPECT_EQ(arange<std::int32_t>(5, -2, -3).to_vector<std::int32_t>(), (Ints{5, 2, -1}));
  constexpr auto least = std::numeric_limits<std::int64_t>::min(),
                 most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(arange<std::int64_t>(least, most, most).to_vector<std::int64_t>(),
            (Longs{least, -1, most - 1}));
  EXPECT_EQ(arange<std::int32_t>(3, 3).size(), 0);
  EXPECT_EQ(arange<float>(0, 1, 0.25f).to_vector<float>(), (Floats{0, 0.25f, 0.5f, 0.75f}));
  expect_error<TypeError>([] { arange<int>(0, 3, 0); }, {"arange", "step"});
  expect_error<TypeError>([] { arange<float>(0, 3, 0); }, {"arange", "step"});
  expect_error<TypeError>([] { arange<float>(0, std::numeric_limits<float>::infinity()); },
                          {"arange"});
}

TEST(Edges, SpacedIntegersAreRoundedDown) {
  EXPECT_EQ(linspace<int>(-5, 5, 4).to_vector<int>(), (Ints{-5, -2, 1, 5}));
  EXPECT_EQ(linspace<int>(0, 49, 50).to_vector<int>(), arange<int>(0, 50).to_vector<int>());
  const std::int64_t end = (std::int64_t{1} << 62) + 1;
  EXPECT_EQ(linspace<std::int64_t>(0, end, 2).to_vector<std::int64_t>(), (Longs{0, end}));
  EXPECT_EQ(linspace<int>(0, -2.5, 2).to_vector<int>(), (Ints{0, -3}));
}

TEST(Edges, SlopesOfTwoOperands) {
  const auto rest = [](Tensor y) { return remainder(1.0f, y); };
  expect_near(grad(rest)(Tensor(0.1f)), {-9});
  for (const float size : {1e20f, 1e-20f}) {
    const auto angle = [](Tensor y, Tensor x) { return atan2(y, x); };
    const auto [by_y, by_x] = vjp(angle, Tensor(size), Tensor(size)).second(Tensor(1.0f));
    expect_near(by_y, {0.5f / size});
    expect_near(by_x, {-0.5f / size});
  }
  EXPECT_NEAR(atan2(1, 1).item<float>(), 0.785398f, 1e-5);
  const auto larger = [](Tensor v) { return real(maximum(v, std::complex<float>(1, 1))); };
  const Tensor z = grad(larger)(Tensor(std::complex<float>(3, 4)));
  EXPECT_EQ(z.item<std::complex<float>>(), std::complex<float>(1, 0));
}

// What mathematics says of the limit from where the function is.
TEST(Edges, SlopesOfThreeOrdersWhereTheyAreInfiniteOrNone) {
  using F = std::function<Tensor(Tensor)>;
  constexpr double inf = std::numeric_limits<double>::infinity();
  struct Case {
    const char* name;
    F f;
    double at;
    std::vector<double> slopes;
  };
  const auto power = [](double y) -> F { return [y](Tensor x) { return pow(x, y); }; };
  const F root = [](Tensor x) { return sqrt(x); }, reciprocal = [](Tensor x) { return 1.0 / x; },
          of_root = [](Tensor x) { return rsqrt(x); }, cubic = [](Tensor x) { return cbrt(x); },
          logarithm = [](Tensor x) { return log(x); }, near_one = [](Tensor x) { return log1p(x); },
          inverse = [](Tensor x) { return erf_inv(x); };
  const Case cases[] = {
      {"sqrt", root, 0, {inf, -inf, inf}},
      {"sqrt", root, inf, {0, 0, 0}},
      {"rsqrt", of_root, 0, {-inf, inf, -inf}},
      {"rsqrt", of_root, inf, {0, 0, 0}},
      {"cbrt", cubic, 0, {inf, -inf, inf}},
      {"cbrt", cubic, -0.0, {inf, inf, inf}},
      {"cbrt", cubic, inf, {0, 0, 0}},
      {"1 / x", reciprocal, 0, {-inf, inf, -inf}},
      {"1 / x", reciprocal, -0.0, {-inf, -inf, -inf}},
      {"1 / x", reciprocal, inf, {0, 0, 0}},
      {"log", logarithm, 0, {inf, -inf, inf}},
      {"log", logarithm, inf, {0, 0, 0}},
      {"log1p", near_one, -1, {inf, -inf, inf}},
      {"log1p", near_one, inf, {0, 0, 0}},
      {"erf_inv", inverse, 1, {inf, inf, inf}},
      {"erf_inv", inverse, -1, {inf, -inf, inf}},
      {"x^-1", power(-1), 0, {-inf, inf, -inf}},
      {"x^0", power(0), 0, {0, 0, 0}},
      {"x^1/3", power(1.0 / 3), 0, {inf, -inf, inf}},
      {"x^0.5", power(0.5), 0, {inf, -inf, inf}},
      {"x^1", power(1), 0, {1, 0, 0}},
      {"x^1.5", power(1.5), 0, {0, inf, -inf}},
      {"x^2", power(2), 0, {0, 2, 0}},
      {"x^2.5", power(2.5), 0, {0, 0, inf}},
      {"x^3", power(3), 0, {0, 0, 6}},
      {"x^2, a whole number", [](Tensor x) { return pow(x, 2); }, 0, {0, 2, 0}},
      {"square", [](Tensor x) { return square(x); }, 0, {0, 2, 0}},
      {"tanh", [](Tensor x) { return tanh(x); }, inf, {0, 0, 0}},
      {"logistic", [](Tensor x) { return logistic(x); }, -inf, {0, 0, 0}},
      {"exp", [](Tensor x) { return exp(x); }, -inf, {0, 0, 0}},
      {"expm1", [](Tensor x) { return expm1(x); }, -inf, {0, 0, 0}},
  };
  for (const Case& c : cases) {
    const auto all = jit([&](Tensor x) {
      const auto first = [&](Tensor y) { return grad(c.f)(y); };
      const auto second = [&](Tensor y) { return grad(first)(y); };
      return stack({first(x), second(x), grad(second)(x)});
    });
    EXPECT_EQ(all(Tensor(c.at)).to_vector<double>(), c.slopes) << c.name << " at " << c.at;
  }
}

TEST(Edges, BitsOfFourAreCounted) {
  const Tensor x = convert(tensor<int>({-8, -1, 7, -2}), DType::s4);
  EXPECT_EQ(ints(population_count(x)), (Ints{1, 4, 3, 3}));
  const Tensor y = convert(tensor<int>({0, 15, 7, 8}), DType::u4);
  EXPECT_EQ(ints(population_count(y)), (Ints{0, 4, 3, 1}));
}

TEST(Edges, IntegersAreCloseByTheirOwnDifference) {
  const Tensor x = tensor<int>({16'777'217, 5, std::numeric_limits<int>::min()}),
               y = tensor<int>({16'777'216, 5, std::numeric_limits<int>::max()});
  EXPECT_EQ(ints(isclose(x, y, 0, 0)), (Ints{0, 1, 0}));
  EXPECT_EQ(ints(isclose(x, y, 0, 1)), (Ints{1, 1, 0}));
  const std::int64_t wide = std::int64_t{1} << 62;
  EXPECT_FALSE(
      allclose(tensor<std::int64_t>({wide + 1}), tensor<std::int64_t>({wide}), 0, 0).item<bool>());
}

TEST(Edges, ParametersOfDrawsHaveNoMoreElementsThanDraws) {
  const Tensor key = random::key(1), wide = full(type<float>({2, 1}), 0.5f);
  expect_error<TypeError>([&] { random::bernoulli(key, wide, Dims{3}); },
                          {"bernoulli", "f32[2,1]"});
  expect_error<TypeError>([&] { random::uniform(key, type<float>({3}), wide, 1.0f); },
                          {"uniform", "f32[2,1]"});
  expect_error<TypeError>(
      [&] {
        random::integers(key, type<int>({3}), 0, ones(type<int>({2, 1})));
      },
      {"integers", "s32[2,1]"});
  EXPECT_EQ(random::bernoulli(key, wide, Dims{2, 3}).dims(), (Dims{2, 3}));
}

// At once and in programs, where they are written as text.
TEST(Edges, ConstantsAreRoundedOnce) {
  const Tensor one = tensor<float>({1});
  const double near_half = 1.0000000596;  // a little less than halfway to the next float
  EXPECT_EQ((one * near_half).to_vector<float>(), Floats{1});
  EXPECT_EQ(jit([=](Tensor x) { return x * near_half; })(one).to_vector<float>(), Floats{1});
  const double over_half = 1 + 0x1p-11 + 0x1p-30;
  const auto made = [=] { return full({DType::f16, {1}}, over_half); };
  EXPECT_EQ(floats(made()), Floats{1 + 0x1p-10f});
  EXPECT_EQ(floats(jit(made)()), Floats{1 + 0x1p-10f});
  const auto brain = [] { return full({DType::bf16, {2}}, -1 - 0x1p-8 - 0x1p-40); };
  EXPECT_EQ(floats(brain()), (Floats{-1 - 0x1p-7f, -1 - 0x1p-7f}));
  EXPECT_EQ(floats(jit(brain)()), floats(brain()));
}

// XLA ends the process when it divides by a zero that it knows.
TEST(Edges, ConstantsAreWhatTheirDtypeHolds) {
  const Tensor x = tensor<int>({7}), small = convert(x, DType::s8);
  const auto half = [] { return convert(Tensor(0.5), DType::s32); };
  EXPECT_EQ(ints(jit([&](Tensor v) { return (v - v) / half(); })(x)), Ints{-1});
  EXPECT_EQ(ints(jit([&](Tensor v) { return (v - v + 7) % half(); })(x)), Ints{7});
  EXPECT_EQ(ints(jit([&](Tensor v) {
              return (v - v) / full({DType::s8, {1}}, 256);
            })(small)),
            Ints{-1});
  const auto power = [](Tensor v) { return pow(v, full({DType::s8, {1}}, 200)); };  // -56
  EXPECT_EQ(ints(jit(power)(convert(tensor<int>({3}), DType::s8))), Ints{0});
  EXPECT_EQ(ints(power(convert(tensor<int>({3}), DType::s8))), Ints{0});
}

TEST(Edges, SumsOfProductsOfPredArePred) {
  const Tensor x = tensor<bool>({true, true, false, false}, {2, 2});
  EXPECT_EQ(einsum("ij->i", {x}).to_vector<bool>(), (std::vector<bool>{true, false}));
  EXPECT_EQ(einsum("ij,kl->ik", {x, x}).dtype(), DType::pred);
  EXPECT_EQ(einsum("ij,jk->ik", {x, x}).dtype(), DType::pred);
}

TEST(Edges, NumbersOfAByteOrLess) {
  const Tensor x = tensor<float>({1, -4, 2, 3});
  for (const DType dtype : {DType::f8e5m2, DType::f8e4m3fn, DType::f4e2m1fn}) {
    const Tensor y = reduce_window(Monoid::max, convert(x, dtype), {2});
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(floats(y), (Floats{1, 2, 3})) << to_string(dtype);
  }
  EXPECT_EQ(floats(take(convert(x, DType::f4e2m1fn), tensor<int>({2, 0}))), (Floats{2, 1}));
}

TEST(Edges, EmptyArraysOfGreatExtentsEndAtOnce) {
  const std::int64_t great = std::int64_t{1} << 50;
  const Tensor x = zeros(type<float>({great, 0}));
  const auto ops = [](Tensor v) {
    return std::vector{concatenate({v, v}, 1), v + v, transpose(v), flip(v, 0), sort(v, 0)};
  };
  for (const Mode mode : test::both_modes)
    for (const Tensor& y : jit(ops, {.mode = mode})(x)) EXPECT_EQ(y.size(), 0);
  for (const Tensor& y : ops(x)) EXPECT_EQ(y.size(), 0);
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  std::vector<std::byte> out(x.type().byte_size());
  x.read(out.data());
  return out;
}

/// All finite numbers of a float of at most a byte, but for subnormal ones of f32, which XLA takes
/// for 0.
Tensor finite_numbers(DType dtype) {
  std::vector<std::uint8_t> all(std::size_t{1} << bit_width(dtype)), finite;
  std::iota(all.begin(), all.end(), std::uint8_t{0});
  const auto count = static_cast<std::int64_t>(all.size());
  const Floats values = floats(Tensor(make_type(dtype, {count}), all.data()));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (values[i] == 0 || std::isnormal(values[i])) finite.push_back(all[i]);
  return Tensor(make_type(dtype, {static_cast<std::int64_t>(finite.size())}), finite.data());
}

TEST(Edges, NarrowFloatsBecomeTheNumbersThatTheyAre) {
  std::vector<DType> all;
  for (int d = 0; d < static_cast<int>(DType::token); ++d) all.push_back(static_cast<DType>(d));
  for (const DType from : all) {
    if (!is_float(from) || bit_width(from) > 8) continue;
    const Tensor x = finite_numbers(from);
    const auto by = [&](const Tensor& v) {
      std::vector<Tensor> out;
      for (const DType to : all) out.push_back(convert(v, to));
      return out;
    };
    const std::vector<Tensor> want = by(convert(x, DType::f32));
    for (const Mode mode : test::both_modes) {
      const std::vector<Tensor> got = jit(by, {.mode = mode})(x);
      for (std::size_t i = 0; i < all.size(); ++i)
        EXPECT_EQ(bytes_of(got[i]), bytes_of(want[i]))
            << to_string(from) << " to " << to_string(all[i]);
    }
    const std::vector<Tensor> folded = jit([&] { return by(x); })();
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(bytes_of(folded[i]), bytes_of(want[i]))
          << to_string(from) << " to " << to_string(all[i]) << ", a constant";
  }
  const Tensor ends = convert(tensor<float>({6, -6}), DType::f4e2m1fn);
  for (const DType to : {DType::s4, DType::s8, DType::s16, DType::s32, DType::s64})
    EXPECT_EQ(ints(convert(ends, to)), (Ints{6, -6})) << to_string(to);
}

TEST(Edges, LabelsDoNotCountFromTheEnd) {
  const Tensor x = tensor<float>({1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3}, {4, 3});
  for (const DType dtype : {DType::s8, DType::s32, DType::s64}) {
    const Floats loss =
        cross_entropy(x, convert(tensor<std::int32_t>({-1, 0, 2, 3}), dtype)).to_vector<float>();
    EXPECT_TRUE(std::isnan(loss[0]) && std::isnan(loss[3])) << to_string(dtype);
    EXPECT_TRUE(std::isfinite(loss[1]) && std::isfinite(loss[2])) << to_string(dtype);
  }
}

TEST(Edges, FunctionsOfScansGiveAsManyAsTheyTake) {
  const Tensor x = ones(type<float>({5}));
  for (const std::size_t given : {0, 1, 3})
    expect_error<TypeError>(
        [&] {
          associative_scan(
              [&](const std::vector<Tensor>& a, const std::vector<Tensor>&) {
                return std::vector<Tensor>(given, a[0]);
              },
              {x, x});
        },
        {"must return 2 tensors"});
}

TEST(Edges, EllipsesStandOnceInAnOperand) {
  const Tensor x = ones(type<float>({2, 3, 4}));
  for (const char* spec : {"......", "...i...j->ij", "....i"})
    expect_error<TypeError>([&] { einsum(spec, {x}); }, {"einsum"});
}

TEST(Edges, NormsBeyondShortFloatsClip) {
  const Tensor x = full(type<float>({4}), 60000.0f);
  const auto clipped = optimize::clip_by_global_norm(std::vector{convert(x, DType::f16)}, 1.0);
  EXPECT_NEAR(floats(clipped[0])[0], 0.5f, 1e-3f);
}

TEST(Edges, ScalarsHaveNoPartsButThemselves) {
  const Tensor x(1.0f), y = tensor<float>({1, 2, 3});
  expect_error<TypeError>([&] { dynamic_slice(x, {}, {2, 3}); }, {"2 sizes", "f32[]"});
  expect_error<TypeError>([&] { dynamic_update_slice(x, y, {}); }, {"rank of f32[]", "f32[3]"});
  EXPECT_EQ(floats(dynamic_slice(x, {}, {})), Floats{1});
  EXPECT_EQ(floats(dynamic_update_slice(x, Tensor(2.0f), {})), Floats{2});
}

TEST(Edges, StridesOfNoneAreRefused) {
  const Tensor x = ones(type<float>({4, 4}));
  for (const ConvPadding& padding : {ConvPadding("SAME"), ConvPadding("VALID")}) {
    expect_error<TypeError>(
        [&] {
          reduce_window(Monoid::max, x, {2, 2}, {.strides = {0, 1}, .padding = padding});
        },
        {"stride"});
    expect_error<TypeError>(
        [&] {
          conv(ones(type<float>({1, 1, 4, 4})), ones(type<float>({1, 1, 2, 2})),
               {.strides = {1, 0}, .padding = padding});
        },
        {"stride"});
  }
}

TEST(Edges, ExtentsOfNoneAreRefusedByName) {
  expect_error<TypeError>([] { rfft(zeros(type<float>({0}))); }, {"fft", "f32[0]"});
  expect_error<TypeError>(
      [] {
        conv(zeros(type<float>({1, 1, 4})), zeros(type<float>({1, 1, 0})));
      },
      {"conv", "f32[1,1,0]"});
  const Tensor x = ones(type<float>({2, 2}));
  EXPECT_EQ(tril(x, std::int64_t{1} << 40).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(tril(x, -(std::int64_t{1} << 40)).to_vector<float>(), Floats(4, 0.0f));
  EXPECT_EQ(triu(x, std::int64_t{1} << 40).to_vector<float>(), Floats(4, 0.0f));
  EXPECT_EQ(diagonal(x, std::numeric_limits<std::int64_t>::min()).dims(), Dims{0});
  EXPECT_EQ(diagonal(x, std::numeric_limits<std::int64_t>::max()).dims(), Dims{0});
}

}  // namespace
}  // namespace postern
