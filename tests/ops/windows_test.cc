// Derivatives of extrema over windows, beside those of loops over the windows' elements.
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "support.h"

namespace postern {
namespace {

using Floats = std::vector<float>;
using Index = std::int64_t;

constexpr float nan = std::numeric_limits<float>::quiet_NaN();

Index size_of(const Dims& dims) { return Type{DType::f32, dims}.size(); }

Dims place_of(Index flat, const Dims& dims) {
  Dims out(dims.size());
  for (std::size_t i = dims.size(); i-- > 0;) {
    out[i] = flat % dims[i];
    flat /= dims[i];
  }
  return out;
}

struct Case {
  Dims extents, window, strides, dilation;
  std::vector<std::pair<Index, Index>> padding;
  WindowOptions options() const {
    return {.strides = strides, .window_dilation = dilation, .padding = padding};
  }
};
const Case cases[] = {
    {{6, 7}, {3, 2}, {1, 1}, {1, 1}, {{0, 0}, {0, 0}}},
    {{6, 7}, {3, 3}, {2, 3}, {1, 1}, {{1, 0}, {2, 1}}},
    {{7, 6}, {2, 3}, {1, 2}, {3, 2}, {{0, 2}, {1, 1}}},
    {{6, 6}, {2, 2}, {1, 1}, {1, 1}, {{-1, 0}, {0, -2}}},
    {{5}, {2}, {1}, {1}, {{4, 3}}},  // windows of padding alone
    {{2, 3, 6, 6}, {1, 1, 3, 3}, {1, 1, 2, 2}, {1, 1, 1, 1}, {{0, 0}, {0, 0}, {1, 1}, {1, 1}}},
    {{2, 6, 5, 3}, {1, 2, 2, 1}, {1, 2, 2, 1}, {1, 1, 1, 1}, {{0, 0}, {0, 0}, {0, 0}, {0, 0}}},
    {{4, 5}, {1, 2}, {2, 1}, {1, 1}, {{0, 0}, {0, 0}}},
    {{3, 2}, {1, 1}, {1, 1}, {1, 1}, {{1, 0}, {0, 0}}},
    {{4}, {1}, {1}, {1}, {{-1, 0}}},
    {{3, 4}, {1, 1}, {1, 1}, {1, 1}, {{0, -1}, {1, -2}}}};

/// Of each window the element that its extremum's tangent comes from; -1: padding.
std::vector<Index> winners(Monoid monoid, const Case& c, const Floats& x, const Dims& out) {
  const float outside = monoid == Monoid::max ? -INFINITY : INFINITY;
  std::vector<Index> all;
  for (Index i = 0; i < size_of(out); ++i) {
    const Dims result = place_of(i, out);
    float best = 0;
    Index winner = -1;
    for (Index k = 0; k < size_of(c.window); ++k) {
      const Dims place = place_of(k, c.window);
      bool inside = true;
      Index from = 0;
      for (std::size_t a = 0; a < out.size(); ++a) {
        const Index at = result[a] * c.strides[a] + place[a] * c.dilation[a] - c.padding[a].first;
        inside = inside && at >= 0 && at < c.extents[a];
        from = from * c.extents[a] + at;
      }
      float value = outside;
      if (inside) value = x[static_cast<std::size_t>(from)];
      if (k > 0 && (monoid == Monoid::max ? best >= value : best <= value)) continue;
      best = value;
      winner = inside ? from : -1;
    }
    all.push_back(winner);
  }
  return all;
}

Tensor weights_of(const Dims& dims) { return reshape(iota<float>(size_of(dims)), dims) + 1; }

/// The gradient of the sum of all results, each times its weight.
Floats slopes(Monoid monoid, const Case& c, const Floats& x, const Dims& out) {
  Floats slope(x.size());
  const std::vector<Index> all = winners(monoid, c, x, out);
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] >= 0) slope[static_cast<std::size_t>(all[i])] += static_cast<float>(i + 1);
  return slope;
}

/// Numbers of which several are equal; every `nans`th, unless 0, is NaN.
Floats numbers(Index count, Index factor, Index nans) {
  Floats x;
  for (Index i = 0; i < count; ++i) {
    x.push_back(static_cast<float>(i * factor % 5) - 2);
    if (nans > 0 && i % nans == nans - 1) x.back() = nan;
  }
  return x;
}

TEST(Windows, GradientsOfExtremaGoToTheFirstThatHoldsThem) {
  for (const Case& c : cases)
    for (const Monoid monoid : {Monoid::max, Monoid::min}) {
      const auto reduced = [&](Tensor v) {
        return reduce_window(monoid, v, c.window, c.options());
      };
      const auto slope = grad([&](Tensor v) {
        const Tensor y = reduced(v);
        return sum(y * weights_of(y.dims()));
      });
      const auto compiled = jit(slope);
      const auto by_steps = jit(slope, {.mode = Mode::evaluate});
      const auto batched = jit(vmap(slope));
      const auto moved = jit(
          [&](Tensor x, Tensor dx) { return jvp(reduced, std::tuple{x}, std::tuple{dx}).second; });
      const std::string name =
          fmt::format("{} of {}", static_cast<int>(monoid), to_string(Type{DType::f32, c.extents}));
      for (const Index nans : {0, 4}) {
        const Floats first = numbers(size_of(c.extents), 3, nans),
                     second = numbers(size_of(c.extents), 7, nans);
        const Tensor x = tensor<float>(first, c.extents), z = tensor<float>(second, c.extents);
        const Dims out = reduced(x).dims();
        const Floats want = slopes(monoid, c, first, out);
        EXPECT_EQ(compiled(x).to_vector<float>(), want) << name;
        if (&c < cases + 3) {  // many small programs
          EXPECT_EQ(by_steps(x).to_vector<float>(), want) << name;
        }
        const Tensor both = batched(stack({x, z}));
        EXPECT_EQ(both[0].to_vector<float>(), want) << name;
        EXPECT_EQ(both[1].to_vector<float>(), slopes(monoid, c, second, out)) << name;
        Floats tangents;
        for (const Index winner : winners(monoid, c, first, out))
          tangents.push_back(static_cast<float>(winner + 1));
        EXPECT_EQ(moved(x, weights_of(c.extents)).to_vector<float>(), tangents) << name;
      }
    }
}

TEST(Windows, SecondDerivativesOfExtrema) {
  const Case& c = cases[0];
  const Floats from = numbers(size_of(c.extents), 3, 0);
  const Tensor x = tensor<float>(from, c.extents), dx = weights_of(c.extents);
  const auto slope = grad([&](Tensor v) {
    const Tensor y = reduce_window(Monoid::max, v, c.window, c.options());
    return sum(y * y);
  });
  const Dims out = reduce_window(Monoid::max, x, c.window, c.options()).dims();
  Floats want(from.size());
  for (const Index winner : winners(Monoid::max, c, from, out))
    want[static_cast<std::size_t>(winner)] += 2 * static_cast<float>(winner + 1);
  EXPECT_EQ(jvp(slope, std::tuple{x}, std::tuple{dx}).second.to_vector<float>(), want);
  EXPECT_EQ(grad([&](Tensor v) { return sum(slope(v) * dx); })(x).to_vector<float>(), want);
}

TEST(Windows, GradientsOfWideWindowsCompileInAMoment) {
  const Case c{{1, 1, 48, 48},
               {1, 1, 16, 16},
               {1, 1, 16, 16},
               {1, 1, 1, 1},
               {{0, 0}, {0, 0}, {0, 0}, {0, 0}}};
  const Floats from = numbers(size_of(c.extents), 3, 0);
  const auto start = std::chrono::steady_clock::now();
  const auto slope = jit(grad([](Tensor v) {
    const Tensor y = max_pool(v, {16, 16});
    return sum(y * weights_of(y.dims()));
  }));
  const Floats got = slope(tensor<float>(from, c.extents)).to_vector<float>();
  EXPECT_LT(test::seconds_since(start), 20);  // of which it takes less than 1
  EXPECT_EQ(got, slopes(Monoid::max, c, from, {1, 1, 3, 3}));
}

TEST(Windows, OfOneElementMayBeCutByPadding) {
  struct Of {
    Monoid monoid;
    float neutral;
  };
  const Tensor x = tensor<float>({1, 2, 3, 4}), both = stack({x, x});
  for (const Of& of : {Of{Monoid::add, 0}, Of{Monoid::multiply, 1}, Of{Monoid::min, INFINITY},
                       Of{Monoid::max, -INFINITY}})
    for (const std::pair<Index, Index>& padding :
         {std::pair<Index, Index>{-1, 0}, {0, -1}, {-1, -1}, {1, -1}, {-1, 2}, {-5, 3}}) {
      const std::vector<std::pair<Index, Index>> paddings{padding};
      const auto reduced = [&](Tensor v) {
        return reduce_window(of.monoid, v, {1}, {.padding = paddings});
      };
      Floats want, slope(4, 0.0f);
      for (Index i = -padding.first; i < 4 + padding.second; ++i) {
        const bool inside = i >= 0 && i < 4;
        want.push_back(inside ? static_cast<float>(i + 1) : of.neutral);
        if (inside) slope[static_cast<std::size_t>(i)] = 1;
      }
      SCOPED_TRACE(fmt::format("{} padded by {}, {}", static_cast<int>(of.monoid), padding.first,
                               padding.second));
      for (const Mode mode : test::both_modes)
        EXPECT_EQ(jit(reduced, {.mode = mode})(x).to_vector<float>(), want);
      EXPECT_EQ(jit(vmap(reduced))(both)[1].to_vector<float>(), want);
      const auto total = [&](Tensor v) { return sum(reduced(v)); };
      EXPECT_EQ(jit(grad(total))(x).to_vector<float>(), slope);
      EXPECT_EQ(jit(vmap(grad(total)))(both)[1].to_vector<float>(), slope);
    }
  const Tensor whole = tensor<int>({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(
      reduce_window(Monoid::add, whole, {1, 1}, {.padding = {{0, -1}, {-1, 0}}}).to_vector<int>(),
      (std::vector<int>{2, 3}));
  const Tensor image = reshape(x, {1, 1, 4});
  const PoolOptions cut{.padding = {{-1, 0}}};
  EXPECT_EQ(max_pool(image, {1}, cut).to_vector<float>(), (Floats{2, 3, 4}));
  EXPECT_EQ(avg_pool(image, {1}, cut).to_vector<float>(), (Floats{2, 3, 4}));
}

TEST(Windows, ThatDoNotFitHaveNoSlope) {
  const Tensor x = ones(type<float>({1, 1, 1}));
  EXPECT_EQ(grad([](Tensor v) { return sum(max_pool(v, {3})); })(x).to_vector<float>(), Floats{0});
  for (const Monoid monoid : {Monoid::add, Monoid::multiply, Monoid::min, Monoid::max}) {
    const auto reduced = [monoid](Tensor v) { return reduce_window(monoid, v, {5}); };
    const Tensor three = iota<float>(3);
    const auto [y, dy] = jvp(reduced, std::tuple{three}, std::tuple{three});
    EXPECT_EQ(y.dims(), Dims{0});
    EXPECT_EQ(dy.dims(), Dims{0});
    EXPECT_EQ(grad([&](Tensor v) { return sum(reduced(v)); })(three).to_vector<float>(),
              (Floats{0, 0, 0}));
  }
}

}  // namespace
}  // namespace postern
