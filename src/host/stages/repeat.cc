// Repeats: a tap shows equal parts once, and only on the process that it is for.
#include <algorithm>

#include "host/stage.h"

namespace postern::internal::host {

const StageRow repeat_stage = {
    .applies =
        [](const HostSite& s) {
          return s.here.repeats || std::ranges::any_of(s.positions, &HostSite::Position::repeats);
        },
    .enter =
        [](const Stage& stage, Invocation& i) noexcept {
          return i.site.position(i.device).repeats || stage.next->enter(i);
        }};

}  // namespace postern::internal::host
