// Live hooks: places of a program at which listeners are turned on and off while it runs, without
// compiling it anew.
//
//   auto step = pn::jit([](pn::Tensor w) {
//     return pn::hook("gradient", 2.0f * w, {.live = true});  // asleep: nobody listens
//   });
//   auto run = step.start(w);
//   for (const pn::LiveHook& h : pn::hooks_of(run)) auto on = h.turn_on(pn::listen::stats());
//
// The live page and the command `postern attach` turn on listeners of another process. See
// docs/switches.md.
#pragma once
#include <postern/detail/api.h>
#include <postern/hook.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace postern {

/// How a listener that is turned on is shown what passes; see TapOptions.
struct LiveOptions {
  TapMode mode = TapMode::sync;
  std::int64_t every = 1;      // of the firings from now on: 0, every, 2 * every, ...
  std::int64_t until = 0;      // so many of those, then it is off. 0: until it is turned off
  std::int64_t keep_last = 0;  // async: at most so many wait, the oldest are lost; 0: none is lost
};

namespace detail {
struct LiveSite;
}
namespace internal::host {
struct Listening;
}

/// A listener that was turned on: it is off when this goes. No member throws but `change`.
class Listening {
 public:
  Listening() = default;
  explicit Listening(std::shared_ptr<internal::host::Listening> state) : state_(std::move(state)) {}
  Listening(Listening&&) noexcept = default;
  /// Turns off the listener that it had before.
  POSTERN_API Listening& operator=(Listening&& other) noexcept;
  POSTERN_API ~Listening();

  /// Stops showing anything to the listener: waits for those that are inside it now, but not from
  /// inside of it, and not where those wait for the caller in their turn. Firings that wait in a
  /// queue are lost.
  POSTERN_API void off() noexcept;
  /// Changes the settings, from the next invocation on; invocations are counted anew. Throws
  /// TypeError for values out of range.
  POSTERN_API void change(const LiveOptions& options, Place place = Place::current()) const;
  /// Returns whether it may be shown something more: false after off(), after `until` firings, and
  /// when the program is gone.
  POSTERN_API bool is_on() const;
  /// Returns them as turn_on or change had them.
  POSTERN_API LiveOptions options() const;
  /// Leaves it on, as long as the program is there.
  void keep() && { state_.reset(); }

 private:
  std::shared_ptr<internal::host::Listening> state_;
};

/// A live hook of a program. Copies are the same hook; none keeps the program alive. No member
/// throws unless it is said.
class LiveHook {
 public:
  explicit LiveHook(std::shared_ptr<const detail::LiveSite> site) : site_(std::move(site)) {}

  /// Returns the hook: its name, its program's, what it shows, where it stands in the source, and
  /// the transformations that it went through.
  POSTERN_API const std::string& name() const;
  POSTERN_API const std::string& program() const;      // JitOptions::name
  POSTERN_API std::uint64_t number() const;            // no other one of the process has it
  POSTERN_API const std::vector<Type>& types() const;  // of the leaves
  POSTERN_API const std::vector<std::string>& paths() const;
  POSTERN_API const Place& place() const;
  POSTERN_API const Transforms& transforms() const;

  /// Shows `fn` what passes here from now on. Throws TypeError when its parameters do not fit or an
  /// option is out of range; Error: not_found when the program is gone or no function has that
  /// name, resource_exhausted when the hook has 64 listeners.
  [[nodiscard]] POSTERN_API Listening turn_on(const Callee& fn,
                                              const LiveOptions& options = {}) const;
  /// Ends the run that passes here next, without failure, as by CallInfo::end_run; to ask
  /// twice before it comes is to ask once. Throws as turn_on does.
  POSTERN_API void end_run() const;
  /// Keeps what passes here next as a checkpoint: see listen::checkpoint. Throws as that and
  /// turn_on do.
  POSTERN_API void checkpoint(const std::filesystem::path& folder) const;

  /// Returns how many listeners have been turned on here.
  POSTERN_API std::size_t listeners() const;
  /// Changes the settings of the listener that the program itself has here. Throws TypeError for
  /// values out of range; Error: failed_precondition when it has none, not_found when the program
  /// is gone.
  POSTERN_API void change(const LiveOptions& options, Place place = Place::current()) const;
  /// Returns whether the program itself has a listener here.
  POSTERN_API bool has_own() const;

  const std::shared_ptr<const detail::LiveSite>& internal() const { return site_; }

 private:
  std::shared_ptr<const detail::LiveSite> site_;
};

namespace detail {
POSTERN_API std::vector<LiveHook> live_hooks_of(const StartedRun& run);
}

/// Returns the live hooks of the program that runs, those in its loops and branches included; a
/// transformation that copies a hook makes several of it. Throws nothing.
template <class R>
std::vector<LiveHook> hooks_of(const Run<R>& running) {
  return detail::live_hooks_of(*running.internal());
}
template <class R>
std::vector<LiveHook> hooks_of(const HookStream<R>& running) {
  return hooks_of(running.run());
}
/// Returns those of all programs of the process that are there. Throws nothing.
POSTERN_API std::vector<LiveHook> live_hooks();

}  // namespace postern
