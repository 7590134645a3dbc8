// States of the process that checkpoints keep: see register_state.
#pragma once
#include <postern/detail/api.h>

#include <string>
#include <utility>
#include <vector>

namespace postern::internal::host {

using SavedStates = std::vector<std::pair<std::string, std::string>>;  // names, sorted, and bytes

/// Saves them as they are now. Under no lock: what saves and loads is the user's.
POSTERN_API SavedStates save_states();

/// Lists the states that are registered and not among these, and the other way round, as lines.
POSTERN_API std::string differences_to_registered(const SavedStates& saved);

/// Hands each its bytes. All must be registered.
POSTERN_API void load_states(const SavedStates& saved);

}  // namespace postern::internal::host
