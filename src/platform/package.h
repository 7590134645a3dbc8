// Packages of Postern's own: libraries beside it, or parts of it where it is static, that are
// loaded when something first needs them.
#pragma once
#include <atomic>
#include <string_view>

#include "core/once.h"

namespace postern::internal::platforms {

/// Loads packages/NAME, as load_library does. False: Postern was built without it. Throws
/// PluginError in the name of `what`.
bool load_package(std::string_view name, std::string_view what);
/// Throws PluginError: `refusal`, and why a package that must be there is not.
[[noreturn]] void refuse_without(std::string_view name, std::string_view refusal);
/// Returns what a package says of itself while it is loaded, which the first who asks does.
template <class P>
P brought_by(const std::atomic<P>& brought, std::string_view name, std::string_view what,
             std::string_view refusal) {
  static Once once;
  once([&] {
    if (!load_package(name, what) || !brought.load()) refuse_without(name, refusal);
  });
  return brought.load();
}

}  // namespace postern::internal::platforms
