// The library with LAPACK's kernels and targets (packages/lapack).
#pragma once
#include <string>
#include <string_view>

#include "platform/platform.h"

namespace postern::internal::linear_algebra {

/// Opens it as blocks::OwnOverrides says.
bool open_lapack_for_block(std::string_view block, const platforms::Platform& platform);
/// Opens it for a target of jaxlib's, such as "lapack_spotrf_ffi", on CPUs.
bool open_lapack_for_target(std::string_view target);

}  // namespace postern::internal::linear_algebra
