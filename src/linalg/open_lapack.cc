// Opening the library with LAPACK's kernels when something first needs it, as users open theirs.
#include "linalg/open_lapack.h"

#include <fmt/format.h>
#include <postern/linalg.h>

#include <algorithm>

#include "block/overrides.h"
#include "core/once.h"
#include "platform/package.h"

namespace postern::internal::linear_algebra {

namespace {

constexpr std::string_view on_host[] = {linalg::Cholesky::name, linalg::Lu::name,
                                        linalg::Qr::name,       linalg::Eigh::name,
                                        linalg::Svd::name,      linalg::Triangular::name};

/// Others wait for the first, which calls nobody's code meanwhile.
bool open_lapack(std::string_view what) {
  static Once once;
  static bool open = false;
  once([&] {
    const blocks::OwnScope own;  // what it adds is Postern's own
    open = platforms::load_package("lapack", what);
  });
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
