// Live hooks: who listens at them, and turning listeners on and off.
#pragma once
#include <span>

#include "host/host_site.h"
#include "host/listening.h"

namespace postern::internal::host {

/// The hook's site with the function and the settings of a listener. Lives while an invocation of
/// it waits in a queue.
struct ListenerSite : HostSite {
  ListenerSite(SitePtr spec, std::shared_ptr<const detail::HostFunction> function,
               std::uint64_t number, bool ends_run_there = false);
  const std::uint64_t number;  // of its Listening; 0: of the program's own listener
  const bool ends_run_there;   // it was asked for that, and nothing else
  /// Returns whether it has been shown all that it wants.
  bool is_spent() const;
};

/// `Listening::what` of those by which a run is to end. All speak of the run that passes next.
inline constexpr std::string_view ends_run = "end";

/// Returns the listeners that were turned on, for one invocation; null for none.
std::shared_ptr<const Switch::Sites> sites_at(const Switch& s);
/// Returns the program's own listener when its settings were changed, else null.
std::shared_ptr<const ListenerSite> changed_own(const HostSite& site);
/// Takes a listener off the list. `seen`: only while this is its site, with which it has ended.
void take_off(Switch& s, std::uint64_t number, const ListenerSite* seen = nullptr);

/// Adds those of a program that is ready to run.
void add_live_hooks(const std::string& program, std::span<const SitePtr> sites);

}  // namespace postern::internal::host
