// A line in the log when the function takes longer than it should.
#include "core/log.h"
#include "host/enter.h"

namespace postern::internal::host {

void warn_if_slow(const SiteSpec& spec, std::chrono::nanoseconds took) {
  if (spec.call.warn_after.count() > 0 && took > spec.call.warn_after)
    log(LogLevel::warning, "{} took {:g} ms", describe(spec),
        std::chrono::duration<double, std::milli>(took).count());
}

const StageRow warn_after_stage = {
    .applies = [](const HostSite& s) { return s.spec->call.warn_after.count() > 0; },
    .enter =
        [](const Stage& stage, Invocation& i) noexcept {
          const auto start = RunState::Clock::now();
          const bool ok = stage.next->enter(i);
          warn_if_slow(*i.site.spec, RunState::Clock::now() - start);
          return ok;
        }};

}  // namespace postern::internal::host
