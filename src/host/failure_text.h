// How the failure of a host function is told.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "core/site_spec.h"

namespace postern::internal::host {

/// Returns "call 'fetch' at main.cc:12 on device 0: the cause". What fails in a function that calls
/// itself is said once, with how deep.
std::string failure_text(const SiteSpec& site, int device, std::string_view what);

/// Returns what errors say a device is: "2", or "2 (cpu)" in a process with several platforms.
std::string device_name(int device);
/// Sets them, once, by ordinal: each one's platform.
void name_devices(std::vector<std::string> platforms);

}  // namespace postern::internal::host
