// A user's program: runs on the plug-in and the packages that were installed with the library, not
// on the build tree's.
#include <postern/pool.h>
#include <postern/postern.h>

#include <fstream>
#include <iostream>
#include <string>

/// A simulator of nothing.
struct Still {
  static postern::Type action() { return postern::type<float>(); }
  static postern::Type observation() { return postern::type<float>(); }
  void reset(std::uint64_t, postern::View<float> seen) { seen[0] = 1; }
  postern::Stepped step(float, postern::View<float> seen) {
    seen[0] = 1;
    return {};
  }
};

int main(int, char** argv) {
  auto twice = postern::jit([](postern::Tensor x) { return x * 2.0f; });
  if (twice(postern::Tensor(21.0f)).item<float>() != 42.0f) return 1;
  const postern::listen::Stats stats;
  postern::jit([&](postern::Tensor x) { return postern::tap({.name = "x"}, x, stats); })(1.0f);
  if (stats.series().size() != 1) return 1;
  if (postern::resume<postern::Tensor>("nowhere")) return 1;
  const postern::Tensor a = postern::tensor<float>({{4, 2}, {2, 5}});
  if (postern::linalg::cholesky(a).to_vector<float>()[3] != 2.0f) return 1;

  if (postern::serve({.port = 0, .announce = false}).token.empty()) return 1;
  const auto same = postern::load_text(
      "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n  return %x : tensor<f32>\n}\n");
  if (same.inputs().size() != 1) return 1;
  if (postern::cluster().size != 1) return 1;
  postern::Pool<Still> pool(2);
  if (postern::sum(pool.reset()).item<float>() != 2) return 1;

  if (postern::cumsum(postern::zeros(postern::type<float>({4}))).rank() != 1) return 1;

  const std::string prefix = argv[1];
  for (const std::string file :
       {"/xla_cpu_pjrt.so", "/libpostern_lapack.so", "/libpostern_cumulative.so",
        "/libpostern_live.so", "/libpostern_listen.so", "/libpostern_checkpoint.so",
        "/libpostern_formats.so", "/libpostern_processes.so", "/libpostern_import.so",
        "/libpostern_pool.so"}) {
    bool there = false;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);)
      there = there || (line.find(prefix + "/") != std::string::npos &&
                        line.find(file) != std::string::npos);
    if (there) continue;
    std::cerr << "the " << file << " in use is not beneath " << prefix << '\n';
    return 1;
  }
}
