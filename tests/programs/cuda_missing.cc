// Asks for a GPU where none can be used: errors, after which the CPU is still there.
#include <postern/postern.h>

#include <cstdio>
#include <cstdlib>

namespace pn = postern;

int main(int argc, char** argv) {
  // argv[1]: a plug-in that is no plug-in for GPUs, or not there.
  for (int i = 0; i < 2; ++i) {
    try {
      pn::configure(
          {.platform = "cuda", .plugin = argc > 1 ? argv[1] : "/nowhere/xla_gpu_pjrt.so"});
      std::printf("%zu devices\n", pn::devices().size());
      return 1;
    } catch (const pn::PluginError& e) {
      std::printf("refused: %s\n", e.what());
    }
  }
  pn::configure({.platform = "cpu"});
  std::printf("then on the %s: %g\n", pn::devices()[0].kind.c_str(),
              static_cast<double>((pn::Tensor(2.0f) * 3.0f).item<float>()));
}
