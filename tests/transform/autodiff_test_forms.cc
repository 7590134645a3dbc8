// Differentiation: containers, arguments, dtypes, what is refused, and how programs grow.
#include <complex>

#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using Floats = std::vector<float>;
using C = std::complex<float>;

struct Layer {
  Tensor weights, bias;
};
struct Model {
  std::vector<Layer> layers;
  std::map<std::string, Tensor> extra;
  std::optional<Tensor> scale;
};

Tensor loss(const Model& m, Tensor x) {
  for (const Layer& l : m.layers) x = matmul(x, l.weights) + l.bias;
  x = x * m.extra.at("gain");
  if (m.scale) x = x * *m.scale;
  return sum(x);
}

TEST(AutodiffForms, GradientOfNestedContainers) {
  Model m{{{ones(type<float>({2, 2})), zeros(type<float>({2}))},
           {ones(type<float>({2, 1})), zeros(type<float>({1}))}},
          {{"gain", Tensor(3.0f)}},
          Tensor(0.5f)};
  const Tensor x = tensor<float>({1, 2}, {1, 2});
  const Model g = jit(grad([](Model p, Tensor v) { return loss(p, v); }))(m, x);
  ASSERT_EQ(g.layers.size(), 2u);
  EXPECT_EQ(g.layers[0].weights.to_vector<float>(), (Floats{1.5, 1.5, 3, 3}));
  EXPECT_EQ(g.layers[1].bias.to_vector<float>(), (Floats{1.5}));
  EXPECT_EQ(g.extra.at("gain").item<float>(), 3);
  EXPECT_EQ(g.scale->item<float>(), 18);
  m.scale.reset();
  EXPECT_FALSE(jit(grad([](Model p, Tensor v) { return loss(p, v); }))(m, x).scale);
}

TEST(AutodiffForms, ArgumentsAndAuxiliaryResults) {
  auto f = [](Tensor a, Tensor b, Tensor c) { return a * b + c * c; };
  EXPECT_EQ(grad(f)(2.0f, 3.0f, 4.0f).item<float>(), 3);
  EXPECT_EQ(grad<1>(f)(2.0f, 3.0f, 4.0f).item<float>(), 2);
  const auto [ga, gc] = jit(grad<0, 2>(f))(2.0f, 3.0f, 4.0f);
  EXPECT_EQ(ga.item<float>(), 3);
  EXPECT_EQ(gc.item<float>(), 8);
  auto g = [](Tensor a) {
    return std::pair{a * a,
                     std::map<std::string, Tensor>{{"cube", a * a * a}, {"n", convert<int>(a)}}};
  };
  const auto [slope, aux] = jit(grad(g))(3.0f);
  EXPECT_EQ(slope.item<float>(), 6);
  EXPECT_EQ(aux.at("cube").item<float>(), 27);
  const auto [both, again] = jit(value_and_grad(g))(3.0f);
  EXPECT_EQ(both.first.item<float>(), 9);
  EXPECT_EQ(both.second.at("n").item<int>(), 3);
  EXPECT_EQ(again.item<float>(), 6);
  // Static arguments and braces.
  auto power = [](Tensor x, int n) {
    Tensor y = x;
    for (int i = 1; i < n; ++i) y = y * x;
    return y;
  };
  EXPECT_EQ(jit(grad(power))({2.0f}, 3).item<float>(), 12);
}

TEST(AutodiffForms, ResultsThatDoNotMove) {
  const Tensor w = tensor<float>({1, 2, 3});
  EXPECT_EQ(grad([&](Tensor) { return sum(w); })(Tensor(1.0f)).item<float>(), 0);
  EXPECT_EQ(grad([&](Tensor x) { return sum(stop_gradient(x) * x); })(w).to_vector<float>(),
            (Floats{1, 2, 3}));
  EXPECT_EQ(grad([&](Tensor x) { return sum(w * x); })(w).to_vector<float>(), (Floats{1, 2, 3}))
      << "captured tensors are constants";
  auto [y, pull] = vjp([](Tensor x, Tensor n) { return std::tuple{x * 2.0f, n + 1}; }, 1.5f, 4);
  EXPECT_EQ(std::get<1>(y).item<int>(), 5);
  const auto [cx, cn] = pull({Tensor(1.0f), Tensor()});
  EXPECT_EQ(cx.item<float>(), 2);
  EXPECT_EQ(to_string(cn.type()), "pred[]");
  const auto [value, tangent] = jvp(
      [](Tensor x, Tensor n) {
        return std::tuple{x, n};
      },
      std::tuple{1.0f, 2}, std::tuple{3.0f, Tensor()});
  EXPECT_EQ(std::get<0>(tangent).item<float>(), 3);
  EXPECT_EQ(to_string(std::get<1>(tangent).type()), "pred[]");
}

TEST(AutodiffForms, ZeroDerivativesAreOnRequest) {
  RecordProperty("covers", "AD-03");
  auto f = [](Tensor x) {
    return call(
        {.name = "square"}, x.type(), [](float a) { return a * a; }, stop_gradient(x));
  };
  EXPECT_EQ(jit(grad(f))(Tensor(3.0f)).item<float>(), 0);
  EXPECT_TRUE(test::has(jit(f).program(Tensor(3.0f)).text(), "stop_gradient"));
}

TEST(AutodiffForms, WhatIsRefused) {
  const Tensor v = tensor<float>({1, 2});
  expect_error<TypeError>([&] { grad([](Tensor x) { return x * x; })(v); },
                          {"grad", "scalar", "f32[2]", "jacrev", "autodiff_test_forms.cc"});
  expect_error<TypeError>([&] { value_and_grad([](Tensor x) { return convert<int>(x); })(1.0f); },
                          {"real float", "s32[]"});
  expect_error<TypeError>(
      [&] {
        grad([](Tensor x) { return sum(convert<float>(x)); })(tensor<int>({1, 2}));
      },
      {"s32[2]", "allow_int"});
  expect_error<TypeError>([&] { grad([](Tensor x) { return sum(x); })(tensor<C>({C(1, 2)})); },
                          {"c64", "holomorphic"});
  expect_error<TypeError>([&] { jacfwd([](Tensor x) { return x; })(tensor<C>({C(1, 2)})); },
                          {"holomorphic"});
  expect_error<TypeError>(
      [&] {
        jvp([](Tensor x) { return x; }, v, tensor<float>({1, 2, 3}));
      },
      {"tangent 0", "f32[2]", "f32[3]"});
  expect_error<TypeError>(
      [&] {
        jvp([](Tensor x) { return x; }, v, std::tuple{v, v});
      },
      {"2 tangents for 1"});
  expect_error<TypeError>([&] { vjp([](Tensor x) { return x; }, v).second(Tensor(1.0f)); },
                          {"cotangent 0", "f32[2]", "f32[]"});
  expect_error<TypeError>([&] { grad([](Tensor x) { return x; })(Tensor()); }, {"empty Tensor"});
  const auto zeros = grad([](Tensor x) { return sum(convert<float>(x)); },
                          {.allow_int = true})(tensor<int>({1, 2}));
  EXPECT_EQ(to_string(zeros.type()), "pred[2]");
}

TEST(AutodiffForms, TangentsHaveTheStructureOfTheirValues) {
  using Named = std::map<std::string, Tensor>;
  using List = std::vector<Tensor>;
  const Named x{{"b", Tensor(1.0f)}, {"w", Tensor(2.0f)}};
  const Named other{{"aw", Tensor(0.0f)}, {"bias", Tensor(1.0f)}};
  auto of = [](Named m) { return m.at("b") * 10.0f + m.at("w"); };
  EXPECT_EQ(jvp(of, x, x).second.item<float>(), 12);
  expect_error<TypeError>([&] { jvp(of, x, other); }, {"jvp: the tangent has the structure", "2:aw",
                                                       "1:b", "autodiff_test_forms.cc"});
  const auto push = linearize(of, x).second;
  expect_error<TypeError>([&] { push(other); }, {"linearize: the tangent has the structure"});
  auto lists = [](List a, List b) { return a[0] + 10.0f * a[1] + 100.0f * b[0]; };
  const Tensor one(1.0f);
  expect_error<TypeError>(
      [&] {
        jvp(lists, std::tuple{List{one, one}, List{one}}, std::tuple{List{one}, List{one, one}});
      },
      {"structure"});
  auto named = [](Tensor v) { return Named{{"b", v * 10.0f}, {"w", v}}; };
  const auto pull = vjp(named, one).second;
  EXPECT_EQ(std::get<0>(pull(x)).item<float>(), 12);
  expect_error<TypeError>([&] { pull(other); }, {"vjp: the cotangent has the structure", "2:aw"});
  const auto transposed = linear_transpose(named, type<float>());
  expect_error<TypeError>([&] { transposed(other); }, {"linear_transpose: the cotangent"});
  // An optional that has something is as that is; what can have no tensors may be left out.
  auto by_optional = [](Tensor v, std::optional<Tensor> factor,
                        const std::vector<std::pair<int, int>>&) { return v * factor.value(); };
  const std::tuple all{one + one, std::optional(one * 3.0f), std::vector<std::pair<int, int>>(2)};
  EXPECT_EQ(jvp(by_optional, all, std::tuple{one, one}).second.item<float>(), 5);
  // What is static has no tangent; a tuple of one stands for it, and for a pair.
  auto times = [](Tensor v, int n, Tensor w) { return v * w * float(n); };
  EXPECT_EQ(jvp(times, std::tuple{one, 3, one}, std::tuple{one, one}).second.item<float>(), 6);
  EXPECT_EQ(jvp(of, std::tuple{x}, x).second.item<float>(), 12);
  auto sum_of = [](std::pair<Tensor, Tensor> p) { return p.first + p.second; };
  EXPECT_EQ(jvp(sum_of, std::pair{one, one}, std::tuple{one, one}).second.item<float>(), 2);
}

TEST(AutodiffForms, ComplexNumbersFollowJax) {
  // Values from jax.grad, jax.vjp and jax.jacrev.
  const Tensor z(C(1, 2));
  auto magnitude = [](Tensor x) { return real(x * conj(x)); };
  EXPECT_EQ(grad(magnitude)(z).item<C>(), C(2, -4));
  EXPECT_EQ(jit(grad([](Tensor x) { return imag(x * x); }))(z).item<C>(), C(4, -2));
  EXPECT_EQ(grad([](Tensor x) { return x * x; }, {.holomorphic = true})(z).item<C>(), C(2, 4));
  auto [y, pull] = vjp([](Tensor x) { return x * C(0, 3); }, z);
  EXPECT_EQ(std::get<0>(pull(Tensor(C(1, 1)))).item<C>(), C(-3, 3))
      << "transposes do not conjugate";
  auto parts = [](Tensor x) { return real(exp(complex(x, 2.0f * x))); };
  EXPECT_NEAR(grad(parts)(Tensor(0.5f)).item<float>(),
              std::exp(0.5) * (std::cos(1.0) - 2 * std::sin(1.0)), 1e-5);
  EXPECT_EQ(jacrev([](Tensor x) { return x * x; }, {.holomorphic = true})(z).item<C>(), C(2, 4));
  EXPECT_EQ(jacfwd([](Tensor x) { return x * x; }, {.holomorphic = true})(z).item<C>(), C(2, 4));
  auto part = [](Tensor x) { return real(x * x); };
  expect_error<TypeError>([&] { jacfwd(part, {.holomorphic = true})(z); },
                          {"jacfwd", "f32[]", "holomorphic", "complex"});
  expect_error<TypeError>([&] { jacrev(part, {.holomorphic = true})(z); },
                          {"jacrev", "f32[]", "holomorphic", "complex"});
}

TEST(AutodiffForms, JacobiansOfContainers) {
  auto f = [](std::tuple<Tensor, Tensor> p) {
    const auto& [a, b] = p;
    return std::map<std::string, Tensor>{{"product", a * b}, {"total", sum(a)}};
  };
  const std::tuple p{tensor<float>({1, 2}), Tensor(3.0f)};
  for (const auto& j : {jit(jacfwd(f))(p), jit(jacrev(f))(p)}) {
    const auto& [by_a, by_b] = j.at("product");
    EXPECT_EQ(to_string(by_a.type()), "f32[2,2]");
    EXPECT_EQ(by_a.to_vector<float>(), (Floats{3, 0, 0, 3}));
    EXPECT_EQ(by_b.to_vector<float>(), (Floats{1, 2}));
    EXPECT_EQ(std::get<0>(j.at("total")).to_vector<float>(), (Floats{1, 1}));
    EXPECT_EQ(std::get<1>(j.at("total")).item<float>(), 0);
  }
  const auto h = hessian([](std::tuple<Tensor, Tensor> q) {
    return sum(std::get<0>(q) * std::get<0>(q)) * std::get<1>(q);
  })(p);
  EXPECT_EQ(std::get<0>(std::get<0>(h)).to_vector<float>(), (Floats{6, 0, 0, 6}));
  EXPECT_EQ(std::get<1>(std::get<0>(h)).to_vector<float>(), (Floats{2, 4}));
  EXPECT_EQ(std::get<1>(std::get<1>(h)).item<float>(), 0);
  EXPECT_EQ(jacrev<1>([](Tensor, Tensor y) { return y * y; })(1.0f, 3.0f).item<float>(), 6);
  EXPECT_EQ(to_string(jacrev([](Tensor x) { return x; })(zeros(type<float>({2, 3}))).type()),
            "f32[2,3,2,3]");
  EXPECT_EQ(to_string(jacfwd([](Tensor x) { return x; })(zeros(type<float>({0}))).type()),
            "f32[0,0]");
}

TEST(AutodiffForms, JacobiansByArgumentsInAnyOrder) {
  using Both = std::tuple<Tensor, Tensor>;
  const auto numbers = [](const Both& j) {
    return Floats{std::get<0>(j).item<float>(), std::get<1>(j).item<float>()};
  };
  auto plane = [](Tensor a, Tensor b) { return 2.0f * a + 3.0f * b; };
  for (const Both& j : {jacfwd<1, 0>(plane)(1.0f, 1.0f), jacrev<1, 0>(plane)(1.0f, 1.0f)})
    EXPECT_EQ(numbers(j), (Floats{3, 2}));
  for (const Both& j : {jacfwd<0, 0>(plane)(1.0f, 1.0f), jacrev<0, 0>(plane)(1.0f, 1.0f)})
    EXPECT_EQ(numbers(j), (Floats{2, 2}));
  auto bowl = [](Tensor a, Tensor b) { return 5.0f * a * a + 7.0f * a * b + 11.0f * b * b; };
  const auto swapped = jit(hessian<1, 0>(bowl))(1.0f, 1.0f);
  EXPECT_EQ(numbers(std::get<0>(swapped)), (Floats{22, 7}));
  EXPECT_EQ(numbers(std::get<1>(swapped)), (Floats{7, 10}));
  const auto twice = hessian<0, 0>(bowl)(1.0f, 1.0f);
  EXPECT_EQ(numbers(std::get<0>(twice)), (Floats{10, 10}));
  EXPECT_EQ(numbers(std::get<1>(twice)), (Floats{10, 10}));
  // Containers of different numbers of leaves, around one by which nothing is differentiated.
  auto f = [](Both p, Tensor between, std::vector<Tensor> q) {
    return std::pair{std::get<0>(p) * q[0] + std::get<1>(p) * between, q[1] * q[2]};
  };
  const Both p{Tensor(2.0f), Tensor(3.0f)};
  const std::vector<Tensor> q{Tensor(5.0f), Tensor(7.0f), Tensor(11.0f)};
  for (const auto& j : {jacfwd<2, 0>(f)(p, 4.0f, q), jacrev<2, 0>(f)(p, 4.0f, q)}) {
    Floats got;
    for (const Tensor& block : leaves(j)) got.push_back(block.item<float>());
    EXPECT_EQ(got, (Floats{2, 0, 0, 5, 4, 0, 11, 7, 0, 0}));
  }
}

TEST(AutodiffForms, LowPrecisionKeepsItsType) {
  auto f = [](Tensor x) { return sum(sin(x) * 2.0f + x / 3); };
  for (const DType d : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
    const Tensor x = convert(tensor<float>({0.5f, 1.5f}), d);
    EXPECT_EQ(jit(grad(f))(x).dtype(), d);
    EXPECT_NEAR(convert<float>(jit(grad(f))(x)).to_vector<float>()[0],
                2 * std::cos(0.5f) + 1.0f / 3, 0.02);
  }
}

TEST(AutodiffForms, NestedGradientsDoNotMixTheirVariables) {
  auto f = [](Tensor x) {
    const Tensor inner = grad([x](Tensor y) { return x * y; })(Tensor(5.0f));  // x
    return x * inner;
  };
  EXPECT_EQ(grad(f)(Tensor(3.0f)).item<float>(), 6);
  auto g = [](Tensor x) {
    return x * jvp([x](Tensor y) { return x + y; }, Tensor(1.0f), Tensor(1.0f)).second;
  };
  EXPECT_EQ(jit(grad(g))(Tensor(3.0f)).item<float>(), 1);
}

TEST(AutodiffForms, ATapOnATangentShowsTheCotangentInReverseMode) {
  std::vector<std::string> lines;
  const Callee show = [&](const TapInfo& info, float v) {
    lines.push_back(std::to_string(static_cast<int>(v)) + " " + to_string(info.transforms));
  };
  auto square = custom_jvp([](Tensor x) { return x * x; },
                           [&](std::tuple<Tensor> x, std::tuple<Tensor> dx) {
                             const Tensor v = std::get<0>(x), dv = tap(std::get<0>(dx), show);
                             return std::pair{v * v, 2.0f * v * dv};
                           });
  EXPECT_EQ(jit([&](Tensor x) {
              return jvp(square, std::tuple{x}, std::tuple{Tensor(7.0f)}).second;
            })(3.0f)
                .item<float>(),
            42);
  EXPECT_EQ(std::exchange(lines, {}), (std::vector<std::string>{"7 "}));
  EXPECT_EQ(jit(grad(square))(3.0f).item<float>(), 6);
  EXPECT_EQ(lines, (std::vector<std::string>{"6 transpose"}));
}

std::size_t equations(int layers) {
  auto chain = [layers](Tensor x) {
    for (int i = 0; i < layers; ++i) x = sin(x * 1.5f) + x;
    return x;
  };
  return jit(grad(chain)).program(abstract(type<float>())).equations();
}

TEST(AutodiffForms, ProgramsGrowLinearly) {
  const std::size_t small = equations(100);
  EXPECT_LT(equations(1000), small * 11);
  EXPECT_LT(equations(10000), small * 101);
}

}  // namespace
}  // namespace postern
