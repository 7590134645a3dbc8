// Named host functions, as runs find them.
#pragma once
#include <postern/registry.h>

#include <cstdint>

#include "host/site.h"

namespace postern::host {

/// The function of that name, or null.
std::shared_ptr<const detail::HostFunction> function_named(std::string_view name);

/// Goes up whenever a name may have come to mean something else.
std::uint64_t registry_version();

/// The sites of one run, with named functions replaced by what the registry holds now. Throws
/// CallbackError(unregistered) naming every missing function, and TypeError when one cannot take
/// its site's leaves.
std::vector<HostSite> resolve_names(const std::vector<HostSite>& sites);

}  // namespace postern::host
