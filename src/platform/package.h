// Packages of Postern's own: libraries beside it, or parts of it where it is static, that are
// loaded when something first needs them.
#pragma once
#include <string>
#include <string_view>

namespace postern::internal::platforms {

/// Loads packages/NAME, as load_library does. False: Postern was built without it. Throws
/// PluginError in the name of `what`.
bool load_package(std::string_view name, std::string_view what);
/// Says why a package that must be there is not.
std::string no_package(std::string_view name);

}  // namespace postern::internal::platforms
