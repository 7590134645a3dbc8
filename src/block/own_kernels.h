// Kernels of Postern's own, in packages that are opened when something first needs them.
#pragma once
#include <string_view>

#include "platform/platform.h"

namespace postern::internal::blocks {

/// Opens the package that has kernels of this block for the platform. Returns whether one is open.
/// Throws PluginError.
bool open_kernels(std::string_view block, const platforms::Platform& platform);
/// Opens LAPACK's for a target of jaxlib's, such as "lapack_spotrf_ffi", on CPUs.
bool open_lapack_for_target(std::string_view target);

}  // namespace postern::internal::blocks
