// FFI handlers that users and libraries bring.
#pragma once
#include <string>

#include "platform/platform.h"

namespace postern::internal::blocks {

/// Who knows them. A room further down does: `src/wiring.cc` names it.
struct HandlerAccess {
  /// Makes a handler known to XLA. Throws TypeError naming target and platform when nobody has
  /// registered it.
  void (*require)(const std::string& name, const platforms::Platform& platform);
};
extern const HandlerAccess handler_access;

}  // namespace postern::internal::blocks
