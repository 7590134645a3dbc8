// Turning listeners on and off at live hooks, for who does so by their numbers.
#pragma once
#include <postern/live.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace postern::internal {

struct SiteSpec;
struct Switch;

}  // namespace postern::internal

namespace postern::internal::host {

class Gate;

/// A listener that was turned on.
struct Listening {
  std::uint64_t number = 0;  // of the process
  std::string what;          // "stats"
  std::weak_ptr<Switch> at;
  std::shared_ptr<const SiteSpec> spec;  // without the hook's own function
  std::shared_ptr<Gate> gate;
  std::shared_ptr<const detail::HostFunction> function;  // behind the gate
  LiveOptions options;                                   // under the switch's guard
};

/// Does as LiveHook::turn_on. `what`: the word for the listener.
POSTERN_API std::shared_ptr<Listening> turn_on(const detail::LiveSite& site, const Callee& fn,
                                               const LiveOptions& options, std::string what);
/// Turns it off. `waits`: for those that are inside.
POSTERN_API void turn_off(Listening& listening, bool waits) noexcept;
POSTERN_API void change(Listening& listening, const LiveOptions& options);
POSTERN_API LiveOptions options_of(const Listening& listening);
/// Returns whether it may be shown something more.
POSTERN_API bool is_on(const Listening& listening);

POSTERN_API std::optional<LiveHook> live_hook(std::uint64_t number);
/// Moves on whenever there is another hook or listener, or one less.
POSTERN_API std::uint64_t live_changes();

/// What listens at a hook now, as who looks is told.
struct ListenerNow {
  std::uint64_t number;
  std::string what;
  LiveOptions options;
};
POSTERN_API std::vector<ListenerNow> listeners_of(const LiveHook& hook);
POSTERN_API std::optional<LiveOptions> own_settings(const LiveHook& hook);

}  // namespace postern::internal::host
