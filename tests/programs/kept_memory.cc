// Steps whose results are three arrays of 4 MiB: prints for how many pages each one asked the
// system.
#include <postern/postern.h>
#include <sys/resource.h>

#include <array>
#include <cstdio>

namespace pn = postern;

int main() {
  using Three = std::array<pn::Tensor, 3>;
  const auto step = pn::jit([](Three x) {
    for (pn::Tensor& one : x) one = one * 0.5f;
    return x;
  });
  const pn::Tensor zeros = pn::zeros(pn::type<float>({1 << 20}));
  Three x{zeros, zeros, zeros};
  const auto faults = [] {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return used.ru_minflt;
  };
  const auto run = [&](int steps) {
    for (int i = 0; i < steps; ++i) x = step(x);
    for (const pn::Tensor& one : x) one.block_until_ready();
  };
  run(20);
  const long before = faults();
  constexpr int steps = 100;
  run(steps);
  std::printf("%ld\n", (faults() - before) / steps);
}
