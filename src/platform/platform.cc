// The table, and finding in it.
#include "platform/platform.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <utility>

#include "core/check.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"
#include "host/text_file.h"
#include "platform/cpu/cpu.h"
#include "platform/cuda/cuda.h"
#include "platform/find_plugin.h"
#include "platform/other/other.h"

namespace postern::internal::platforms {

namespace {

constexpr const Platform* table[] = {&cpu, &cuda, &rocm, &oneapi, &tpu, &metal, &tt};

struct UserPlatform {
  std::string name;
  Platform platform;
};
/// Those that users named. Never taken away.
struct Users {
  Mutex guard;
  std::list<UserPlatform> platforms;
};
Users& users() { return never_destroyed<Users>(); }

const Platform* known_as(std::string_view name) {
  const auto* const known = std::ranges::find(table, name, &Platform::name);
  if (known != std::end(table)) return *known;
  const std::scoped_lock lock(users().guard);
  const auto of_user = std::ranges::find(users().platforms, name, &UserPlatform::name);
  return of_user == users().platforms.end() ? nullptr : &of_user->platform;
}

constexpr Used first_row{table[0], true};
std::atomic<const Used*> default_used{&first_row};
constinit thread_local const Used* of_thread = nullptr;
std::atomic<bool> may_round{false};

}  // namespace

std::span<const Platform* const> all() { return table; }

const Platform& named(std::string_view name, std::string_view what) {
  if (const Platform* platform = known_as(name)) return *platform;
  Separator comma;
  std::string known;
  for (const Platform* p : table) known += fmt::format("{}{}", comma(), p->name);
  throw_type_error(fmt::format("{}: '{}' is no known platform; known are {}", what, name, known));
}

/// Returns the plug-in that the environment names, which is the default platform's alone; else
/// null.
static const char* environments_plugin(bool by_default) {
  if (by_default) return environment("POSTERN_PLUGIN");
  return nullptr;
}

const Platform& asked_for(std::string_view name, std::string_view what, std::string_view plugin,
                          bool by_default) {
  const bool names_plugin = !plugin.empty() || environments_plugin(by_default);
  if (known_as(name) || !names_plugin) return named(name, what);
  const std::scoped_lock lock(users().guard);
  UserPlatform& made = users().platforms.emplace_back(UserPlatform{std::string(name), {}});
  made.platform = other(made.name);
  return made.platform;
}

/// Makes the CPU's client of a plug-in that sounds like the CPU's; none where it is another's.
static std::optional<pjrt::Client> client_of_cpu(const pjrt::Plugin& plugin, int devices) {
  if (plugin.path().find(cpu.name) == std::string::npos) return std::nullopt;
  try {
    pjrt::Client client = cpu.make_client(plugin, devices);
    if (client.platform_name() == cpu.name) return client;
  } catch (const Error&) {  // it only sounds like one
  }
  return std::nullopt;
}

Opened open(const Platform& asked, const pjrt::Plugin& plugin, int devices) {
  if (asked.register_handlers) return {&asked, asked.make_client(plugin, devices)};
  // Of a platform without handlers the plug-in may be that of one with them. The CPU is tried
  // first: a plug-in reads its flags when its first client is made, and only the CPU's row knows
  // them.
  if (auto client = client_of_cpu(plugin, devices)) return {&cpu, std::move(*client)};
  pjrt::Client client = asked.make_client(plugin, devices);
  const Platform* const said = known_as(client.platform_name());
  if (!said || !said->register_handlers) return {&asked, std::move(client)};
  client = {};  // before there is another one
  return {said, said->make_client(plugin, devices)};
}

pjrt::Client client_with_device(const pjrt::Plugin& plugin,
                                const std::vector<pjrt::ClientOption>& options,
                                std::string_view what) {
  try {
    pjrt::Client client(plugin, options);
    if (client.devices().empty()) throw Error(ErrorCode::not_found, "it lists no device");
    return client;
  } catch (const Error& e) {
    throw PluginError(e.code(), fmt::format("no {} can be used through the plug-in {}: {}", what,
                                            plugin.path(), e.what()));
  }
}

const Used& used_here() {
  if (of_thread) return *of_thread;
  return *default_used.load();
}
void set_default(const Used& used) { default_used = &used; }
void use_here(const Used* used) { of_thread = used; }
void let_products_be_rounded(bool may) { may_round = may; }

std::optional<std::size_t> position(const Platform& platform, std::span<const std::string> names) {
  const auto found = std::ranges::find(names, platform.name);
  if (found == names.end()) return std::nullopt;
  return static_cast<std::size_t>(found - names.begin());
}

std::string plugin_path(const Platform& platform, bool by_default) {
  const char* chosen = environments_plugin(by_default);
  if (!chosen) return platform.find_plugin(platform);
  if (host::is_there(chosen)) return chosen;
  throw PluginError(ErrorCode::not_found, std::string("POSTERN_PLUGIN names the plug-in ") +
                                              chosen + ", which does not exist or is out of reach");
}

void lower_for(LoweringOptions& options, const Platform* platform) {
  options.platform = {};  // of none in particular: what is kept for all must be right on each
  options.compiler = any_compiler;
  if (platform) {
    options.platform = platform->name;
    options.compiler = platform->compiler;
  }
  if (may_round) options.compiler.rounds_products = false;
}

const Platform* lowered_for(const Lowering& out) {
  if (out.platform().empty()) return nullptr;
  return &named(out.platform(), "lowering");
}

}  // namespace postern::internal::platforms
