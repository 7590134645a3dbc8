// The registry of states of host functions.
#include "host/host_state.h"

#include <fmt/format.h>
#include <postern/state.h>

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"
#include "core/thread_end.h"
#include "host/gate.h"
#include "host/run_state.h"

namespace postern {
using namespace internal;

namespace {

struct State {
  std::string name;
  std::function<std::string()> save;
  std::function<void(std::string_view)> load;
  host::Gate gate;

  /// Enters save or load as a host function. False, and nothing entered, when the state is gone.
  template <class F>
  bool enter(const F& function) {
    const host::Gate::Entry inside(gate);
    if (!inside) return false;
    const host::Nesting* const outer = host::nesting();
    const host::Beginning here{{.outer = outer, .depth = outer ? outer->depth + 1 : 1}};
    const host::NestingScope scope(&here);
    enters_users_code();
    without_thread_end(function);
    return true;
  }
};

using StatePtr = std::shared_ptr<State>;

struct States {
  Mutex guard;
  std::map<std::string, StatePtr> by_name;
};
States& states() { return never_destroyed<States>(); }

}  // namespace

RegisteredState register_state(const std::string& name, std::function<std::string()> save,
                               std::function<void(std::string_view)> load, Place place) {
  PlaceScope at(place);
  check(!name.empty() && is_utf8(name), "register_state: the name must be UTF-8, not empty, got {}",
        internal::quoted(name));
  check(save && load, "register_state {}: save and load must be callable", internal::quoted(name));
  const StatePtr state(new State{name, std::move(save), std::move(load), {}});
  std::scoped_lock lock(states().guard);
  if (!states().by_name.try_emplace(name, state).second)
    throw Error(ErrorCode::already_exists,
                fmt::format("register_state: there is a state {} already", internal::quoted(name)));
  return RegisteredState(name);
}

RegisteredState::~RegisteredState() {
  if (name_.empty()) return;
  StatePtr gone;
  {
    std::scoped_lock lock(states().guard);
    gone = std::move(states().by_name.extract(name_).mapped());
  }
  gone->gate.close(true);
}

void detail::unreadable_state(const std::string& name) {
  throw Error(ErrorCode::data_loss, fmt::format("resume: state {} cannot be read back by its >>",
                                                internal::quoted(name)));
}

host::SavedStates host::save_states() {
  std::vector<StatePtr> all;
  {
    std::scoped_lock lock(states().guard);
    for (const auto& [name, state] : states().by_name) all.push_back(state);
  }
  SavedStates out;
  for (const StatePtr& s : all) s->enter([&] { out.emplace_back(s->name, s->save()); });
  return out;
}

std::string host::differences_to_registered(const SavedStates& saved) {
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

void host::load_states(const SavedStates& saved) {
  for (const auto& [name, bytes] : saved) {
    StatePtr state;
    {
      std::scoped_lock lock(states().guard);
      if (const auto found = states().by_name.find(name); found != states().by_name.end())
        state = found->second;
    }
    if (!state || !state->enter([&, &its = bytes] { state->load(its); }))
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("state {} is not registered any more", internal::quoted(name)));
  }
}
}  // namespace postern
