// How a listener is shown what passes.
#pragma once
#include <postern/live.h>

namespace postern::internal {

/// Throws TypeError for values out of range, in the name of what is to be shown: "hook 'loss':
/// every must be positive, got 0". `listeners`: the word for those that keep_last may concern.
void check_options(const char* word, const std::string& name, const LiveOptions& options,
                   const char* listeners);

}  // namespace postern::internal
