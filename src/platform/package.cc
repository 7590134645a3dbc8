// Where packages are.
#include "platform/package.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <postern/library.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "host/text_file.h"
#include "platform/find_plugin.h"

// CMake says by POSTERN_PACKAGES which there are: PACKAGE(lapack) PACKAGE(live).
#ifdef POSTERN_STATIC
#define PACKAGE(name) extern "C" const PosternLibrary* postern_##name##_library();
POSTERN_PACKAGES
#undef PACKAGE
#endif

namespace postern::internal::platforms {

namespace {

struct Package {
  std::string_view name;
  const PosternLibrary* (*library)();  // null: of a shared object
};
constexpr Package packages[] = {
#ifdef POSTERN_STATIC
#define PACKAGE(name) {#name, postern_##name##_library},
#else
#define PACKAGE(name) {#name, nullptr},
#endif
    POSTERN_PACKAGES{}};

/// The variable of the environment that has a package's path: "POSTERN_LAPACK".
std::string variable_of(std::string_view name) {
  std::string variable = fmt::format("POSTERN_{}", name);
  std::ranges::transform(variable, variable.begin(),
                         [](char c) { return static_cast<char>(std::toupper(c)); });
  return variable;
}

/// Where the package is: as the environment says, installed, or else where it was built. Empty:
/// Postern was built without it.
std::string path_of(std::string_view name, std::string_view what, bool is_built) {
  const std::string variable = variable_of(name);
  if (const char* given = environment(variable.c_str())) return given;
  const std::string file = fmt::format("libpostern_{}.so", name);
  const std::filesystem::path installed = installed_beside(file.c_str());
  if (host::is_there(installed)) return installed.string();
  if (!is_built) return {};
  const auto built = std::filesystem::path(POSTERN_BUILD_PACKAGES) / name / file;
  if (host::is_there(built)) return built.string();
  throw PluginError(ErrorCode::not_found,
                    fmt::format("{}: found no {}: {} is not set, and there is no file {} and {}",
                                what, file, variable, installed.string(), built.string()));
}

}  // namespace

bool load_package(std::string_view name, std::string_view what) {
  const auto* const package = std::ranges::find(packages, name, &Package::name);
  const bool is_built = package != std::end(packages);
  if (is_built && package->library) {
    package->library()->load();
    return true;
  }
  const std::string path = path_of(name, what, is_built);
  if (path.empty()) return false;
  try {
    load_library(path);
  } catch (const PluginError& e) {
    throw PluginError(e.code(), fmt::format("{}: {}", what, e.what()));
  }
  return true;
}

void refuse_without(std::string_view name, std::string_view refusal) {
  throw PluginError(
      ErrorCode::unimplemented,
      fmt::format("{}there is no package {}: Postern was built without it, or {} names another one",
                  refusal, name, variable_of(name)));
}

}  // namespace postern::internal::platforms
