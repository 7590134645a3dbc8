// The derivative of a batch is the batch of derivatives: branches that are not taken and steps of
// elements that have ended add nothing, also where their slope is infinite.
#include "support.h"

#include <cmath>

namespace postern {
namespace {

using Doubles = std::vector<double>;
using F = std::function<Tensor(Tensor v, Tensor c)>;

struct Named {
  std::string name;
  F f;
};

constexpr int last = 2;

/// Functions of v and of c, a vector of three that all elements share, with slopes that are
/// infinite or nan where v is 0 or less, or c is.
std::vector<Named> singular() {
  const auto first = [](Tensor c) { return slice_axis(c, 0, 0, 1); };
  return {
      {"sqrt", [](Tensor v, Tensor c) { return sqrt(v) * sum(c); }},
      {"log", [](Tensor v, Tensor c) { return log(v) + sum(c * c) * v; }},
      {"reciprocal", [](Tensor v, Tensor c) { return sum(c / v); }},
      {"power", [](Tensor v, Tensor c) { return sum(pow(v, abs(c) + 0.25)); }},
      {"cbrt of a product", [](Tensor v, Tensor c) { return cbrt(v * c[1]); }},
      {"product with a matrix",
       [](Tensor v, Tensor c) {
         const Tensor m = reshape(concatenate({c, 2.0 * c, c * c}), {3, 3});
         return sum(sqrt(matmul(m, log(v) * ones(type<double>({3})) + 5.0) + 40.0));
       }},
      {"gathered",
       [](Tensor v, Tensor c) { return v * sqrt(v) * take(c, convert<int>(minimum(v, 1.0)), 0); }},
      {"shared alone", [](Tensor v, Tensor c) { return v * sqrt(c[last]) + v * c[0]; }},
      {"atan2", [](Tensor v, Tensor c) { return atan2(sqrt(v), c[0]); }},
      {"largest", [](Tensor v, Tensor c) { return max(c * sqrt(v)) + logsumexp(c / v); }},
      {"sorted", [=](Tensor v, Tensor c) { return sum(sort(first(c) * log(v) - c)); }},
      {"scan",
       [](Tensor v, Tensor c) {
         auto step = [&](Tensor s, Tensor x) {
           const Tensor next = sqrt(v) * s + x * c[1];
           return std::pair{next, next * x};
         };
         auto [end, all] = scan(step, c[0], c);
         return end + sum(all);
       }},
      {"scan with a shared start",
       [](Tensor v, Tensor c) {
         auto step = [&](Tensor i, Tensor s) { return sqrt(v * s) + convert<double>(i); };
         return fori_loop(0, 3, step, c[0]);
       }},
      {"checkpoint",
       [](Tensor v, Tensor c) {
         return checkpoint([c](Tensor u) { return sqrt(u * c[0]) * c[1]; })(v);
       }},
      {"custom_jvp",
       [](Tensor v, Tensor c) {
         auto root =
             custom_jvp([](Tensor u, Tensor s) { return sqrt(u) * s; },
                        [](auto x, auto dx) {
                          const auto [u, s] = x;
                          const auto [du, ds] = dx;
                          return std::pair{sqrt(u) * s, 0.5 * du / sqrt(u) * s + sqrt(u) * ds};
                        });
         return root(v, c[0]);
       }},
      {"inner branch",
       [](Tensor v, Tensor c) {
         return cond(
             v > 1.0, [](Tensor u, Tensor s) { return log(u - 1.0) * s; },
             [](Tensor u, Tensor s) { return sqrt(u) / s; }, v, c[0]);
       }},
      {"inner loop",
       [](Tensor v, Tensor c) {
         return while_loop([](Tensor u) { return u > 0.5; },
                           [c](Tensor u) { return sqrt(u) * c[1] * 0.5; }, v);
       }},
      {"inner loops by branch",
       [](Tensor v, Tensor c) {
         auto two = [c](Tensor u) {
           const Tensor end = while_loop([](Tensor w) { return any(w > 0.5); },
                                         [c](Tensor w) { return sqrt(w) * c * 0.5; }, u * c);
           return while_loop([](Tensor w) { return w > 1.0; },
                             [c](Tensor w) { return sqrt(w) * c[0]; }, u + sum(end));
         };
         auto one = [c](Tensor u) {
           return while_loop([](Tensor w) { return w > 0.25; },
                             [c](Tensor w) { return sqrt(w) * c[1] * 0.5; }, u);
         };
         return cond(v > 2.0, two, one, v);
       }},
      {"inner batch",
       [](Tensor v, Tensor c) {
         return sum(vmap([v](Tensor s) {
           return cond(
               s > 0.6, [v](Tensor t) { return sqrt(v * t); }, [v](Tensor t) { return t * v; }, s);
         })(c));
       }},
  };
}

/// What keeps them from such points.
std::vector<Named> guards(const F& f) {
  return {
      {"cond",
       [f](Tensor v, Tensor c) {
         return cond(
             v > 0.0, [=](Tensor u) { return f(u, c); }, [c](Tensor u) { return 2.0 * u * c[0]; },
             v);
       }},
      {"cond of operands",
       [f](Tensor v, Tensor c) {
         return cond(
             v > 0.0, [=](Tensor u, Tensor s) { return f(u, s); },
             [](Tensor u, Tensor s) { return 2.0 * u * s[0]; }, v, c);
       }},
      {"switch_",
       [f](Tensor v, Tensor c) {
         auto mine = [=](Tensor u) { return f(u, c); };
         auto zero = [](Tensor u) { return u * u; };
         auto other = [c](Tensor u) { return sum(c) * u; };
         return switch_(convert<int>(sign(v)) + 1, std::tuple{zero, other, mine}, v);
       }},
      {"while_loop",
       [f](Tensor v, Tensor c) {
         auto more = [](Tensor i, Tensor u) { return (u > 0.0) & (i < 2); };
         auto step = [=](Tensor i, Tensor u) {
           const Tensor y = f(u, c);
           return std::pair{i + 1, y / (1.0 + y * y) - 0.6};
         };
         return while_loop(more, step, std::pair{Tensor(0), v}).second;
       }},
      {"fori_loop",
       [f](Tensor v, Tensor c) {
         auto step = [=](Tensor, Tensor u) { return 0.125 * f(v, c) + u * c[1]; };
         return fori_loop(0, convert<int>(clip(v, 0.0, 2.0)), step, v);
       }},
  };
}

/// The slope along all of v and c, in reverse and in forward mode.
F pulled(const F& f) {
  return [f](Tensor v, Tensor c) {
    const auto [by_v, by_c] = grad<0, 1>(f)(v, c);
    return sum(by_v) + sum(by_c);
  };
}
F pushed(const F& f) {
  return [f](Tensor v, Tensor c) {
    return jvp(f, std::tuple{v, c}, std::tuple{ones_like(v), ones_like(c)}).second;
  };
}

/// The sum over elements, by one batch and by two in one another.
F total(const F& f) {
  return [f](Tensor v, Tensor c) { return sum(vmap([=](Tensor u) { return f(u, c); })(v)); };
}
F nested_total(const F& f) {
  return [f](Tensor v, Tensor c) {
    auto row = [=](Tensor r) { return vmap([=](Tensor u) { return f(u, c); })(r); };
    return sum(vmap(row)(reshape(v, {2, -1})));
  };
}

void expect_same(const Tensor& got, const Tensor& want, const char* what) {
  const Doubles a = got.to_vector<double>(), b = want.to_vector<double>();
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(b[i])) << "the point is not one of this test";
    EXPECT_NEAR(a[i], b[i], 1e-9 * (1 + std::abs(b[i]))) << what << ", number " << i;
  }
}

/// Compares derivatives of `of_all` with those of `one`, taken of each element alone. Some elements
/// have a slope in the guarded part, then none: there that by c may be infinite too.
void compare(const F& one, const std::vector<F>& of_all) {
  auto slopes = [](const F& f, const Tensor& v, const Tensor& c) { return grad<0, 1>(f)(v, c); };
  const auto alone = jit([=](Tensor v, Tensor c) { return slopes(one, v, c); });
  const auto together = jit([=](Tensor v, Tensor c) {
    const auto [by_v, by_c] = vmap([=](Tensor u) { return slopes(one, u, c); })(v);
    std::vector<Tensor> all{by_v, sum(by_c, {.axes = Dims{0}})};
    for (const F& f : of_all) {
      const auto [of_v, of_c] = slopes(f, v, c);
      for (const Tensor& t : {of_v, of_c, pushed(f)(v, c)}) all.push_back(t);
    }
    return all;
  });
  const std::pair<Tensor, Tensor> points[] = {
      {tensor<double>({0.0, 1.0, -2.0, 2.5}), tensor<double>({0.5, 0.75, 1.0})},
      {tensor<double>({0.0, -1.0, -2.0, 0.0}), zeros(type<double>({3}))}};
  for (const auto& [v, c] : points) {
    std::vector<Tensor> by_v, by_c;
    for (const double u : v.to_vector<double>()) {
      const auto [of_v, of_c] = alone(Tensor(u), c);
      by_v.push_back(of_v);
      by_c.push_back(of_c);
    }
    const Tensor want_v = stack(by_v), want_c = sum(stack(by_c), {.axes = Dims{0}});
    const std::vector<Tensor> all = together(v, c);
    expect_same(all[0], want_v, "vmap of grad");
    expect_same(all[1], want_c, "vmap of grad by what is shared");
    for (std::size_t i = 2; i < all.size(); i += 3) {
      expect_same(all[i], want_v, "grad of vmap");
      expect_same(all[i + 1], want_c, "grad of vmap by what is shared");
      expect_same(all[i + 2], sum(want_v) + sum(want_c), "jvp of vmap");
    }
  }
}

class Commute : public testing::TestWithParam<Named> {};

TEST_P(Commute, DerivativesOfABatchAreThoseOfItsElements) {
  std::size_t turn = GetParam().name.size();
  for (const auto& [guard, f] : guards(GetParam().f)) {
    if (++turn % test::stride(2) != 0) continue;
    SCOPED_TRACE(guard);
    compare(f, {turn % 4 < 2 ? total(f) : nested_total(f)});
  }
}

/// In few of the guards, since a second derivative takes as long to compile as three.
TEST_P(Commute, AndTheirDerivatives) {
  std::size_t turn = GetParam().name.size();
  for (const auto& [guard, f] : guards(GetParam().f)) {
    if (++turn % (3 * test::stride(2)) != 0) continue;
    SCOPED_TRACE(guard);
    compare(pulled(f), {pulled(total(f)), turn % 4 < 2 ? pushed(total(f)) : total(pulled(f))});
  }
}

INSTANTIATE_TEST_SUITE_P(All, Commute, testing::ValuesIn(singular()), [](const auto& each) {
  std::string name = each.param.name;
  std::ranges::replace(name, ' ', '_');
  return name;
});

}  // namespace
}  // namespace postern
