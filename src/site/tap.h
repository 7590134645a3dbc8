// What taps, hooks and prints share: a site whose results are its operands.
#pragma once
#include <postern/tap.h>

#include "core/site_spec.h"

namespace postern::detail {

/// Taps; without a function it is a live hook's.
std::vector<Tensor> tap_as(internal::SiteSpec::Kind kind, const TapOptions& options,
                           const Shown& value, const Shown* mapped, const Callee* fn,
                           const Place& place);

}  // namespace postern::detail
