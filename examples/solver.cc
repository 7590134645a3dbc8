// A solver whose loop is compiled and whose decisions are the host's: conjugate gradients on a
// Poisson problem. The host looks at the residual of each step, keeps the history, and says when it
// is enough - here also when progress stalls, which no fixed rule would see.
#include <postern/postern.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace pn = postern;

namespace {

constexpr std::int64_t n = 200;
constexpr int most_steps = 1000;

/// 2 x[i] - x[i-1] - x[i+1], zero outside.
pn::Tensor laplace(const pn::Tensor& x) {
  return 2.0 * x - pn::pad(pn::slice_axis(x, 0, 0, n - 1), 0.0, {1}, {0}) -
         pn::pad(pn::slice_axis(x, 0, 1, n), 0.0, {0}, {1});
}

/// What the loop carries.
struct State {
  pn::Tensor x, residual, direction, squared, go_on;
};

/// Decides after each step whether the next one is worth its time.
class Judge {
 public:
  bool go_on(double residual) {
    history.push_back(residual);
    best_ = std::min(best_, residual);
    return residual > 1e-10 && history.size() < most_steps && residual < 1e6 * best_;
  }
  std::vector<double> history;

 private:
  double best_ = INFINITY;
};

State step(const State& s, Judge& judge) {
  const pn::Tensor image = laplace(s.direction);
  const pn::Tensor length = s.squared / pn::sum(s.direction * image);
  const pn::Tensor residual = s.residual - length * image;
  const pn::Tensor squared = pn::sum(pn::square(residual));
  const pn::Tensor go_on = pn::call(
      {.name = "judge", .effect = pn::Effect::ordered}, pn::type<bool>(),
      [&judge](double norm) { return judge.go_on(norm); }, pn::sqrt(squared));
  return {s.x + length * s.direction, residual, residual + squared / s.squared * s.direction,
          squared, go_on};
}

}  // namespace

int main() {
  Judge judge;
  const auto solve = pn::jit([&](pn::Tensor b) {
    const State start{pn::zeros_like(b), b, b, pn::sum(pn::square(b)), pn::Tensor(true)};
    return pn::while_loop([](State s) { return s.go_on; }, [&](State s) { return step(s, judge); },
                          start)
        .x;
  });

  const pn::Tensor b = pn::sin(pn::iota<double>(n) * 0.1) + 0.01 * pn::iota<double>(n);
  const pn::Tensor x = solve(b);
  const double error = pn::max(pn::abs(laplace(x) - b)).item<double>();
  std::printf("%zu steps, the largest error of the equations is %.1e\n", judge.history.size(),
              error);
  for (std::size_t i = 0; i < judge.history.size(); i += 25)
    std::printf("  step %3zu  residual %.1e\n", i + 1, judge.history[i]);
  return error < 1e-8 ? EXIT_SUCCESS : EXIT_FAILURE;
}
