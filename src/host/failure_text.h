// How the failure of a host function is told.
#pragma once
#include <string>
#include <string_view>

#include "core/site_spec.h"

namespace postern::internal::host {

/// Returns "call 'fetch' at main.cc:12 on device 0: the cause". What fails in a function that calls
/// itself is said once, with how deep.
std::string failure_text(const SiteSpec& site, int device, std::string_view what);

}  // namespace postern::internal::host
