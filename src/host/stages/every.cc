// Of a place's invocations on a device every so many go on, and of all those the first so many.
#include <algorithm>

#include "host/enter.h"
#include "host/stage.h"

namespace postern::internal::host {

/// Counts one of a device, and returns how many came there before it.
static std::int64_t number_of(SiteCounts& counts, std::size_t device) {
  const std::scoped_lock lock(counts.guard);
  if (counts.firings.size() <= device) counts.firings.resize(device + 1);
  return counts.firings[device]++;
}

static bool enter_every(const Stage& stage, Invocation& i) noexcept try {
  const SiteTap& tap = i.site.spec->tap;
  const auto device = size_of(std::max(i.device, 0));  // of some XLA does not say
  return number_of(*tap.counts, device) % tap.every != 0 || stage.next->enter(i);
} catch (...) {
  return keep_exhausted(i);
}

static bool enter_until(const Stage& stage, Invocation& i) noexcept {
  const SiteTap& tap = i.site.spec->tap;
  const auto before = static_cast<std::int64_t>(tap.counts->shown.fetch_add(1));
  return before >= tap.until || stage.next->enter(i);
}

const StageRow every_stage = {.applies = [](const HostSite& s) { return s.spec->tap.every != 1; },
                              .enter = enter_every};
const StageRow until_stage = {.applies = [](const HostSite& s) { return s.spec->tap.until != 0; },
                              .enter = enter_until};

}  // namespace postern::internal::host
