// Asynchronous taps: copies in a queue, which delivers them in order.
#include "host/queue.h"

#include "host/enter.h"

namespace postern::internal::host {

/// What has one order over all devices is delivered by one thread.
static bool put_in_queue(const Stage&, Invocation& i) noexcept {
  const bool one = i.site.one_order() && i.run.turns.several();
  try {
    return tap_queue(one ? i.run.turns.first() : i.device).push(i);
  } catch (...) {
    return keep_exhausted(i);
  }
}

const StageRow queue_stage = {.applies = [](const HostSite& s) { return s.spec->tap.async; },
                              .enter = put_in_queue};

}  // namespace postern::internal::host
