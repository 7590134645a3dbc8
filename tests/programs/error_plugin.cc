// Computes 1 + 1, with a plug-in of the given path if any, then without; prints what it got, or the
// error and ends with 3.
#include <postern/postern.h>

#include <cstdio>

namespace pn = postern;

int compute(const char* before) {
  try {
    const float two = (pn::Tensor(1.0f) + 1.0f).item<float>();
    std::printf("%s%g on %zu devices\n", before, two, pn::devices().size());
    return 0;
  } catch (const pn::PluginError& e) {
    std::printf("PluginError %s: %s\n", pn::to_string(e.code()), e.what());
  } catch (const pn::Error& e) {
    std::printf("Error %s: %s\n", pn::to_string(e.code()), e.what());
  }
  return 3;
}

int main(int argc, char** argv) {
  if (argc == 1) return compute("");
  pn::configure({.plugin = argv[1]});
  if (compute("") != 3) return 1;
  pn::configure({});
  return compute("then ");
}
