// Where wheels bring the other plug-ins, and their clients.
#include "platform/other/other.h"

#include <algorithm>

#include "platform/find_plugin.h"

namespace postern::internal::platforms {

namespace {

/// As the wheels of November 2026 have them.
struct Wheel {
  std::string_view platform;
  const char *file, *package;
};
constexpr Wheel wheels[] = {
    {"rocm", "jax_plugins/xla_rocm7/xla_rocm_plugin.so", "jax-rocm7-pjrt"},
    {"oneapi", "jax_plugins/xla_oneapi/xla_oneapi_plugin.so", "jax-oneapi-pjrt"},
    {"tpu", "libtpu/libtpu.so", "libtpu"},
    {"tt", "jax_plugins/libtt/libtt.so", "jax-tt-plugin"}};

}  // namespace

std::string other_plugin(const Platform& platform) {
  const auto* const known = std::ranges::find(wheels, platform.name, &Wheel::platform);
  if (known == std::end(wheels))
    refuse_plugin(platform.name, "that a wheel for Linux is known to bring");
  if (const auto found = in_python_folders({known->file}); !found.empty()) return found.string();
  refuse_plugin(platform.name, not_in_python_folders(known->package));
}

pjrt::Client other_client(const pjrt::Plugin& plugin, int) {
  return client_with_device(plugin, {}, "device");
}

}  // namespace postern::internal::platforms
