// FFI handlers by name: those that were registered, and ours for LAPACK.
#pragma once
#include <string>

#include "platform/platform.h"

namespace postern::internal::run {

bool has_handler(const std::string& name, const platforms::Platform& platform);
/// Does what blocks::HandlerAccess says.
void require_handler(const std::string& name, const platforms::Platform& platform);

}  // namespace postern::internal::run
