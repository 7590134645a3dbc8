// Fits a pendulum to what was seen of it. Its equation of motion is a function of this process, as
// from a library of mechanics, which brings its derivative along; the integrator, the loss and the
// descent are one compiled program.
#include <postern/postern.h>

#include <cmath>
#include <cstdio>

namespace pn = postern;

namespace {

constexpr double h = 0.05;
constexpr std::int64_t steps = 60, descents = 300;

/// d/dt (angle, speed) = (speed, -stiffness sin(angle) - friction speed)
void motion(pn::View<const double> state, pn::View<const double> p, pn::View<double> slope) {
  slope[0] = state[1];
  slope[1] = -p[0] * std::sin(state[0]) - p[1] * state[1];
}

/// The cotangents of the state and of p = (stiffness, friction), for that of the slope.
void motion_vjp(pn::View<const double> state, pn::View<const double> p, pn::View<const double>,
                pn::View<const double> ct, pn::View<double> d_state, pn::View<double> d_p) {
  d_state[0] = -p[0] * std::cos(state[0]) * ct[1];
  d_state[1] = ct[0] - p[1] * ct[1];
  d_p[0] = -std::sin(state[0]) * ct[1];
  d_p[1] = -state[1] * ct[1];
}

pn::Tensor slope(const pn::Tensor& state, const pn::Tensor& p) {
  return pn::call_with_vjp({.name = "motion"}, state.type(), motion, motion_vjp, state, p);
}

/// One step of the classical Runge-Kutta method.
pn::Tensor advance(const pn::Tensor& y, const pn::Tensor& p) {
  const pn::Tensor a = slope(y, p), b = slope(y + h / 2 * a, p), c = slope(y + h / 2 * b, p),
                   d = slope(y + h * c, p);
  return y + h / 6 * (a + 2.0 * b + 2.0 * c + d);
}

/// The angles after each step, beginning at rest.
pn::Tensor angles(const pn::Tensor& p) {
  const auto step = [&](pn::Tensor y) {
    const pn::Tensor next = advance(y, p);
    return std::pair{next, pn::take(next, 0)};
  };
  return pn::scan(step, pn::tensor<double>({1.5, 0}), {.length = steps}).second;
}

}  // namespace

int main() {
  const std::vector<double> truth = {4, 0.3};
  const pn::Tensor seen = pn::jit(angles)(pn::tensor(truth));
  const auto loss = [&](pn::Tensor p) { return pn::mean(pn::square(angles(p) - seen)); };
  const auto fit = pn::jit([&](pn::Tensor start) {
    const auto descend = [&](std::pair<pn::Tensor, pn::Tensor> now) {
      const auto [p, velocity] = now;
      const auto [value, gradient] = pn::value_and_grad(loss)(p);
      const pn::Tensor next = 0.9 * velocity - 0.1 * gradient;
      return std::pair{std::pair{p + next, next}, value};
    };
    const auto [last, losses] =
        pn::scan(descend, std::pair{start, pn::zeros_like(start)}, {.length = descents});
    return std::pair{last.first, losses};
  });

  const auto [p, losses] = fit(pn::tensor<double>({3, 0}));
  const std::vector<double> found = p.to_vector<double>(), history = losses.to_vector<double>();
  std::printf("stiffness %.3f, friction %.3f; the loss fell from %.1e to %.1e\n", found[0],
              found[1], history.front(), history.back());
  return std::abs(found[0] - truth[0]) < 1e-2 && std::abs(found[1] - truth[1]) < 1e-2 ? 0 : 1;
}
