// How a listener is shown what passes.
#pragma once
#include <postern/live.h>

#include "core/site_spec.h"

namespace postern::internal {

/// Throws TypeError for values out of range, in the name of what is to be shown: "hook 'loss':
/// every must be positive, got 0". `listeners`: the word for those that keep_last may concern.
void check_options(const char* word, const std::string& name, const LiveOptions& options,
                   const char* listeners);

/// Has a site show what passes so; and how it does.
void set_options(SiteTap& site, const LiveOptions& options);
LiveOptions options_of(const SiteTap& site);

}  // namespace postern::internal
