// Work of XLA that goes on after we started it: runs without calls, and copies between devices.
#pragma once
#include <memory>
#include <string_view>

#include "host/timeline.h"
#include "pjrt/event.h"

namespace postern::internal::run {

/// Makes barriers and the end of the process wait for `complete`, and the timeline gets an event
/// from `start` to then. `keep` is let go then, before they go on.
void follow(const pjrt::Event& complete, host::timeline::Kind kind, std::string_view name,
            int device, host::timeline::Clock::time_point start,
            std::shared_ptr<const void> keep = {});

}  // namespace postern::internal::run
