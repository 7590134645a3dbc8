// Config::gather_limit: what a call may gather on one device.
#include <postern/postern.h>

#include <cstdio>

namespace pn = postern;

int main() {
  pn::configure({.cpu_devices = 2, .gather_limit = 1024});
  const pn::Mesh mesh({{"d", 2}});
  auto f = pn::jit([](pn::Tensor x) {
    return pn::call(
        {.name = "whole"}, x.type(),
        [](pn::View<const float> in, pn::View<float> out) {
          std::copy(in.begin(), in.end(), out.begin());
        },
        x);
  });
  auto spread = [&](std::int64_t n) {
    return pn::device_put(pn::zeros(pn::type<float>({n})), pn::Sharding(mesh, pn::P("d")));
  };
  f(spread(256)).block_until_ready();
  try {
    f(spread(258));
  } catch (const pn::TypeError& e) {
    std::printf("%s\n", e.what());
    return 0;
  }
  return 1;
}
