// Configuration, and opening the platforms that it asks for.
#include "run/backend.h"

#include <algorithm>
#include <cstdlib>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/mutex.h"
#include "host/failure_text.h"
#include "host/handler.h"
#include "host/queue.h"
#include "pjrt/ffi.h"
#include "platform/find_plugin.h"
#include "platform/nodes.h"
#include "run/runtime.h"

namespace postern::internal::run {

namespace {

/// An entry of Config::platforms: "name" or "name=file".
struct AskedPlatform {
  explicit AskedPlatform(std::string_view text)
      : name(text.substr(0, text.find('='))),
        plugin(text.substr(std::min(text.size(), name.size() + 1))) {}
  std::string name, plugin;
};

void check_platforms(const std::vector<std::string>& list, const char* what) {
  std::vector<std::string> names;
  for (const std::string& text : list) {
    const AskedPlatform entry(text);
    check(!entry.name.empty() && (!entry.plugin.empty() || text == entry.name),
          "{}: '{}' is neither a platform nor name=file, a platform and its plug-in", what, text);
    check(std::ranges::find(names, entry.name) == names.end(),
          "{}: '{}' is named twice; give one of them another name, as in \"other=file\"", what,
          entry.name);
    names.push_back(entry.name);
  }
}

/// Splits "cuda,cpu" at the commas.
std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

constexpr const char* asks = "POSTERN_PLATFORM, Config::platforms";

Mutex config_guard;
Config wanted;
bool in_use = false;

int environment_number(const char* name, int otherwise) {
  const char* const text = platforms::environment(name);
  if (!text) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  check(*end == '\0' && value > 0 && value <= 1024, "{} must be a number from 1 to 1024, got '{}'",
        name, text);
  return static_cast<int>(value);
}

/// Returns how many lanes for nested runs may be added. A client that makes CPU devices has as many
/// as it is asked for. XLA lets 32 runs be under way on each GPU of a client, and those that wait
/// in their calls are too.
Backend::SpareLanes spare_lanes(const platforms::Platform& platform, std::size_t devices) {
  if (platform.makes_devices) return {.at_a_time = 64, .times = 16, .for_nested = 40};
  return {.at_a_time = 30 * devices, .times = 4, .for_nested = 20 * devices};
}

/// Opens one platform. `first`: the default one, which alone takes POSTERN_PLUGIN and joins the
/// cluster. What is opened may be another than was asked for: the plug-in says what it is.
std::unique_ptr<Backend> open_one(const Config& config, const AskedPlatform& entry, bool first) {
  const platforms::Platform& asked = platforms::asked_for(entry.name, asks, entry.plugin, first);
  std::string path = entry.plugin;
  if (path.empty()) path = platforms::plugin_path(asked, first);
  if (asked.require_machine) asked.require_machine();  // what an unusable plug-in mostly lacks
  const pjrt::Plugin& plugin = pjrt::Plugin::load(path);
  if (config.processes && first) platforms::join_nodes(asked);
  auto [platform, client] = platforms::open(asked, plugin, config.cpu_devices);
  auto backend = std::make_unique<Backend>();
  const bool calls_back = plugin.ffi() && platform->register_handlers;
  backend->used = {.platform = platform, .calls_back = calls_back};
  // Several are told apart by the names asked for; a single one has that of what was opened.
  backend->name = entry.name;
  if (config.platforms.size() == 1) backend->name = platform->name;
  backend->plugin = &plugin;
  backend->device_count = static_cast<int>(client.devices().size());
  backend->spare = spare_lanes(*platform, client.devices().size());
  backend->clients[0] = std::move(client);
  return backend;
}

/// Makes the type of run and the handlers known to the plug-in, so that its programs find their
/// runs: the type once, since a plug-in stays where another cannot be used and the user asks anew.
void register_calls(Backend& backend) {
  struct Registered {
    const pjrt::Plugin* plugin;
    std::int64_t run_type;
  };
  static auto& registered = *new std::vector<Registered>;  // under the runtime's lock
  auto its = std::ranges::find(registered, backend.plugin, &Registered::plugin);
  const auto number = static_cast<int>(its - registered.begin());
  check(number < host::most_plugins,
        "{}: plug-ins whose programs call the host can be {} in a process; that of '{}' is one "
        "more",
        asks, host::most_plugins, backend.name);
  if (its == registered.end())
    its = registered.insert(its,
                            {backend.plugin, pjrt::register_type(*backend.plugin, "postern.run")});
  host::run_state_types[number] = backend.run_state_type = its->run_type;
  backend.platform().register_handlers(*backend.plugin, number);
}

}  // namespace

// What the user configured comes before what the environment says, and that before defaults.
Config settled_config() {
  std::scoped_lock lock(config_guard);
  Config c = wanted;
  if (c.cpu_devices == 0) c.cpu_devices = environment_number("POSTERN_CPU_DEVICES", 1);
  if (c.platforms.empty() && !c.platform.empty()) c.platforms = split_list(c.platform);
  if (const char* list = platforms::environment("POSTERN_PLATFORM"); c.platforms.empty() && list)
    c.platforms = split_list(list);
  if (c.platforms.empty()) c.platforms = {std::string(platforms::all().front()->name)};
  check(c.plugin.empty() || c.platforms[0].find('=') == std::string::npos,
        "{}: '{}' names a plug-in, and Config::plugin another one, '{}'", asks, c.platforms[0],
        c.plugin);
  if (!c.plugin.empty()) c.platforms[0] += "=" + c.plugin;
  check_platforms(c.platforms, asks);
  if (const char* dir = std::getenv("POSTERN_CACHE_DIR"); c.cache_dir.empty() && dir)
    c.cache_dir = dir;
  if (c.max_reentry == 0) c.max_reentry = 32;
  if (const char* on = std::getenv("POSTERN_TF32"); on && std::string_view(on) == "1")
    c.tf32 = true;
  in_use = true;
  return c;
}

void forget_config() {
  std::scoped_lock lock(config_guard);
  in_use = false;
}

std::vector<std::unique_ptr<Backend>> open_backends(const Config& config) {
  std::vector<std::unique_ptr<Backend>> opened;
  int devices = 0;
  for (const std::string& text : config.platforms) {
    auto backend = open_one(config, AskedPlatform(text), opened.empty());
    backend->number = static_cast<int>(opened.size());
    backend->first_device = devices;
    devices += backend->device_count;
    if (backend->used.calls_back) register_calls(*backend);
    opened.push_back(std::move(backend));
  }
  if (opened.size() < 2) return opened;  // errors need not say on which platform a device is
  std::vector<std::string> names;        // by device
  for (const auto& backend : opened)
    names.insert(names.end(), backend->device_count, backend->name);
  host::name_devices(std::move(names));
  return opened;
}

}  // namespace postern::internal::run

namespace postern {
using namespace internal;

void configure(const Config& config, Place place) {
  PlaceScope at(place);
  check(config.cpu_devices >= 0 && config.cpu_devices <= 1024,
        "configure: cpu_devices must be from 1 to 1024 (0: default), got {}", config.cpu_devices);
  check(config.max_reentry >= 0 && config.max_reentry <= 1024,
        "configure: max_reentry must be from 1 to 1024 (0: default), got {}", config.max_reentry);
  check(config.exit_limit.count() >= 0, "configure: exit_limit must not be negative, got {} ms",
        config.exit_limit.count());
  check(config.look.count() >= 0 && config.look <= std::chrono::milliseconds(100),
        "configure: look must be from 0 to 100 ms, got {} ns", config.look.count());
  check(config.platforms.empty() || (config.platform.empty() && config.plugin.empty()),
        "configure: platforms names all that the process uses, so platform and plugin must be "
        "empty, got '{}' and '{}'; a plug-in is named beside its platform, as in \"name=file\"",
        config.platform, config.plugin);
  run::check_platforms(config.platforms, "configure: platforms");
  std::scoped_lock lock(run::config_guard);
  if (run::in_use)
    throw Error(ErrorCode::failed_precondition,
                "configure: the runtime is already in use; configure before the first operation");
  check(config.cluster_patience.count() > 0,
        "configure: cluster_patience must be positive, got {} ms", config.cluster_patience.count());
  clusters::choose(config.cluster, config.cluster_patience);
  run::wanted = config;
  host::set_tap_queue_limit(config.tap_queue_bytes);  // guests tap without a runtime
}

static void add_devices(const run::Backend& backend, std::vector<DeviceInfo>& list) {
  for (int i = 0; i < backend.device_count; ++i)
    list.push_back({backend.first_device + i, backend.name});
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  for (const auto& backend : run::Runtime::get().backends()) add_devices(*backend, out);
  return out;
}

static const run::Backend& backend_named(const std::string& name, const char* what) {
  std::vector<std::string> names;
  for (const auto& backend : run::Runtime::get().backends()) {
    if (backend->name == name) return *backend;
    names.push_back(backend->name);
  }
  throw_type_error(fmt::format("{}: the process does not use a platform '{}'; it uses {}", what,
                               name, fmt::join(names, ", ")));
}

std::vector<DeviceInfo> devices(const std::string& platform, Place place) {
  PlaceScope at(place);
  std::vector<DeviceInfo> out;
  add_devices(backend_named(platform, "devices"), out);
  return out;
}

static PluginInfo info_of(const run::Backend& backend) {
  const pjrt::Plugin& plugin = *backend.plugin;
  return {.path = plugin.path(),
          .platform = backend.name,
          .api_major = pjrt::required_api_major,
          .api_minor = plugin.api_minor(),
          .calls_back = backend.used.calls_back,
          .extensions = plugin.extensions(),
          .memory_kinds = backend.clients[0].devices().front().memory_kinds()};
}

PluginInfo plugin_info() { return info_of(*run::Runtime::get().backends().front()); }

PluginInfo plugin_info(const std::string& platform, Place place) {
  PlaceScope at(place);
  return info_of(backend_named(platform, "plugin_info"));
}

}  // namespace postern
