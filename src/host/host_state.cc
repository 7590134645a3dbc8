// The registry of states of host functions.
#include "host/host_state.h"

#include <fmt/format.h>
#include <postern/checkpoint.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/check.h"
#include "core/text.h"

namespace postern {
using namespace internal;

namespace {

struct State {
  std::function<std::string()> save;
  std::function<void(std::string_view)> load;
};

/// Never destroyed: states may be registered until the process ends. The lock is held while states
/// are saved and loaded, so that none goes meanwhile.
struct States {
  std::mutex guard;
  std::map<std::string, State> by_name;
};
States& states() {
  static States* const s = new States;
  return *s;
}

}  // namespace

RegisteredState register_state(const std::string& name, std::function<std::string()> save,
                               std::function<void(std::string_view)> load) {
  check(!name.empty() && is_utf8(name), "register_state: the name must be UTF-8, not empty, got {}",
        internal::quoted(name));
  check(save && load, "register_state {}: save and load must be callable", internal::quoted(name));
  std::scoped_lock lock(states().guard);
  if (!states().by_name.try_emplace(name, State{std::move(save), std::move(load)}).second)
    throw Error(ErrorCode::already_exists,
                fmt::format("register_state: there is a state {} already", internal::quoted(name)));
  return RegisteredState(name);
}

RegisteredState::~RegisteredState() {
  if (name_.empty()) return;
  std::scoped_lock lock(states().guard);
  states().by_name.erase(name_);
}

void detail::unreadable_state(const std::string& name) {
  throw Error(ErrorCode::data_loss, fmt::format("resume: state {} cannot be read back by its >>",
                                                internal::quoted(name)));
}

namespace internal::host {

SavedStates save_states() {
  SavedStates out;
  std::scoped_lock lock(states().guard);
  for (const auto& [name, state] : states().by_name) out.emplace_back(name, state.save());
  return out;
}

std::string differences_to_registered(const SavedStates& saved) {
  std::scoped_lock lock(states().guard);
  std::string out;
  for (const auto& [name, bytes] : saved)
    if (!states().by_name.contains(name))
      out += fmt::format("\n  state {} is in the checkpoint, and not registered",
                         internal::quoted(name));
  for (const auto& [name, state] : states().by_name)
    if (std::ranges::find(saved, name, &SavedStates::value_type::first) == saved.end())
      out += fmt::format("\n  state {} is registered, and not in the checkpoint",
                         internal::quoted(name));
  return out;
}

void load_states(const SavedStates& saved) {
  std::scoped_lock lock(states().guard);
  for (const auto& [name, bytes] : saved) states().by_name.at(name).load(bytes);
}

}  // namespace internal::host
}  // namespace postern
