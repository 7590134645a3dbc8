// Collectives of numbers, shapes and operands that XLA's own get wrong.
#include "devices_test.h"

#include <cmath>
#include <limits>

namespace postern::test {
namespace {

using DevicesCollectives = EightDevices;

constexpr float nan = std::numeric_limits<float>::quiet_NaN(),
                inf = std::numeric_limits<float>::infinity();

/// nan equals nan, and zeros have the same sign.
void expect_same(const Tensor& got, const Tensor& want) {
  ASSERT_EQ(to_string(got.type()), to_string(want.type()));
  const auto a = convert(got, DType::f64).to_vector<double>(),
             b = convert(want, DType::f64).to_vector<double>();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    EXPECT_TRUE(a[i] == b[i] && std::signbit(a[i]) == std::signbit(b[i]))
        << "element " << i << ": " << a[i] << " and " << b[i];
  }
}

/// What f gives on each of n devices, which have a row of x each, row by row.
template <class F>
std::vector<Tensor> on_devices(F f, const Tensor& x) {
  const auto part = [f](Tensor v) {
    std::vector<Tensor> out = f(squeeze(v, {0}));
    for (Tensor& t : out) t = expand_dims(t, 0);
    return out;
  };
  return jit(shard_map(part, Mesh({{"d", x.dims()[0]}}), {.in = {rows}, .out = {rows}}))(x);
}
template <class F>
void expect_as_vmap(F f, const Tensor& x) {
  const std::vector<Tensor> got = on_devices(f, x), want = jit(vmap(f, {.axis_name = "d"}))(x);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    SCOPED_TRACE(i);
    expect_same(got[i], want[i]);
  }
}

TEST_F(DevicesCollectives, MaximaOfFloatsAreThoseOfAVmap) {
  const auto extremes = [](Tensor v) { return std::vector{pmax(v, "d"), pmin(v, "d")}; };
  const Tensor x = reshape(tensor<float>({1,   nan, nan, 0.0f,  -0.0f, -inf, inf,  2,   //
                                          nan, 1,   nan, -0.0f, 0.0f,  -inf, -inf, 2,   //
                                          2,   2,   nan, -0.0f, -0.0f, nan,  1,    -2,  //
                                          3,   3,   nan, -0.0f, -0.0f, -inf, 2,    -2}),
                           {4, 8});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::f64, DType::f8e5m2}) {
    SCOPED_TRACE(to_string(dtype));
    expect_as_vmap(extremes, convert(x, dtype));
  }
  const auto greatest = on_devices(extremes, x)[0].to_vector<float>();
  for (std::size_t device = 0; device < 4; ++device) {
    EXPECT_TRUE(std::isnan(greatest[device * 8]));
    EXPECT_EQ(greatest[device * 8 + 3], 0);
    EXPECT_FALSE(std::signbit(greatest[device * 8 + 3]));
  }
}

TEST_F(DevicesCollectives, DerivativesOfMaximaAreThoseOfAVmap) {
  const Tensor weights = tensor<float>({1, 2, 3, 4});
  const auto slope = [&](auto all) {
    return jit(grad([=](Tensor t) { return sum(all(t) * weights); }));
  };
  const auto change = [&](auto all) {
    return jit([=](Tensor t) { return jvp(all, std::tuple{t}, std::tuple{weights}).second; });
  };
  const auto greatest = [](Tensor v) { return pmax(v, "d"); };
  const auto parts = shard_map(greatest, Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}});
  const auto whole = vmap(greatest, {.axis_name = "d"});
  for (const Tensor& x : {tensor<float>({1, nan, 2, 3}), tensor<float>({1, 3, 3, 2})}) {
    expect_same(slope(parts)(x), slope(whole)(x));
    expect_same(change(parts)(x), change(whole)(x));
  }
  EXPECT_TRUE(std::isnan(slope(parts)(tensor<float>({1, nan, 2, 3})).to_vector<float>()[0]));
}

TEST_F(DevicesCollectives, PiecesOfAConcatenation) {
  const auto joined = [](Tensor v) {
    return concatenate({transpose(v), reshape(v, {3, 2}) * 2.0f}, 0);
  };
  expect_as_vmap(
      [joined](Tensor v) {
        const Tensor w = joined(v);
        return std::vector{all_to_all(w, "d", 0, 1),
                           all_to_all(w, "d", 0, 0),
                           scatter_from(w, "d", 1, 0, true),
                           reduce_scatter(w, "d", 0, true),
                           all_gather(w, "d", 0, true),
                           gather_to(w, "d", 1, 0, true),
                           broadcast(w, "d", 1)};
      },
      counting({2, 2, 3}));
  // Of each column of a batch, whose axis is in front.
  expect_as_vmap(
      [](Tensor v) {
        const auto exchanged = [](Tensor u) {
          return all_to_all(concatenate({u, u * 3.0f}, 0), "d", 0, 1);
        };
        return std::vector{vmap(exchanged, {.in_axes = 1})(v)};
      },
      counting({2, 2, 5, 3}));
}

TEST_F(DevicesCollectives, OfNothing) {
  expect_as_vmap(
      [](Tensor v) {
        return std::vector{psum(v, "d"),
                           pmean(v, "d"),
                           pmax(v, "d"),
                           pmin(v, "d"),
                           all_gather(v, "d", 0, true),
                           all_gather(v, "d"),
                           all_gather(v, "d", 1, true),
                           reduce_scatter(v, "d", 0, true),
                           reduce_scatter(v, "d", 1, true),
                           all_to_all(v, "d", 0, 0),
                           all_to_all(v, "d", 1, 0),
                           ppermute(v, "d", {{0, 1}}),
                           broadcast(v, "d", 1),
                           scatter_from(v, "d", 1, 0, true),
                           scatter_from(v, "d", 1, 1, true),
                           gather_to(v, "d", 1, 0, true),
                           gather_to(v, "d", 1, 1, true),
                           send_recv(v, "d", 0, 1)};
      },
      zeros(type<float>({3, 0, 3})));
  const auto each = [](Tensor v) { return all_gather(v, "d", 0, true); };
  const auto cut = shard_map(each, Mesh({{"d", 3}}), {.in = {rows}, .out = {none}});
  EXPECT_EQ(to_string(jit(cut)(zeros(type<float>({0, 3}))).type()), "f32[0,3]");
}

TEST_F(DevicesCollectives, MeansOfIntegersAreFloats) {
  const auto mean_of = [](Tensor v) { return std::vector{pmean(v, "d")}; };
  const auto expect_mean = [&](const Tensor& x, float want) {
    SCOPED_TRACE(to_string(x.type()));
    expect_as_vmap(mean_of, x);
    const Tensor means = on_devices(mean_of, x)[0];
    EXPECT_EQ(means.dtype(), DType::f32);
    EXPECT_EQ(means.to_vector<float>(), Floats(4, want));
    EXPECT_EQ(mean(x).item<float>(), want);
  };
  const Tensor large = tensor<std::int32_t>({100, 120, 100, 100}),
               small = tensor<std::int32_t>({7, 1, 1, 1});
  for (const DType dtype : {DType::s8, DType::u8, DType::s16, DType::s32, DType::s64})
    expect_mean(convert(large, dtype), 105);
  for (const DType dtype : {DType::s4, DType::u4}) expect_mean(convert(small, dtype), 2.5f);
  expect_mean(convert(tensor<std::int32_t>({1, 1, 0, 0}), DType::s2), 0.5f);
  expect_mean(convert(tensor<std::int32_t>({3, 3, 1, 1}), DType::u2), 2);
  expect_error<TypeError>([&] { on_devices(mean_of, large > 100); }, {"not defined for pred"});
}

}  // namespace
}  // namespace postern::test
