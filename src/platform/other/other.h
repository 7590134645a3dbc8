// Platforms of which Postern knows what their plug-ins say, and no more: they compute, and programs
// with host functions run in stages there.
#pragma once
#include "platform/platform.h"

namespace postern::internal::platforms {

std::string other_plugin(const Platform& platform);
pjrt::Client other_client(const pjrt::Plugin& plugin, int devices);

/// What holds for a device whatever it is.
constexpr Platform other(std::string_view name) {
  return {.name = name,
          .xla_name = name,
          .names_no_device = true,
          .compiler = any_compiler,
          .find_plugin = other_plugin,
          .make_client = other_client};
}

inline constexpr Platform rocm = other("rocm"), oneapi = other("oneapi"), tpu = other("tpu"),
                          metal = other("metal"), tt = other("tt");

}  // namespace postern::internal::platforms
