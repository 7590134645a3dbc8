// The registry of named functions.
#include "host/registry.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <set>

#include "core/check.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/text.h"
#include "host/run_state.h"

namespace postern {
using namespace internal;

namespace {

struct Functions {
  SharedMutex guard;
  std::map<std::string, std::shared_ptr<const detail::HostFunction>, std::less<>> by_name;
  std::atomic<std::uint64_t> version{1};
};
Functions& functions() { return never_destroyed<Functions>(); }

}  // namespace

void register_function(const std::string& name, Callee fn, const RegisterOptions& options) {
  PlaceScope at(fn.place());
  check(!name.empty(), "register_function: the name is empty");
  check(fn.function() != nullptr, "register_function: '{}' must be a callable, not another name",
        name);
  auto function = fn.function();  // what it replaces is destroyed unlocked: it may run user code
  std::unique_lock lock(functions().guard);
  ++functions().version;
  const auto [found, fresh] = functions().by_name.try_emplace(name, function);
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
  std::unique_lock lock(functions().guard);
  ++functions().version;
  const auto gone = functions().by_name.extract(name);  // destroyed unlocked, as above
  lock.unlock();
  return !gone.empty();
}

std::vector<std::string> registered_functions() {
  std::shared_lock lock(functions().guard);
  std::vector<std::string> names;
  for (const auto& [name, function] : functions().by_name) names.push_back(name);
  return names;
}

namespace internal::host {

std::shared_ptr<const detail::HostFunction> function_named(std::string_view name) {
  std::shared_lock lock(functions().guard);
  const auto found = functions().by_name.find(name);
  if (found == functions().by_name.end()) return nullptr;
  return found->second;
}

std::uint64_t registry_version() { return functions().version.load(std::memory_order_acquire); }

namespace {

// The names by which a run's options mean a site; empty: they do not.
std::string_view hook_of(const SiteSpec& site) {
  if (site.kind == SiteSpec::Kind::hook) return site.name;
  return {};
}
std::string_view function_of(const SiteSpec& site) {
  if (site.enters()) return site.named.name;
  return {};
}

/// `what`: "hook" or "function". Each must be a callable that some site can be meant by.
void check_bindings(const std::vector<HookBinding>& given, std::span<const SitePtr> sites,
                    const char* what, std::string_view (*name_of)(const SiteSpec&)) {
  std::set<std::string_view> seen, known;
  for (const SitePtr& site : sites) known.insert(name_of(*site));
  known.erase(std::string_view());
  std::vector<std::string> list;
  for (const std::string_view name : known) list.push_back(one_line(std::string(name)));
  for (const HookBinding& b : given) {
    PlaceScope at(b.fn.place());
    const std::string name = one_line(b.name);
    check(known.contains(b.name), "start: the program has no {} '{}'; its {}s are [{}]", what, name,
          what, fmt::join(list, ", "));
    check(seen.insert(b.name).second, "start: two functions are given for {} '{}'", what, name);
    check(b.fn.function() != nullptr, "start: {} '{}' must be a callable, not another name", what,
          name);
    for (const SitePtr& site : sites)
      if (name_of(*site) == b.name) check_signature(*site, *b.fn.function());
  }
}

}  // namespace

std::shared_ptr<const RunFunctions> RunFunctions::of(const RunOptions& options,
                                                     std::span<const SitePtr> sites) {
  if (options.hooks.empty() && options.functions.empty()) return nullptr;
  check_bindings(options.hooks, sites, "hook", hook_of);
  check_bindings(options.functions, sites, "function", function_of);
  auto out = std::make_shared<RunFunctions>();
  out->hooks_ = options.hooks;
  out->functions_ = options.functions;
  return out;
}

std::shared_ptr<const detail::HostFunction> RunFunctions::find(const SiteSpec& site) const {
  const auto in = [](const std::vector<HookBinding>& list, std::string_view name) {
    const auto found = std::ranges::find(list, name, &HookBinding::name);
    return found == list.end() ? nullptr : found->fn.function();
  };
  if (auto listener = in(hooks_, hook_of(site))) return listener;
  return in(functions_, function_of(site));
}

[[noreturn]] static void refuse_missing(const std::vector<const HostSite*>& missing) {
  Separator comma;
  std::string text;
  for (const HostSite* site : missing)
    text += fmt::format("{}'{}' for {}", comma(), one_line(site->spec->named.name),
                        describe(*site->spec));
  std::vector<std::string> known = registered_functions();
  for (std::string& name : known) name = one_line(name);
  const SiteSpec& first = *missing.front()->spec;
  throw CallbackError(ErrorCode::unregistered,
                      fmt::format("no host function is registered under {}; there are [{}]", text,
                                  fmt::join(known, ", ")),
                      Site{first.name, first.place}, 0, nullptr);
}

std::vector<HostSite> resolve_names(const std::vector<HostSite>& sites, const RunFunctions* own) {
  std::vector<HostSite> out = sites;
  std::vector<const HostSite*> missing;
  {
    std::shared_lock lock(functions().guard);
    for (HostSite& site : out) {
      if (auto given = own ? own->find(*site.spec) : nullptr) site.serve(std::move(given));
      if (site.function || !site.spec->enters()) continue;
      const auto found = functions().by_name.find(site.spec->named.name);
      if (found == functions().by_name.end())
        missing.push_back(&site);
      else
        site.serve(found->second);
    }
  }
  if (!missing.empty()) refuse_missing(missing);
  for (std::size_t i = 0; i < out.size(); ++i)
    if (!sites[i].function && out[i].function) check_signature(*out[i].spec, *out[i].function);
  return out;
}

}  // namespace internal::host
}  // namespace postern
