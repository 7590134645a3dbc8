// Calls that overlap: one site starts the function on copies, another waits for what it gives.
#include "host/enter.h"
#include "host/pending.h"

namespace postern::internal::host {

static bool start_or_wait(const Stage&, Invocation& i) noexcept {
  try {
    PendingCalls& calls = i.run.calls();
    if (i.site.spec->call.role == SiteCall::Role::wait)
      return calls.wait(i.run, i.site, i.data, i.device);
    calls.start(i);
    return true;
  } catch (...) {
    return keep_exhausted(i);
  }
}

const StageRow overlap_stage = {
    .applies = [](const HostSite& s) { return s.spec->call.role != SiteCall::Role::whole; },
    .enter = start_or_wait};

}  // namespace postern::internal::host
