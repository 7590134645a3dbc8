// Asks for a second platform that there is not, then for the one that is given.
#include <postern/postern.h>

#include <cstdio>

namespace pn = postern;

int main(int, char** arguments) {
  pn::configure({.platforms = {"cpu", "newer=none.so"}});
  try {
    pn::devices();
    return 1;
  } catch (const pn::PluginError& e) {
    std::printf("PluginError: %s\n", e.what());
  }
  pn::configure({.platforms = {"cpu", std::string("newer=") + arguments[1]}});
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::call(
        x.type(),
        [](const pn::CallInfo& info, float v) { return v + static_cast<float>(info.device); }, x);
  });
  for (const pn::DeviceInfo& d : pn::devices())
    std::printf("%s %g\n", d.kind.c_str(),
                static_cast<double>(f(pn::device_put(pn::Tensor(2.0f), d.ordinal)).item<float>()));
  return 0;
}
