// Hooks: finding the listener.
#include "site/hook.h"

#include <algorithm>

#include "core/check.h"
#include "site/site.h"
#include "site/tap.h"
#include "trace/trace.h"

namespace postern::internal {

static thread_local HookScope* current = nullptr;

HookScope::HookScope(std::span<const HookBinding> bindings, bool isolated, bool live)
    : Scoped(current, this), bindings_(bindings), isolated_(isolated), live_(live) {}

void HookScope::meet(const HookInfo& info) {
  // Transformations and loops may trace a place more than once.
  const bool known = std::ranges::any_of(met_, [&](const HookInfo& m) {
    return m.name == info.name && m.place.line == info.place.line &&
           m.place.file == info.place.file && m.types == info.types;
  });
  if (!known) met_.push_back(info);
}

void HookScope::check_known(const HookRules& rules) const {
  if (rules.allow_unknown) return;
  std::vector<std::string> unknown, known;
  const auto is_known = [&](const std::string& name) {
    return std::ranges::find(known, name) != known.end();
  };
  for (const HookInfo& hook : met_)
    if (!is_known(hook.name)) known.push_back(hook.name);
  for (const HookBinding& binding : bindings_)
    if (!is_known(binding.name)) unknown.push_back(binding.name);
  if (unknown.empty()) return;
  const auto& first = *std::ranges::find(bindings_, unknown.front(), &HookBinding::name);
  PlaceScope::Replace at(first.fn.place());
  throw_type_error(fmt::format("with_hooks: the program has no hook {}'{}'; its hooks are [{}]",
                               unknown.size() > 1 ? "named " : "", fmt::join(unknown, "', '"),
                               fmt::join(known, ", ")));
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

ScopedHooks::ScopedHooks(std::vector<HookBinding> listeners)
    : listeners_(std::move(listeners)), scope_(std::make_unique<HookScope>(listeners_, false)) {}
ScopedHooks::~ScopedHooks() = default;

bool detail::is_live(const TapOptions& options) {
  if (!Trace::current()) return false;
  bool live = options.live;
  for (const HookScope* s = current; s; s = s->next()) live = live || s->live_;
  return live;
}

const Callee* detail::listener(const TapOptions& options, const Shown& value,
                               const Callee* otherwise, const Place& place) {
  if (!current) return otherwise;
  const std::string& name = options.name;
  HookInfo info{name, {}, value.paths, place, otherwise != nullptr, is_live(options)};
  for (const Tensor& t : value.leaves) info.types.push_back({t.dtype(), t.dims()});
  const Callee* found = otherwise;
  for (HookScope* s = current; s; s = s->next()) {  // the outermost that binds the name decides
    s->meet(info);
    const auto binding = std::ranges::find(s->bindings_, name, &HookBinding::name);
    if (binding != s->bindings_.end()) found = &binding->fn;
  }
  return found;
}

Tensors detail::tap_hook(const TapOptions& options, const Shown& value, const Shown* mapped,
                         const Callee* fn, const Place& place) {
  TapOptions chosen = options;
  chosen.live = is_live(options);
  return tap_as(SiteSpec::Kind::hook, chosen, value, mapped, fn, place);
}

}  // namespace postern
