// Named host functions, as runs find them.
#pragma once
#include <postern/registry.h>
#include <postern/run.h>

#include <cstdint>
#include <span>

#include "host/host_site.h"

namespace postern::internal::host {

/// Returns the function of that name, or null.
std::shared_ptr<const detail::HostFunction> function_named(std::string_view name);

/// Goes up whenever a name may have come to mean something else.
std::uint64_t registry_version();

/// The functions that one run has for itself.
class RunFunctions {
 public:
  /// Returns null where there are none. Throws TypeError for a name that none of the program's
  /// sites has or that is given twice, and for a function that cannot take a site's leaves.
  static std::shared_ptr<const RunFunctions> of(const RunOptions& options,
                                                std::span<const SitePtr> sites);
  /// Returns the site's, or null.
  std::shared_ptr<const detail::HostFunction> find(const SiteSpec& site) const;

 private:
  std::vector<HookBinding> hooks_, functions_;
};

/// Resolves the sites of one run, with the run's own functions (null: none) where it has some, and
/// named ones replaced by what the registry holds now. Throws CallbackError(unregistered) naming
/// every missing function, and TypeError when one cannot take its site's leaves.
std::vector<HostSite> resolve_names(const std::vector<HostSite>& sites, const RunFunctions* own);

}  // namespace postern::internal::host
