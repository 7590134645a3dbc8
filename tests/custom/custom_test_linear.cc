// linear_transpose: values as jax.linear_transpose gives them, and what it refuses.
#include <postern/file.h>

#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using Floats = std::vector<float>;

TEST(CustomLinear, TransposeGivesWhatJaxGives) {
  // f(x, y) = 0.5 x - 0.25 y
  auto f = [](Tensor x, Tensor y) { return 0.5f * x - 0.25f * y; };
  const auto t = linear_transpose(f, type<float>({}), type<float>({}));
  for (int again = 0; again < 2; ++again) {
    const auto [x, y] = t(1.0f);
    EXPECT_EQ(x.item<float>(), 0.5f);
    EXPECT_EQ(y.item<float>(), -0.25f);
  }
  // A matrix product, gathered rows, a sum over shifted copies.
  const Tensor m = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  auto g = [m](Tensor x) {
    const Tensor y = matmul(m, x);
    return std::map<std::string, Tensor>{
        {"y", y},
        {"rows", take(x, tensor<int>({2, 0, 2}), 0)},
        {"wide", pad(x, 0.0f, {1}, {2}, {0}) + concatenate({x, x})},
        {"none", zeros(type<float>({2}))}};
  };
  const auto back = linear_transpose(g, type<float>({3}));
  const std::map<std::string, Tensor> ct{{"y", tensor<float>({1, -1})},
                                         {"rows", tensor<float>({1, 10, 100})},
                                         {"wide", tensor<float>({1, 2, 3, 4, 5, 6})},
                                         {"none", tensor<float>({7, 7})}};
  const Floats want{-3 + 10 + 2 + 1 + 4, -3 + 3 + 2 + 5, -3 + 101 + 4 + 3 + 6};
  EXPECT_EQ(std::get<0>(back(ct)).to_vector<float>(), want);
  for (const Mode mode : test::both_modes) {
    auto all =
        jit([&](std::map<std::string, Tensor> c) { return std::get<0>(back(c)); }, {.mode = mode});
    EXPECT_EQ(all(ct).to_vector<float>(), want);
  }
}

TEST(CustomLinear, TransposeThroughControlFlowAndRules) {
  // jax: y_i = sum_{j <= i} w_j x_j by a scan whose start is zero; transposed by hand:
  // ct 1, 2, 3 -> w_j * sum_{i >= j} ct_i.
  auto sums = [](Tensor w, Tensor x) {
    auto step = [](Tensor total, std::tuple<Tensor, Tensor> wx) {
      const auto [a, b] = wx;
      const Tensor next = total + a * b;
      return std::pair{next, next};
    };
    return scan(step, zeros(type<double>({})), std::tuple{w, x}).second;
  };
  auto both = jit([&](Tensor w, Tensor ct) {
    auto f = [&](Tensor x) { return sums(w, x); };
    return std::get<0>(linear_transpose(f, type<double>({3}))(ct));
  });
  const Tensor w = tensor<double>({2, -1, 4}), ct = tensor<double>({1, 2, 3});
  EXPECT_EQ(both(w, ct).to_vector<double>(), (std::vector<double>{12, -5, 12}));
  // The derivative of the transpose by what the function captures.
  auto by_w = grad([&](Tensor v) { return sum(both(v, ct) * tensor<double>({1, 10, 100})); });
  EXPECT_EQ(by_w(w).to_vector<double>(), (std::vector<double>{6, 50, 300}));

  auto choose = [](Tensor p) {
    return [p](Tensor x) {
      return cond(
          p, [](Tensor v) { return 3.0 * v; }, [](Tensor v) { return v / 2.0; }, x);
    };
  };
  for (const bool p : {true, false}) {
    const auto t = linear_transpose(choose(p), type<double>({2}));
    EXPECT_EQ(std::get<0>(t(tensor<double>({2, 4}))).to_vector<double>(),
              p ? (std::vector<double>{6, 12}) : (std::vector<double>{1, 2}));
  }
  // A rule that has no transpose is looked through; one that has is used.
  auto twice = custom_jvp([](Tensor x) { return 2.0 * x; },
                          [](auto x, auto dx) {
                            return std::pair{2.0 * std::get<0>(x), 2.0 * std::get<0>(dx)};
                          });
  EXPECT_EQ(std::get<0>(linear_transpose(twice, 1.0)(3.0)).item<double>(), 6.0);
  auto own = [](Tensor x) {
    return linear_call([](Tensor a, Tensor v) { return a * v; },
                       [](Tensor a, Tensor c) { return 100.0 * a * c; }, Tensor(5.0), x);
  };
  EXPECT_EQ(std::get<0>(linear_transpose(own, 1.0)(3.0)).item<double>(), 1500.0);
  EXPECT_EQ(std::get<0>(linear_transpose(checkpoint(own), 1.0)(3.0)).item<double>(), 1500.0);
  // Under vmap, of the pullback itself, and twice.
  auto rows = vmap([&](Tensor v, Tensor c) {
    auto f = [&](Tensor x) { return sums(v, x); };
    return std::get<0>(linear_transpose(f, type<double>({3}))(c));
  });
  const Tensor stacked = rows(stack({w, 2.0 * w}), stack({ct, ct}));
  EXPECT_EQ(stacked.to_vector<double>(), (std::vector<double>{12, -5, 12, 24, -10, 24}));
  auto once = [&](Tensor c) {
    auto f = [&](Tensor x) { return sums(w, x); };
    return std::get<0>(linear_transpose(f, type<double>({3}))(c));
  };
  EXPECT_EQ(std::get<0>(linear_transpose(once, type<double>({3}))(ct)).to_vector<double>(),
            sums(w, ct).to_vector<double>());
}

struct Affine {
  static constexpr std::string_view name = "affine";
};

TEST(CustomLinear, WhatIsNotLinearIsNamed) {
  const Type v = type<float>({3});
  auto refuse = [&](auto f, std::initializer_list<std::string_view> texts) {
    expect_error<TypeError>([&] { linear_transpose(f, v); }, texts);
  };
  refuse([](Tensor x) { return sin(x); },
         {"linear_transpose: sin ", "is not linear", "custom_test_linear.cc"});
  refuse([](Tensor x) { return x * x; }, {"multiply", "two operands", "custom_test_linear.cc"});
  refuse([](Tensor x) { return 1.0f / x; }, {"divide", "first operand"});
  refuse([](Tensor x) { return x + 1.0f; }, {"operand 1 of add", "zero"});
  auto blocked = [](float offset) {
    return [offset](Tensor x) {
      return block(
          Affine{}, [&](const Affine&, Tensor a) { return a * 2.0f + offset; }, x);
    };
  };
  refuse(blocked(1), {"operand 1 of add", "zero"});
  EXPECT_EQ(std::get<0>(linear_transpose(blocked(0), v)(ones(v))).to_vector<float>(),
            Floats(3, 2.0f));
  refuse([](Tensor x) { return where(x > 0.0f, x, 0.0f); }, {"is not linear"});
  refuse([](Tensor x) { return convert(x, DType::s32); }, {"convert", "s32[3]"});
  refuse([](Tensor x) { return std::pair{x, ones(type<float>({}))}; }, {"result 1", "zero"});
  refuse(
      [](Tensor x) {
        return while_loop([](Tensor a) { return all(a < 3.0f); }, [](Tensor a) { return a + a; },
                          x);
      },
      {"while"});
  refuse(
      [](Tensor x) {
        auto step = [](Tensor c, Tensor a) { return std::pair{c + a, c}; };
        return scan(step, Tensor(1.0f), x).second;
      },
      {"add"});
  expect_error<TypeError>([] { linear_transpose([](Tensor x) { return x; }, type<int>({2})); },
                          {"leaf 0", "s32[2]", "float or complex"});
  auto on_host = [](Tensor x) {
    return call(
        {.name = "twice"}, x.type(), [](float a) { return 2 * a; }, x);
  };
  expect_error<TypeError>([&] { linear_transpose(on_host, 1.0f); },
                          {"linear_transpose: call 'twice'", "linear_call"});
  const auto t = linear_transpose([](Tensor x) { return 2.0f * x; }, v);
  expect_error<TypeError>(
      [&] {
        t(tensor<float>({1, 2}));
      },
      {"linear_transpose", "cotangent 0", "f32[3]", "f32[2]"});
}

TEST(CustomLinear, TapsShowCotangents) {
  Floats seen;
  auto f = [&](Tensor x) {
    return 2.0f * tap(x, [&](const TapInfo& info, float v) {
             EXPECT_EQ(to_string(info.transforms), "transpose");
             seen.push_back(v);
           });
  };
  const auto t = linear_transpose(f, type<float>({}));
  EXPECT_TRUE(seen.empty());
  EXPECT_EQ(std::get<0>(jit([&](Tensor ct) { return t(ct); })(5.0f)).item<float>(), 10.0f);
  EXPECT_EQ(seen, (Floats{10}));
}

/// A matrix on the host, [2 1; 0 3], and its transpose.
Tensor by_matrix(const char* name, const Tensor& v) { return call(v.type(), Named{name}, v); }
Tensor host_linear(const Tensor& x) {
  return linear_call([](std::tuple<>, Tensor v) { return by_matrix("linear.a", v); },
                     [](std::tuple<>, Tensor ct) { return by_matrix("linear.at", ct); },
                     std::tuple<>(), x);
}

TEST(CustomLinear, TransposesOfCallsHaveDerivatives) {
  register_function("linear.a",
                    [](View<const float> a, View<float> y) {
                      y[0] = 2 * a[0] + a[1];
                      y[1] = 3 * a[1];
                    },
                    {.replace = true});
  register_function("linear.at",
                    [](View<const float> a, View<float> y) {
                      y[0] = 2 * a[0];
                      y[1] = a[0] + 3 * a[1];
                    },
                    {.replace = true});
  using F = std::function<Tensor(Tensor)>;
  const std::pair<const char*, F> forms[] = {
      {"alone", host_linear},
      {"checkpoint", [](Tensor x) { return checkpoint(host_linear)(x); }},
      {"scan",
       [](Tensor x) {
         auto step = [](Tensor, Tensor v) { return std::pair{host_linear(v), Tensor(0.0f)}; };
         return scan(step, x, reshape(x, {1, 2})).first;
       }},
      {"vmap",
       [](Tensor x) {
         return reshape(vmap(host_linear)(reshape(x, {1, 2})), {2});
       }},
      {"branch of a batch",
       [](Tensor x) {
         auto one = [](Tensor v) {
           return cond(
               sum(v) > 0.0f, host_linear, [](Tensor u) { return u; }, v);
         };
         return slice_axis(reshape(vmap(one)(stack({x, -x})), {4}), 0, 0, 2);
       }},
  };
  const Tensor x = tensor<float>({1, 2});
  const Floats want{8, 4, 4, 20};  // 2 A^T A
  for (const auto& [name, apply] : forms) {
    SCOPED_TRACE(name);
    auto f = [apply = apply](Tensor v) { return sum(square(apply(v))); };
    EXPECT_EQ(jit(hessian(f))(x).to_vector<float>(), want);
    EXPECT_EQ(jit(jacrev(grad(f)))(x).to_vector<float>(), want);
    EXPECT_EQ(jit(jacfwd(jacfwd(f)))(x).to_vector<float>(), want);
    EXPECT_EQ(jit(jacrev(grad(f)), {.mode = Mode::evaluate})(x).to_vector<float>(), want);
    const Loaded saved = load_text(saved_text(jit(jacrev(grad(f))).lower(x)));
    EXPECT_EQ(std::get<0>(std::tuple{saved(x)})[0].to_vector<float>(), want);
    auto cube = [apply = apply](Tensor v) { return sum(apply(v) * apply(v) * apply(v)); };
    const auto third = jit(jacrev(jacrev(grad(cube))))(x).to_vector<float>();
    EXPECT_EQ(third, (Floats{48, 24, 24, 12, 24, 12, 12, 6 + 162}));  // 6 sum_i a_ij a_ik a_il
  }
}

}  // namespace
}  // namespace postern
