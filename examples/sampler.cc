// sampler: Hamiltonian Monte Carlo on a log-density that JAX exported. Each thread has a chain of
// its own and calls one compiled function, the density and its gradient, on its own memory.
//
// data/bananas.jax (scripts/golden_hosts) is the density of four pairs: a of N(0, 1), and b of
// N((a^2 - 1) / 2, 1/2). So the mean of each is 0, and their variances are 1.
#include <postern/postern.h>

#include <array>
#include <chrono>
#include <cmath>
#include <iostream>
#include <random>
#include <thread>
#include <vector>

namespace pn = postern;

namespace {

constexpr std::size_t n = 8;
using Point = std::array<double, n>;

/// The density at a point, by logarithm, and its slope there.
struct Density {
  const pn::Native& f;
  double at(const Point& x, Point& slope) const {
    double value = 0;
    const void* const in[] = {x.data()};
    void* const out[] = {&value, slope.data()};
    f(in, out);
    return value;
  }
};

/// What a chain has seen.
struct Moments {
  Point sum = {}, squares = {};
  int accepted = 0;
};

/// Takes `draws` samples, each at the end of a path of `steps` (leapfrog).
Moments sample(const Density& density, unsigned seed, int draws) {
  constexpr int steps = 16;
  constexpr double length = 0.2;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  Moments out;
  Point x = {}, slope;
  double value = density.at(x, slope);
  for (int draw = 0; draw < draws; ++draw) {
    Point to = x, force = slope, momentum;
    double before = -value, after = 0;
    for (double& p : momentum) {
      p = normal(random);
      before += 0.5 * p * p;
    }
    double found = value;
    for (int step = 0; step < steps; ++step) {
      for (std::size_t i = 0; i < n; ++i) momentum[i] += 0.5 * length * force[i];
      for (std::size_t i = 0; i < n; ++i) to[i] += length * momentum[i];
      found = density.at(to, force);
      for (std::size_t i = 0; i < n; ++i) momentum[i] += 0.5 * length * force[i];
    }
    after = -found;
    for (const double p : momentum) after += 0.5 * p * p;
    if (uniform(random) < std::exp(before - after)) {
      x = to;
      slope = force;
      value = found;
      ++out.accepted;
    }
    for (std::size_t i = 0; i < n; ++i) {
      out.sum[i] += x[i];
      out.squares[i] += x[i] * x[i];
    }
  }
  return out;
}

}  // namespace

int main() {
  const pn::Loaded bananas = pn::load(POSTERN_EXAMPLE_DATA "/bananas.jax");
  const auto density = [&](pn::Tensor x) { return bananas(x)[0]; };
  const pn::Native f = pn::native(pn::value_and_grad(density), pn::type<double>({n}));

  constexpr int threads = 2, draws = 20'000;
  std::vector<Moments> chains(threads);
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> running;
  for (unsigned t = 0; t < threads; ++t)
    running.emplace_back([&, t] { chains[t] = sample({f}, t + 1, draws); });
  for (std::thread& t : running) t.join();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;

  Moments all;
  for (const Moments& c : chains) {
    all.accepted += c.accepted;
    for (std::size_t i = 0; i < n; ++i) {
      all.sum[i] += c.sum[i];
      all.squares[i] += c.squares[i];
    }
  }
  constexpr double count = threads * draws;
  double worst = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double mean = all.sum[i] / count, variance = all.squares[i] / count - mean * mean;
    std::cout << "x" << i << ": mean " << mean << ", variance " << variance << "\n";
    worst = std::max({worst, std::abs(mean), std::abs(variance - 1)});
  }
  std::cout << count << " draws by " << threads << " threads in " << taken.count()
            << " s, accepted " << 100 * all.accepted / count << " %\n";
  if (worst < 0.08) return 0;
  std::cerr << "sampler: a moment is off by " << worst << "\n";
  return 1;
}
