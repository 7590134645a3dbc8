// Opening the packages with kernels, as users open libraries of theirs.
#include "block/own_kernels.h"

#include <fmt/format.h>
#include <postern/linalg.h>
#include <postern/reduce.h>

#include <algorithm>

#include "block/overrides.h"
#include "core/once.h"
#include "platform/package.h"

namespace postern::internal::blocks {

namespace {

struct Kernels {
  std::string_view package;
  Once once;
  bool open = false;
};
constinit Kernels lapack{"lapack", {}}, cumulative{"cumulative", {}};

constexpr std::string_view of_lapack[] = {linalg::Cholesky::name, linalg::Lu::name,
                                          linalg::Qr::name,       linalg::Eigh::name,
                                          linalg::Svd::name,      linalg::Triangular::name};

/// Others wait for the first, which calls nobody's code meanwhile.
bool open(Kernels& kernels, std::string_view what) {
  kernels.once([&] {
    const OwnScope own;  // what it adds is Postern's own, and no part of a library being loaded
    const Scoped apart(recorded(), static_cast<std::vector<std::uint64_t>*>(nullptr));
    kernels.open = platforms::load_package(kernels.package, what);
  });
  return kernels.open;
}

}  // namespace

bool open_kernels(std::string_view block, const platforms::Platform& platform) {
  if (block == linalg::Eigvals::name) return open(lapack, block);  // it has no default
  if (!platform.on_host) return false;
  if (block == Cumulative::name) return open(cumulative, block);
  return std::ranges::find(of_lapack, block) != std::end(of_lapack) && open(lapack, block);
}

bool open_lapack_for_target(std::string_view target) {
  return target.starts_with("lapack_") && target.ends_with("_ffi") &&
         open(lapack, fmt::format("custom call '{}'", target));
}

}  // namespace postern::internal::blocks
