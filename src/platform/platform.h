// Platforms: what programs can run on. All that differs between them is a field here, or is done by
// a function here; nothing outside of this room compares names.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "guest/guest.h"
#include "lower/lowering.h"
#include "pjrt/client.h"

namespace postern::internal::platforms {

struct Platform {
  std::string_view name;       // what users call it
  std::string_view xla_name;   // under which XLA keeps FFI handlers
  bool on_host = false;        // programs work on the host's memory: what serves host arrays serves
  bool shares_memory = false;  // its devices see each other's memory
  bool makes_devices = false;  // a client has as many devices as it is asked for
  bool names_no_device = false;   // runs on the first device are quicker when they needn't name it
  bool tunes_on_device = false;   // compiling tries code there, which nothing else may use then
  bool calls_inline = false;      // when a run has been queued, its host functions have returned
  bool calls_are_graphs = false;  // its XLA makes a graph of a call, where no host function can be
  CompilerTraits compiler;

  /// Throws PluginError where this machine, or this build, can never use it. Null: any can.
  void (*require_machine)() = nullptr;
  /// Where its plug-in is when nobody says it. Throws PluginError that lists the places looked at.
  std::string (*find_plugin)(const Platform& platform);
  /// A client with at least one device; `devices` of them if `makes_devices`. Throws Error.
  pjrt::Client (*make_client)(const pjrt::Plugin& plugin, int devices);
  /// Makes the targets of Postern's own calls known to XLA, of the plug-in with this number. Throws
  /// Error. Null: nobody knows how its programs would call the host.
  void (*register_handlers)(const pjrt::Plugin& plugin, int number) = nullptr;
  /// What another XLA registers for its programs on this platform. Throws PluginError. Null as the
  /// one before.
  guest::Handlers (*guest_handlers)() = nullptr;
  /// Readies what a program's calls need on a device, before it first runs there: within an
  /// invocation the device may wait for another. What it cannot get then comes later. Null:
  /// nothing.
  void (*reserve)(const pjrt::Device& device,
                  std::span<const host::HostSite> sites) noexcept = nullptr;
};

/// What is right on whatever platform.
inline constexpr CompilerTraits any_compiler{.max_loses_nan = true, .rounds_products = true};

/// Returns those that there are, the default one first.
std::span<const Platform* const> all();

/// Returns the platform of that name. Throws TypeError that lists those that there are; `what`
/// asked.
const Platform& named(std::string_view name, std::string_view what);

/// The same, or makes one of which no more is known than its plug-in says, where `plugin` or, of
/// the default platform, $POSTERN_PLUGIN names one.
const Platform& asked_for(std::string_view name, std::string_view what, std::string_view plugin,
                          bool by_default);

/// A platform's client, and what it is: where the plug-in says that it is of one whose host
/// functions Postern serves, that one, whatever it was asked for as.
struct Opened {
  const Platform* platform;
  pjrt::Client client;
};
/// Throws Error.
Opened open(const Platform& asked, const pjrt::Plugin& plugin, int devices);

/// Makes a client that must have a device, which errors call `what`. Throws PluginError.
pjrt::Client client_with_device(const pjrt::Plugin& plugin,
                                const std::vector<pjrt::ClientOption>& options,
                                std::string_view what);

/// A platform that the process uses.
struct Used {
  const Platform* platform;
  bool calls_back;  // compiled programs can call the host
};
/// Returns that of the device on which this thread's programs are: what they are lowered for. The
/// default platform until the runtime has chosen.
const Used& used_here();
inline const Platform& current() { return *used_here().platform; }
/// Sets that of threads that say nothing.
void set_default(const Used& used);
/// Sets this thread's; null: the process's. Both live as long as the process.
void use_here(const Used* used);
/// Sets Config::tf32, for what is lowered from now on.
void let_products_be_rounded(bool may);

/// Returns the place of the platform's name in a list from elsewhere.
std::optional<std::size_t> position(const Platform& platform, std::span<const std::string> names);

/// Returns the plug-in to use: of the default platform $POSTERN_PLUGIN, or where the platform finds
/// its own. Throws PluginError.
std::string plugin_path(const Platform& platform, bool by_default = true);

/// Has a program lowered for the platform. Null: for none in particular, to be kept for all.
void lower_for(LoweringOptions& options, const Platform* platform);
const Platform* lowered_for(const Lowering& out);

}  // namespace postern::internal::platforms
