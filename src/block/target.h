// FFI handlers that users and libraries bring.
#pragma once
#include <string>

#include "platform/platform.h"

namespace postern::blocks {

/// Whether a handler has that name: one that was registered, or one of ours for LAPACK.
bool has_handler(const std::string& name, const platforms::Platform& platform);
/// Makes a handler known to XLA. Throws TypeError naming target and platform when nobody has
/// registered it.
void require_handler(const std::string& name, const platforms::Platform& platform);

}  // namespace postern::blocks
