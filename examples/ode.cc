// A differential equation whose parameters are fitted by gradient descent through its solver:
// Dormand and Prince's method, whose steps are as long as the error allows. How many there are
// nobody knows beforehand, and for each time of a measurement there are others. The derivative is
// that of the very steps that were taken, which finite differences of the program confirm.
#include <postern/postern.h>

#include <cmath>
#include <cstdio>

namespace pn = postern;
using pn::Tensor;

namespace {

/// A pendulum with friction: parameters are stiffness and friction, the state angle and speed.
Tensor slope(const Tensor& parameters, const Tensor& state) {
  const Tensor stiffness = pn::take(parameters, 0), friction = pn::take(parameters, 1),
               angle = pn::take(state, 0), speed = pn::take(state, 1);
  return pn::stack({speed, -stiffness * pn::sin(angle) - friction * speed});
}

struct Step {
  Tensor state, error;
};

/// One step of length h: of fifth order, with what it differs from one of fourth order.
Step dormand_prince(const Tensor& p, const Tensor& y, const Tensor& h) {
  constexpr double a[6][6] = {{1. / 5},
                              {3. / 40, 9. / 40},
                              {44. / 45, -56. / 15, 32. / 9},
                              {19372. / 6561, -25360. / 2187, 64448. / 6561, -212. / 729},
                              {9017. / 3168, -355. / 33, 46732. / 5247, 49. / 176, -5103. / 18656},
                              {35. / 384, 0, 500. / 1113, 125. / 192, -2187. / 6784, 11. / 84}};
  constexpr double e[7] = {71. / 57600,      0,         -71. / 16695, 71. / 1920,
                           -17253. / 339200, 22. / 525, -1. / 40};
  std::vector<Tensor> k{slope(p, y)};
  Tensor next, error = e[0] * k[0];
  for (int i = 0; i < 6; ++i) {
    next = y;
    for (int j = 0; j <= i; ++j)
      if (a[i][j] != 0) next = next + h * (a[i][j] * k[static_cast<std::size_t>(j)]);
    k.push_back(slope(p, next));
    if (e[i + 1] != 0) error = error + e[i + 1] * k.back();
  }
  return {next, h * error};
}

struct Solving {
  Tensor time, state, length, steps;
};

/// The state at `end`. A step whose error is too large is taken again, shorter.
Solving solve(const Tensor& parameters, const Tensor& end) {
  auto step = [&](const Solving& s) -> Solving {
    const Tensor h = pn::minimum(s.length, end - s.time);
    const Step tried = dormand_prince(parameters, s.state, h);
    // Its square: where it is zero, as once a solution is there, a root would have no slope.
    const Tensor scale = 1e-8 + 1e-6 * pn::abs(s.state),
                 error = pn::maximum(pn::mean(pn::square(tried.error / scale)), 1e-16);
    const Tensor good = error <= 1.0;
    const Tensor change = pn::minimum(pn::maximum(0.9 * pn::pow(error, -0.1), 0.2), 5.0);
    return {pn::where(good, s.time + h, s.time), pn::where(good, tried.state, s.state), h * change,
            s.steps + 1};
  };
  return pn::while_loop(
      [&](const Solving& s) { return s.time < end * (1 - 1e-12); }, step,
      Solving{Tensor(0.0), pn::tensor<double>({1.0, 0.0}), Tensor(0.1), Tensor(0)});
}

}  // namespace

int main() {
  const Tensor times = pn::tensor<double>({0.5, 1.0, 2.0, 4.0, 7.0});
  const auto measure = [&](const Tensor& parameters) {
    return pn::vmap([&](Tensor t) { return solve(parameters, t).state; })(times);
  };
  const auto counts = pn::jit(
      [&](Tensor p) { return pn::vmap([&](Tensor t) { return solve(p, t).steps; })(times); });
  const Tensor truth = pn::tensor<double>({2.5, 0.3}), measured = pn::jit(measure)(truth);
  const auto loss = [&](Tensor p) { return pn::sum(pn::square(measure(p) - measured)); };
  const auto derivative = pn::jit(pn::value_and_grad(loss));
  const auto value = pn::jit(loss);

  // The derivative is exact for the steps that are taken.
  const std::vector<double> start{1.8, 0.7};
  const auto exact =
      derivative(pn::tensor<double>({start[0], start[1]})).second.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < 2; ++i) {
    std::vector<double> up = start, down = start;
    const double by = 1e-6;
    up[i] += by;
    down[i] -= by;
    const double slope_there = (value(pn::tensor<double>({up[0], up[1]})).item<double>() -
                                value(pn::tensor<double>({down[0], down[1]})).item<double>()) /
                               (2 * by);
    worst = std::max(worst, std::abs(slope_there - exact[i]) / std::abs(exact[i]));
    std::printf("by parameter %zu: %.8f, by finite differences %.8f\n", i, exact[i], slope_there);
  }

  std::vector<double> p = start, speed{0, 0};
  double left = 0;
  for (int i = 0; i <= 200; ++i) {
    const auto [height, gradient] = derivative(pn::tensor<double>({p[0], p[1]}));
    left = height.item<double>();
    if (i % 50 == 0) std::printf("%3d  loss %.3e at (%.5f, %.5f)\n", i, left, p[0], p[1]);
    const auto g = gradient.to_vector<double>();
    for (std::size_t j = 0; j < 2; ++j) p[j] += speed[j] = 0.7 * speed[j] - 0.03 * g[j];
  }
  const auto taken = counts(pn::tensor<double>({p[0], p[1]})).to_vector<int>();
  std::printf("found (%.6f, %.6f); steps for each measurement:", p[0], p[1]);
  for (const int n : taken) std::printf(" %d", n);
  std::printf("\n");
  const bool found = std::abs(p[0] - 2.5) < 1e-3 && std::abs(p[1] - 0.3) < 1e-3;
  return worst < 1e-4 && found ? 0 : 1;
}
