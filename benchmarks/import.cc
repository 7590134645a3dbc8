// Programs from elsewhere: reading one, tracing it, and what its runs cost.
#include <postern/postern.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

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

/// The most memory that the process has had since it was last asked, less what it has now.
double peak_above(double now) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (double kib = 0; word == "VmHWM:" && status >> kib) return kib / 1024 - now;
  return 0;
}
double memory_now() {
  std::ofstream("/proc/self/clear_refs") << 5;  // VmHWM becomes what is there now
  return peak_above(0);
}

/// What a command prints: numbers.
std::vector<double> numbers_of(const std::string& command) {
  std::vector<double> out;
  FILE* const pipe = popen(command.c_str(), "r");
  for (double n = 0; pipe && std::fscanf(pipe, "%lf", &n) == 1;) out.push_back(n);
  if (pipe) pclose(pipe);
  return out;
}

/// 50 MB of weights, as JAX exports them.
void weights(Report& report) {
  if (report.jax_python().empty()) return;
  const std::string file = std::filesystem::temp_directory_path() / "postern_bench_weights.jax";
  const std::string side = report.jax_python() + " " + POSTERN_BENCH_FOLDER "/jax_artifact.py ";
  numbers_of(side + "write " + file);
  const std::vector<double> jax = numbers_of(side + file);
  const pn::Tensor x = pn::ones(pn::type<float>({4, 1024}));
  const double before = memory_now();
  const auto begin = std::chrono::steady_clock::now();
  pn::load(file)(x)[0].block_until_ready();
  report.add({"import/weights/first_run", ms_since(begin), "ms", "JAX", jax.at(0),
              "an artifact of 50 MB, loaded, compiled and run"});
  report.add({"import/weights/memory", peak_above(before), "MB", "JAX", jax.at(1),
              "the most above the start; three times the file is the aim"});
  std::filesystem::remove(file);
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
  weights(report);
}

}  // namespace bench
