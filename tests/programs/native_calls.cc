// Calls a native function so many times: native_calls 0 TIMES.
#include <postern/postern.h>

#include <cstdlib>
#include <iostream>

namespace pn = postern;

int main(int, char** arguments) {
  const auto energy = [](pn::Tensor x) { return pn::sum(x * x * x); };
  const pn::Native f = pn::native(pn::value_and_grad(energy), pn::type<double>({8}));
  double x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, value = 0, slope[8];
  const void* const in[] = {x};
  void* const out[] = {&value, slope};
  const long times = std::atol(arguments[2]);
  for (long i = 0; i < times; ++i) f(in, out);
  std::cout << times << " steps, " << value << "\n";
}
