// Live hooks: who listens at them, and turning listeners on and off.
#pragma once
#include <postern/live.h>

#include <optional>
#include <span>

#include "host/host_site.h"

namespace postern::internal::host {

/// The hook's site with the function and the settings of a listener. Lives while a firing of it
/// waits in a queue.
struct ListenerSite : HostSite {
  ListenerSite(SitePtr spec, std::shared_ptr<const detail::HostFunction> function,
               std::uint64_t number, bool ends_run_there = false);
  const std::uint64_t number;  // of its Listening; 0: of the program's own listener
  const bool ends_run_there;   // it was asked for that, and nothing else
  /// Returns whether it has been shown all that it wants.
  bool is_spent() const;
};

class Gate;

/// `Listening::what` of those by which a run is to end. All that are there speak of the run that
/// passes next.
inline constexpr std::string_view ends_run = "end";

/// A listener that was turned on.
struct Listening {
  std::uint64_t number = 0;  // of the process
  std::string what;          // "stats"
  std::weak_ptr<Switch> at;
  SitePtr spec;  // without the hook's own function
  std::shared_ptr<Gate> gate;
  std::shared_ptr<const detail::HostFunction> function;  // behind the gate
  LiveOptions options;                                   // under the switch's guard
};

/// Returns the listeners that were turned on, for one invocation; null for none.
std::shared_ptr<const Switch::Sites> sites_at(const Switch& s);
/// Returns the program's own listener when its settings were changed, else null.
std::shared_ptr<const ListenerSite> changed_own(const HostSite& site);
/// Notes that a listener has been shown all that it wants.
void is_over(Switch& s, std::uint64_t number);

std::shared_ptr<Listening> turn_on(const detail::LiveSite& site, const Callee& fn,
                                   const LiveOptions& options, std::string what);
/// Turns it off. `waits`: for those that are inside.
void turn_off(Listening& listening, bool waits) noexcept;
void change(Listening& listening, const LiveOptions& options);

/// Adds those of a program that is ready to run.
void add_live_hooks(const std::string& program, std::span<const SitePtr> sites);
std::optional<LiveHook> live_hook(std::uint64_t number);
/// Moves on whenever there is another hook or listener, or one less.
std::uint64_t live_changes();

/// What listens at a hook now, as who looks is told.
struct ListenerNow {
  std::uint64_t number;
  std::string what;
  LiveOptions options;
};
std::vector<ListenerNow> listeners_of(const LiveHook& hook);
std::optional<LiveOptions> own_settings(const LiveHook& hook);

}  // namespace postern::internal::host
