// Handles: the numbers by which programs know the calls that they have started.
#pragma once
#include <cstdint>
#include <string>

#include "host/host_site.h"

namespace postern::internal::host {

/// Makes one that no other call of the process has, for one that the site starts.
std::uint64_t new_handle(const HostSite& site);
/// Returns "call 'name' at file:line", of the start that gave the handle.
std::string started_at(std::uint64_t handle);
/// Returns the number under which handles of a site know its place; 0 when there are too many.
std::uint64_t place_number(const SiteSpec& spec);

}  // namespace postern::internal::host
