// Runs a saved program that another process wrote: saved_run FILE; prints its results.
#include <postern/postern.h>

#include <iostream>

namespace pn = postern;

int main(int, char** arguments) try {
  int shown = 0;
  pn::register_function("demo.scale",
                        [](const pn::Attributes& a, pn::View<const float> in, pn::View<float> out) {
                          for (std::int64_t i = 0; i < in.size(); ++i)
                            out[i] = in[i] * static_cast<float>(a.get<double>("factor"));
                        });
  pn::register_function("demo.log", [&](pn::View<const float>) { ++shown; });
  const pn::Loaded program = pn::load(arguments[1]);
  for (const pn::Tensor& t : program(pn::tensor<float>({1, 2, 3})))
    for (const float v : t.to_vector<float>()) std::cout << v << ' ';
  pn::barrier();
  std::cout << shown << '\n';
} catch (const std::exception& e) {
  std::cout << e.what() << '\n';
  return 1;
}
