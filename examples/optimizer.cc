// optimizer: NLopt minimizes a function that JAX exported, of any number of variables: value and
// gradient are one compiled function, for each number one.
//
// data/chain.jax (scripts/golden_hosts) is Rosenbrock's function, which is 0 where all are 1.
#include <nlopt.h>
#include <postern/postern.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <vector>

namespace pn = postern;

namespace {

struct Objective {
  pn::Native f;
  int calls = 0;
};

/// What NLopt calls. Exceptions must not pass through it.
double value_at(unsigned n, const double* x, double* slope, void* data) {
  auto& objective = *static_cast<Objective*>(data);
  ++objective.calls;
  double value = 0;
  std::vector<double> unused(slope ? 0 : n);
  const void* const in[] = {x};
  void* const out[] = {&value, slope ? slope : unused.data()};
  const auto [function, self] = objective.f.entry();
  return function(self, in, out) == 0 ? value : NAN;
}

}  // namespace

int main() {
  const pn::Loaded chain = pn::load(POSTERN_EXAMPLE_DATA "/chain.jax");
  for (const unsigned n : {2U, 5U, 10U, 30U, 100U}) {
    const auto at = [&](pn::Tensor x) { return chain(x)[0]; };
    Objective objective{pn::native(pn::value_and_grad(at), pn::type<double>({n}))};
    std::vector<double> x(n, 0.5);
    nlopt_opt opt = nlopt_create(NLOPT_LD_LBFGS, n);
    nlopt_set_min_objective(opt, value_at, &objective);
    nlopt_set_ftol_rel(opt, 1e-14);
    nlopt_set_maxeval(opt, 10'000);
    double least = 0;
    const auto start = std::chrono::steady_clock::now();
    const nlopt_result code = nlopt_optimize(opt, x.data(), &least);
    const std::chrono::duration<double, std::micro> taken =
        std::chrono::steady_clock::now() - start;
    nlopt_destroy(opt);
    double off = 0;
    for (const double v : x) off = std::max(off, std::abs(v - 1));
    std::cout << n << " variables: " << objective.calls << " evaluations of "
              << taken.count() / objective.calls << " us, off by " << off << "\n";
    if (code < 0 || off > 1e-4) {
      std::cerr << "optimizer: NLopt says " << nlopt_result_to_string(code) << ", the least is "
                << least << "\n";
      return 1;
    }
  }
}
