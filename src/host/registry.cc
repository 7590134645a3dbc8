// The registry of named functions.
#include "host/registry.h"

#include <atomic>
#include <map>
#include <shared_mutex>

#include "core/check.h"
#include "core/text.h"
#include "host/run_state.h"

namespace postern {

namespace {

struct Registry {
  std::shared_mutex guard;
  std::map<std::string, std::shared_ptr<const detail::HostFunction>, std::less<>> functions;
  std::atomic<std::uint64_t> version{1};
};
Registry& registry() {
  static Registry* const r = new Registry;  // runs may end after main
  return *r;
}

}  // namespace

void register_function(const std::string& name, Callee fn, const RegisterOptions& options) {
  PlaceScope at(fn.place());
  check(!name.empty(), "register_function: the name is empty");
  check(fn.function() != nullptr, "register_function: '{}' must be a callable, not another name",
        name);
  auto function =
      fn.function();  // goes after the lock: what the one before lets go of may come back here
  std::unique_lock lock(registry().guard);
  ++registry().version;
  const auto [found, fresh] = registry().functions.try_emplace(name, function);
  if (fresh) return;
  if (!options.replace) {
    const Place& place = PlaceScope::current();
    throw Error(ErrorCode::already_exists,
                fmt::format("register_function: '{}' is already registered; ask for replace, or "
                            "unregister it first{}",
                            name, place.known() ? fmt::format(" (at {})", to_string(place)) : ""));
  }
  found->second.swap(function);
}

bool unregister_function(const std::string& name) {
  std::unique_lock lock(registry().guard);
  ++registry().version;
  const auto gone = registry().functions.extract(name);  // after the lock
  lock.unlock();
  return !gone.empty();
}

std::vector<std::string> registered_functions() {
  std::shared_lock lock(registry().guard);
  std::vector<std::string> names;
  for (const auto& [name, function] : registry().functions) names.push_back(name);
  return names;
}

namespace host {

std::shared_ptr<const detail::HostFunction> function_named(std::string_view name) {
  std::shared_lock lock(registry().guard);
  const auto found = registry().functions.find(name);
  if (found == registry().functions.end()) return nullptr;
  return found->second;
}

std::uint64_t registry_version() { return registry().version.load(std::memory_order_acquire); }

std::vector<HostSite> resolve_names(const std::vector<HostSite>& sites) {
  std::vector<HostSite> out = sites;
  std::vector<const HostSite*> missing;
  {
    std::shared_lock lock(registry().guard);
    for (HostSite& site : out) {
      if (site.function || !site.spec->enters()) continue;
      const auto found = registry().functions.find(site.spec->named.name);
      if (found == registry().functions.end())
        missing.push_back(&site);
      else
        site.serve(found->second);
    }
  }
  if (!missing.empty()) {
    std::string text;
    for (const HostSite* site : missing)
      text += fmt::format("{}'{}' for {}", text.empty() ? "" : ", ",
                          one_line(site->spec->named.name), describe(*site->spec));
    std::vector<std::string> known = registered_functions();
    for (std::string& name : known) name = one_line(name);
    const SiteSpec& first = *missing.front()->spec;
    throw CallbackError(ErrorCode::unregistered,
                        fmt::format("no host function is registered under {}; there are [{}]", text,
                                    fmt::join(known, ", ")),
                        Site{first.name, first.place}, 0, nullptr);
  }
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!sites[i].function && out[i].function) check_signature(*out[i].spec, *out[i].function);
  return out;
}

}  // namespace host
}  // namespace postern
