// The FFI targets of LAPACK that programs exported by JAX call.
#pragma once
#include <postern/library.h>

#include <string_view>

namespace postern::internal::linear_algebra {

/// The handler on CPUs for a target such as "lapack_spotrf_ffi"; null for names that are none.
FfiHandler* lapack_target(std::string_view name);

}  // namespace postern::internal::linear_algebra
