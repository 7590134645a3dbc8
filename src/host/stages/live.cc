// Live hooks: the program's own listener if it has one, which an observer takes for its tap, then
// those that were turned on, in their order, each in the way that it was asked for.
#include "host/live.h"

#include "host/stage.h"

namespace postern::internal::host {

static bool enter_listener(const Invocation& i,
                           const std::shared_ptr<const ListenerSite>& listener) {
  Invocation of{i.run, *listener, i.data, i.device, i.element, i.mask};
  of.counted = true;
  of.listener = &listener;
  return listener->stages->enter(of);
}

static bool enter_listeners(const Stage& stage, Invocation& i) noexcept {
  Switch& hook = *i.site.spec->tap.live;
  if (!i.site.enabled) {  // it has a listener of its own
    const auto changed = i.run.observer ? nullptr : changed_own(i.site);
    if (!(changed ? enter_listener(i, changed) : stage.next->enter(i))) return false;
  }
  const auto sites = sites_at(hook);
  if (!sites) return true;
  for (const auto& listener : *sites) {
    if (listener->is_spent()) continue;
    const bool goes_on = enter_listener(i, listener);
    if (listener->is_spent()) take_off(hook, listener->number, listener.get());
    if (goes_on) continue;
    for (const auto& other : *sites)  // who was asked to end the run that passes next
      if (listener->ends_run_there && other->ends_run_there) take_off(hook, other->number);
    return false;
  }
  return true;
}

const StageRow live_stage = {
    .applies = [](const HostSite& s) { return s.spec->tap.live != nullptr; },
    .enter = enter_listeners,
    .sees_leaves = true};

}  // namespace postern::internal::host
