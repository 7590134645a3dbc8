// One compiled program takes 1,000 steps down a gradient; each step asks this process for new
// points.
#include <postern/postern.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace pn = postern;

int main() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  const auto measure = [&](pn::View<float> x, pn::View<float> y) {
    for (int i = 0; i < 8; ++i) {
      x[i] = normal(random);
      y[i] = 3 * x[i] - 2 + normal(random) / 10;
    }
  };

  const auto step = [&](pn::Tensor, pn::Tensor line) {
    const pn::Type points = pn::type<float>({8});
    auto [x, y] = pn::call({.name = "measure", .effect = pn::Effect::ordered},
                           std::pair{points, points}, measure);
    const auto loss = [in = x, out = y](pn::Tensor ab) {
      return pn::mean(pn::square(pn::take(ab, 0) * in + pn::take(ab, 1) - out));
    };
    return line - 0.01f * pn::grad(loss)(line);
  };
  const auto fit = pn::jit([&](pn::Tensor start) { return pn::fori_loop(0, 1000, step, start); });

  const std::vector<float> line = fit(pn::zeros(pn::type<float>({2}))).to_vector<float>();
  std::printf("y = %.2f x %+.2f\n", static_cast<double>(line[0]), static_cast<double>(line[1]));
  return std::abs(line[0] - 3) < 0.05f && std::abs(line[1] + 2) < 0.05f ? 0 : 1;
}
