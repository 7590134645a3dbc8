// Runs a program that calls back with a number of the command line; "text" prints programs in place
// of running them.
#include <postern/postern.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace pn = postern;

int main(int argc, char** argv) {
  const std::string how = argc > 1 ? argv[1] : "run";
  const float add = argc > 2 ? std::strtof(argv[2], nullptr) : 1;
  auto f = pn::jit([=](pn::Tensor x) {
    pn::Tensor y = pn::call(
        {.name = "adder"}, x.type(),
        [=](pn::View<const float> in, pn::View<float> out) {
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + add;
        },
        x * 2.0f);
    pn::call(
        {.name = "watcher", .effect = pn::Effect::ordered}, std::tuple<>(), [](float) {},
        pn::sum(y));
    return pn::sum(y);
  });
  if (how == "sharded") {  // over two devices, where XLA chooses how results lie
    const pn::Sharding s(pn::Mesh({{"d", 2}}), pn::P("d"));
    const auto g = pn::jit([=](pn::Tensor x) { return std::pair{pn::sum(f(x)), x * 2.0f}; });
    const auto [total, twice] = g(pn::device_put(pn::tensor<float>({1, 2, 3, 4}), s));
    std::printf("%g %s\n", total.item<float>(), to_string(*pn::sharding_of(twice)).c_str());
    return 0;
  }
  if (how == "text") {
    const auto lowered = f.lower(pn::abstract(pn::type<float>({3})));
    std::printf("%s\n%s\n", lowered.program().text().c_str(), lowered.stablehlo().c_str());
    return 0;
  }
  // Another shape is another program.
  const pn::Tensor x =
      how == "wider" ? pn::tensor<float>({1, 2, 3, 4}) : pn::tensor<float>({1, 2, 3});
  std::printf("%g\n", f(x).item<float>());
  return 0;
}
