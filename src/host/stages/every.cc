// Of the invocations of a place every so many go on, and of those the first so many.
#include "host/stage.h"

namespace postern::internal::host {

/// Counts one, and returns how many came before it.
static std::int64_t number_of(std::atomic<std::uint64_t>& counted) {
  return static_cast<std::int64_t>(counted.fetch_add(1, std::memory_order_relaxed));
}

static bool enter_every(const Stage& stage, Invocation& i) noexcept {
  const SiteSpec& spec = *i.site.spec;
  const bool goes_on = number_of(spec.tap.counts->firings) % spec.tap.every == 0;
  return !goes_on || stage.next->enter(i);
}

static bool enter_until(const Stage& stage, Invocation& i) noexcept {
  const SiteSpec& spec = *i.site.spec;
  const bool goes_on = number_of(spec.tap.counts->shown) < spec.tap.until;
  return !goes_on || stage.next->enter(i);
}

const StageRow every_stage = {.applies = [](const HostSite& s) { return s.spec->tap.every != 1; },
                              .enter = enter_every};
const StageRow until_stage = {.applies = [](const HostSite& s) { return s.spec->tap.until != 0; },
                              .enter = enter_until};

}  // namespace postern::internal::host
