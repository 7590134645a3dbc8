// custom_linear_solve and custom_root: values and derivatives as JAX 0.10 gives them for the same
// functions in double precision.
#include "support.h"

namespace postern {
namespace {

using test::both_modes, test::expect_error;
using Doubles = std::vector<double>;

void expect_near(const Tensor& got, const Doubles& want, double tolerance = 1e-9) {
  const Doubles values = got.to_vector<double>();
  ASSERT_EQ(values.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i)
    EXPECT_NEAR(values[i], want[i], tolerance * (1 + std::abs(want[i]))) << "[" << i << "]";
}

Tensor matrix() { return tensor<double>({4, 1, 0, 2, 5, 1, 0, 1, 3}, {3, 3}); }
Tensor right() { return tensor<double>({1, 2, 3}); }

/// Steps of a loop that has no reverse mode.
auto by_steps = [](auto map, auto y) {
  using Tree = std::decay_t<decltype(y)>;
  auto more = [](Tree, Tensor i) { return i < 200; };
  auto step = [=](Tree x, Tensor i) {
    const std::vector<Tensor> at = detail::leaves_of(x), ax = detail::leaves_of(map(x)),
                              to = detail::leaves_of(y);
    std::vector<Tensor> next;
    for (std::size_t k = 0; k < at.size(); ++k) next.push_back(at[k] - (ax[k] - to[k]) / 5.0);
    return std::tuple{detail::with_leaves(x, next), i + 1};
  };
  const Tree start = map_leaves([](const Tensor& t) { return zeros_like(t); }, y);
  return std::get<0>(while_loop(more, step, std::tuple{start, Tensor(0)}));
};

Tensor solution(Tensor a, Tensor b) {
  return custom_linear_solve([a](Tensor x) { return matmul(a, x); }, b, by_steps, by_steps);
}
Tensor weighted(Tensor a, Tensor b) {
  return sum(tensor<double>({1, -2, 3}) * square(solution(a, b)));
}

TEST(CustomSolve, DerivativesAreThoseOfJax) {
  for (const Mode mode : both_modes) {
    const JitOptions options{.mode = mode};
    expect_near(jit(solution, options)(matrix(), right()), {0.22, 0.12, 0.96});
    const auto [by_a, by_b] = jit(grad<0, 1>(weighted), options)(matrix(), right());
    expect_near(by_b, {0.4112, -0.6024, 2.1208});
    expect_near(by_a, {-0.090464, -0.049344, -0.394752, 0.132528, 0.072288, 0.578304, -0.466576,
                       -0.254496, -2.035968});
    auto forward = [](Tensor a, Tensor b) {
      return jvp(solution, std::tuple{a, b}, std::tuple{ones(a.type()), tensor<double>({1, 0, 0})})
          .second;
    };
    expect_near(jit(forward, options)(matrix(), right()), {-0.032, -0.172, -0.376});
  }
  const Doubles curvature{0.1088,  0.0624, 0.0592,  0.0624, -0.1848,
                          -0.0984, 0.0592, -0.0984, 0.7528};
  expect_near(jit(hessian<1>(weighted))(matrix(), right()), curvature);
  expect_near(jit(jacrev<1>(grad<1>(weighted)))(matrix(), right()), curvature);
  auto steepness = [](Tensor a) { return sum(square(grad<1>(weighted)(a, right()))); };
  expect_near(jit(grad(steepness))(matrix()),
              {-0.2176836608, 0.2671634432, -0.9358367744, 0.2649148416, -0.4208369664,
               1.1354009088, -1.5608502272, 1.1389401088, -6.7384900096});
}

TEST(CustomSolve, UnderVmap) {
  const Tensor rights = stack({right(), 2.0 * right()}), moved = matrix() + eye(DType::f64, 3, 3);
  const Tensor slopes = jit(vmap(grad<0>(weighted), {.in_axes = {unmapped, 0}}))(matrix(), rights);
  expect_near(slopes, {-0.090464, -0.049344, -0.394752, 0.132528, 0.072288, 0.578304, -0.466576,
                       -0.254496, -2.035968, -0.361856, -0.197376, -1.579008, 0.530112, 0.289152,
                       2.313216, -1.866304, -1.017984, -8.143872});
  const Tensor systems = stack({matrix(), moved});
  expect_near(jit(vmap(solution, {.in_axes = {0, unmapped}}))(systems, right()),
              {0.22, 0.12, 0.96, 0.168224299065, 0.158878504673, 0.710280373832});
  // The derivative of the batch is the batch of derivatives.
  auto total = [](Tensor a, Tensor b) {
    return sum(vmap(weighted, {.in_axes = {unmapped, 0}})(a, b));
  };
  const Tensor of_all = jit(grad(total))(matrix(), rights);
  expect_near(of_all, sum(slopes, {.axes = Dims{0}}).to_vector<double>());
  // In a loop whose elements end at different times the mask goes along.
  auto loop = [](Tensor b, Tensor n) {
    auto body = [](Tensor x, Tensor left) { return std::tuple{solution(matrix(), x), left - 1}; };
    return std::get<0>(
        while_loop([](Tensor, Tensor left) { return left > 0; }, body, std::tuple{b, n}));
  };
  const Tensor twice = jit(vmap(loop, {.in_axes = {unmapped, 0}}))(right(), tensor<int>({1, 2}));
  const Tensor second = solution(matrix(), solution(matrix(), right()));
  expect_near(take(twice, 0), {0.22, 0.12, 0.96});
  expect_near(take(twice, 1), second.to_vector<double>());
}

using Parts = std::map<std::string, Tensor>;
Parts parts_solution(Tensor a, Parts b) {
  auto matvec = [a](const Parts& x) {
    const Tensor y = matmul(a, concatenate({x.at("head"), x.at("tail")}));
    return Parts{{"head", take(y, tensor<int>({0}))}, {"tail", take(y, tensor<int>({1, 2}))}};
  };
  return custom_linear_solve(matvec, b, by_steps, by_steps);
}

TEST(CustomSolve, ContainersAndSymmetricMaps) {
  const Parts b{{"head", tensor<double>({1})}, {"tail", tensor<double>({2, 3})}};
  const Parts x = jit(parts_solution)(matrix(), b);
  expect_near(x.at("head"), {0.22});
  expect_near(x.at("tail"), {0.12, 0.96});
  auto loss = [](Tensor a, Parts right_hand) {
    const Parts of = parts_solution(a, right_hand);
    return sum(square(of.at("head"))) + sum(tensor<double>({-2, 3}) * square(of.at("tail")));
  };
  const auto [by_a, by_b] = jit(grad<0, 1>(loss))(matrix(), b);
  expect_near(by_b.at("head"), {0.4112});
  expect_near(by_b.at("tail"), {-0.6024, 2.1208});
  expect_near(take(by_a, 0), {-0.090464, -0.049344, -0.394752});

  const Tensor s = tensor<double>({4, 1, 0, 1, 5, 1, 0, 1, 3}, {3, 3});
  auto symmetric = [](Tensor a, Tensor y) {
    return sum(custom_linear_solve([a](Tensor v) { return matmul(a, v); }, y, by_steps,
                                   {.symmetric = true}));
  };
  // The sum's gradient by b solves the same system for ones.
  expect_near(jit(grad<1>(symmetric))(s, right()),
              solution(s, ones(type<double>({3}))).to_vector<double>());
  auto one_way = [](Tensor y) {
    return sum(custom_linear_solve([](Tensor v) { return matmul(matrix(), v); }, y, by_steps));
  };
  expect_near(jvp(one_way, right(), right()).second, {1.3});
  expect_error<TypeError>([&] { grad(one_way)(right()); },
                          {"custom_linear_solve", "transpose_solve", ".symmetric"});
}

TEST(CustomSolve, WhatDoesNotFitIsRefused) {
  auto twice = [](Tensor x) { return 2.0 * x; };
  auto half = [](auto, Tensor b) { return b / 2.0; };
  expect_error<TypeError>(
      [&] { custom_linear_solve([](Tensor x) { return sum(x); }, right(), half); },
      {"custom_linear_solve", "matvec", "f64[3]", "f64[]"});
  expect_error<TypeError>(
      [&] { custom_linear_solve(twice, right(), [](auto map, Tensor b) { return map(sum(b)); }); },
      {"custom_linear_solve", "argument of matvec", "f64[3]", "f64[]"});
  expect_error<TypeError>(
      [&] { custom_linear_solve(twice, right(), [](auto, Tensor b) {
              return std::pair{b, b};
            }); },
      {"custom_linear_solve", "solve", "structure"});
  expect_error<TypeError>([&] { custom_linear_solve(twice, tensor<int>({1}), half); },
                          {"custom_linear_solve", "b", "float or complex", "s32[1]"});
  expect_error<TypeError>(
      [&] { custom_linear_solve([](Tensor x) { return x * x; }, right(), half, half); },
      {"custom_linear_solve: matvec", "multiply", "not linear"});
}

Tensor root(Tensor m, Tensor start) {
  auto f = [m](Tensor x) { return x * x * x + m * x - 2.0; };
  auto solve = [](auto g, Tensor x) {
    auto step = [=](Tensor at, Tensor i) {
      return std::tuple{at - g(at) / (3.0 * at * at + 3.0), i + 1};
    };
    auto more = [](Tensor, Tensor i) { return i < 100; };
    return std::get<0>(while_loop(more, step, std::tuple{x, Tensor(0)}));
  };
  return custom_root(f, start, solve, [](auto g, Tensor y) { return y / g(1.0); });
}

TEST(CustomSolve, RootsAndTheirDerivatives) {
  const Tensor m = Tensor(1.5) + 0.0, start = Tensor(1.0) + 0.0;
  for (const Mode mode : both_modes) {
    const JitOptions options{.mode = mode};
    expect_near(jit(root, options)(m, start), {0.879614879812});
    const auto [by_m, by_start] = jit(grad<0, 1>(root), options)(m, start);
    expect_near(by_m, {-0.230195350642});
    expect_near(by_start, {0});
  }
  expect_near(jit(grad(grad(root)))(m, start), {0.047296147104});
  expect_near(jit(grad(grad(grad(root))))(m, start), {0.027133054005});
  expect_near(jit(jacfwd(jacfwd(root)))(m, start), {0.047296147104});
  auto forward = [&](Tensor v) {
    return jvp([&](Tensor a) { return root(a, start); }, v, 2.0 * ones(v.type())).second;
  };
  expect_near(jit(forward)(m), {-0.460390701284});
  const Tensor two = tensor<double>({1.5, 0.5});
  expect_near(jit(vmap(grad(root), {.in_axes = {0, unmapped}}))(two, start),
              {-0.230195350642, -0.261252417141});
  auto all = [&](Tensor v) { return sum(vmap(root, {.in_axes = {0, unmapped}})(v, start)); };
  expect_near(jit(grad(all))(two), {-0.230195350642, -0.261252417141});
}

TEST(CustomSolve, RootsOfContainersByALinearSolve) {
  // u + v = m, u - 2 v = 1: u = (2 m + 1) / 3, v = (m - 1) / 3.
  using Two = std::tuple<Tensor, Tensor>;
  auto both = [](Tensor m) {
    auto f = [m](const Two& x) {
      const auto& [u, v] = x;
      return Two{u + v - m, u - 2.0 * v - 1.0};
    };
    auto solve = [](auto g, Two at) {
      const auto [p, q] = g(at);  // one step of Newton's method, by the inverse of its matrix
      return Two{std::get<0>(at) - (2.0 * p + q) / 3.0, std::get<1>(at) - (p - q) / 3.0};
    };
    auto inverse = [](auto, Two y) {
      const auto [p, q] = y;
      return Two{(2.0 * p + q) / 3.0, (p - q) / 3.0};
    };
    auto tangent = [&](auto g, Two y) {
      return custom_linear_solve(g, y, inverse, {.symmetric = true});
    };
    return custom_root(f, Two{zeros(m.type()), zeros(m.type())}, solve, tangent);
  };
  const Tensor m = Tensor(4.0) + 0.0;
  const auto [u, v] = jit(both)(m);
  expect_near(u, {3});
  expect_near(v, {1});
  const auto [du, dv] = jit(jacfwd(both))(m);
  expect_near(du, {2.0 / 3});
  expect_near(dv, {1.0 / 3});
  auto product = [&](Tensor at) { return std::get<0>(both(at)) * std::get<1>(both(at)); };
  // d(uv) = (2 v + u) / 3
  expect_near(jit(grad(product))(m), {5.0 / 3});
  expect_error<TypeError>(
      [&] {
        custom_root([](Tensor x) { return sum(x); }, right(), [](auto, Tensor x) { return x; },
                    [](auto, Tensor y) { return y; });
      },
      {"custom_root", "what f gives", "f64[3]", "f64[]"});
  expect_error<TypeError>(
      [&] {
        custom_root([](Tensor x) { return x; }, 1, [](auto, Tensor x) { return x; },
                    [](auto, Tensor y) { return y; });
      },
      {"custom_root", "initial", "float or complex", "s32[]"});
}

}  // namespace
}  // namespace postern
