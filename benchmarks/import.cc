// Programs from elsewhere: reading one, tracing it, and what its runs cost.
#include <postern/postern.h>

#include <chrono>
#include <string>

#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

/// Chains of four operations, so many operations in all.
std::string chain(int operations) {
  std::string text =
      "func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {\n"
      "  %c = stablehlo.constant dense<1.5> : tensor<f32>\n";
  std::string last = "%x";
  for (int i = 0; i < operations / 4; ++i) {
    const std::string n = std::to_string(i);
    text += "  %a" + n + " = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<f32>) -> " +
            "tensor<8xf32>\n  %b" + n + " = stablehlo.multiply " + last + ", %a" + n +
            " : tensor<8xf32>\n  %d" + n + " = stablehlo.sine %b" + n + " : tensor<8xf32>\n  %e" +
            n + " = stablehlo.slice %d" + n + " [0:8] : (tensor<8xf32>) -> tensor<8xf32>\n";
    last = "%e" + n;
  }
  return text + "  return " + last + " : tensor<8xf32>\n}\n";
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

}  // namespace

void import_programs(Report& report) {
  const pn::Tensor x = pn::ones(pn::type<float>({8}));
  const auto inside = [](const pn::Loaded& f) {
    return pn::jit([f](pn::Tensor v) { return f(v)[0]; });
  };
  (void)inside(pn::load_text(chain(4))).program(x);  // opens the package
  auto begin = std::chrono::steady_clock::now();
  const pn::Loaded large = pn::load_text(chain(10'000));
  report.add({"import/10000_ops/load", ms_since(begin), "ms"});
  begin = std::chrono::steady_clock::now();
  (void)inside(large).program(x);
  report.add({"import/10000_ops/trace", ms_since(begin), "ms", "target", 60,
              "read as operations and traced"});

  const pn::Loaded small = pn::load_text(chain(40));
  const auto f = inside(small);
  const Side loaded = [&](std::int64_t times) {
    while (times-- > 0) small(x)[0].block_until_ready();
  };
  const Side jitted = [&](std::int64_t times) {
    while (times-- > 0) f(x).block_until_ready();
  };
  const auto ns = race({jitted, loaded}, 25);
  report.add({"import/run", ns[0] / 1e3, "us", "loaded", ns[1] / 1e3,
              "the same program inside of a jitted function; 1.00 is the aim"});
}

}  // namespace bench
