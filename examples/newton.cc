// Newton's method: each step solves for where the gradient would vanish, by the Hessian. The whole
// search is one compiled loop, which prints how it goes.
#include <postern/postern.h>

#include <cmath>
#include <cstdio>

namespace pn = postern;

namespace {

constexpr int most_steps = 50;

/// Rosenbrock's valley: the lowest point is (1, 1).
pn::Tensor valley(const pn::Tensor& point) {
  const pn::Tensor x = pn::take(point, 0), y = pn::take(point, 1);
  return 100.0 * pn::square(y - pn::square(x)) + pn::square(1.0 - x);
}

struct Search {
  pn::Tensor point, gradient, steps;
};

pn::Tensor go_on(const Search& s) {
  return pn::logical_and(pn::max(pn::abs(s.gradient)) > 1e-10, s.steps < most_steps);
}

/// A step of the full length if it leads down, else of half of it, of a quarter ...
Search step(const Search& s) {
  const pn::Tensor direction = pn::linalg::solve(pn::hessian(valley)(s.point), s.gradient),
                   height = valley(s.point);
  const auto too_long = [&](pn::Tensor length) {
    return pn::logical_and(valley(s.point - length * direction) > height, length > 1e-6);
  };
  const pn::Tensor length = pn::while_loop(
      too_long, [](pn::Tensor tried) { return tried / 2.0; }, pn::Tensor(1.0));
  const pn::Tensor next = s.point - length * direction;
  pn::print("step {:2}  height {:.3e}  at {}", s.steps + 1, valley(next), next);
  return {next, pn::grad(valley)(next), s.steps + 1};
}

}  // namespace

int main() {
  const auto search = pn::jit([](pn::Tensor start) {
    return pn::while_loop(go_on, step, Search{start, pn::grad(valley)(start), pn::Tensor(0)});
  });
  const Search found = search(pn::tensor<double>({-1.2, 1}));
  const std::vector<double> point = found.point.to_vector<double>();
  std::printf("found (%.10f, %.10f) in %d steps\n", point[0], point[1], found.steps.item<int>());
  return std::abs(point[0] - 1) < 1e-8 && std::abs(point[1] - 1) < 1e-8 ? 0 : 1;
}
