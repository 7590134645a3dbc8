// Opening the library with LAPACK's kernels when something first needs it, as users open theirs.
#include "linalg/open_lapack.h"

#include <fmt/format.h>
#include <postern/library.h>
#include <postern/linalg.h>

#include <algorithm>
#include <filesystem>

#include "block/overrides.h"
#include "core/once.h"
#include "platform/find_plugin.h"

#ifdef POSTERN_STATIC_LAPACK
extern "C" const PosternLibrary* postern_lapack_library();
#endif

namespace postern::internal::linear_algebra {

namespace {

constexpr std::string_view on_host[] = {linalg::Cholesky::name, linalg::Lu::name,
                                        linalg::Qr::name,       linalg::Eigh::name,
                                        linalg::Svd::name,      linalg::Triangular::name};

// Whether there is one. What it adds is Postern's own.
#ifdef POSTERN_STATIC_LAPACK
bool load_lapack(std::string_view) {
  const blocks::OwnScope own;
  postern_lapack_library()->load();
  return true;
}
#else
/// Empty: Postern was built without.
std::string library_path(std::string_view what) {
  namespace fs = std::filesystem;
  constexpr std::string_view built = POSTERN_BUILD_LAPACK;
  if (const char* given = platforms::environment("POSTERN_LAPACK")) return given;
  const fs::path installed = platforms::installed_beside("libpostern_lapack.so");
  if (fs::exists(installed)) return installed.string();
  if (built.empty() || fs::exists(built)) return std::string(built);
  throw PluginError(ErrorCode::not_found,
                    fmt::format("{}: found no library with LAPACK's kernels: POSTERN_LAPACK is not "
                                "set, and there is no file {} and {}",
                                what, installed.string(), built));
}

bool load_lapack(std::string_view what) {
  const std::string path = library_path(what);
  if (path.empty()) return false;
  const blocks::OwnScope own;
  try {
    load_library(path);
  } catch (const PluginError& e) {
    throw PluginError(e.code(), fmt::format("{}: {}", what, e.what()));
  }
  return true;
}
#endif

/// Others wait for the first, which calls nobody's code meanwhile.
bool open_lapack(std::string_view what) {
  static Once once;
  static bool open = false;
  once([&] { open = load_lapack(what); });
  return open;
}

}  // namespace

bool open_lapack_for_block(std::string_view block, const platforms::Platform& platform) {
  const bool kernel = platform.on_host && std::ranges::find(on_host, block) != std::end(on_host);
  return (kernel || block == linalg::Eigvals::name) && open_lapack(block);
}

bool open_lapack_for_target(std::string_view target) {
  return target.starts_with("lapack_") && target.ends_with("_ffi") &&
         open_lapack(fmt::format("custom call '{}'", target));
}

}  // namespace postern::internal::linear_algebra
