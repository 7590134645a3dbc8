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
struct Registry {
  std::mutex guard;
  std::map<std::string, State> states;
};
Registry& registry() {
  static Registry* const r = new Registry;
  return *r;
}

}  // namespace

RegisteredState register_state(const std::string& name, std::function<std::string()> save,
                               std::function<void(std::string_view)> load) {
  check(!name.empty() && is_utf8(name), "register_state: the name must be UTF-8, not empty, got {}",
        internal::quoted(name));
  check(save && load, "register_state {}: save and load must be callable", internal::quoted(name));
  std::scoped_lock lock(registry().guard);
  if (!registry().states.try_emplace(name, State{std::move(save), std::move(load)}).second)
    throw Error(ErrorCode::already_exists,
                fmt::format("register_state: there is a state {} already", internal::quoted(name)));
  return RegisteredState(name);
}

RegisteredState::~RegisteredState() {
  if (name_.empty()) return;
  std::scoped_lock lock(registry().guard);
  registry().states.erase(name_);
}

void detail::unreadable_state(const std::string& name) {
  throw Error(ErrorCode::data_loss, fmt::format("resume: state {} cannot be read back by its >>",
                                                internal::quoted(name)));
}

namespace internal::host {

SavedStates save_states() {
  SavedStates out;
  std::scoped_lock lock(registry().guard);
  for (const auto& [name, state] : registry().states) out.emplace_back(name, state.save());
  return out;
}

std::string differences_to_registered(const SavedStates& states) {
  std::scoped_lock lock(registry().guard);
  std::string out;
  for (const auto& [name, bytes] : states)
    if (!registry().states.contains(name))
      out += fmt::format("\n  state {} is in the checkpoint, and not registered",
                         internal::quoted(name));
  for (const auto& [name, state] : registry().states)
    if (std::ranges::find(states, name, &SavedStates::value_type::first) == states.end())
      out += fmt::format("\n  state {} is registered, and not in the checkpoint",
                         internal::quoted(name));
  return out;
}

void load_states(const SavedStates& states) {
  std::scoped_lock lock(registry().guard);
  for (const auto& [name, bytes] : states) registry().states.at(name).load(bytes);
}

}  // namespace internal::host
}  // namespace postern
