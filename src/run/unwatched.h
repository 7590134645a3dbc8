// Work of XLA that goes on after we started it: runs without calls, and copies between devices.
#pragma once
#include <memory>
#include <string_view>

#include "host/timeline.h"
#include "pjrt/event.h"

namespace postern::run {

/// Barriers and the end of the process wait for `complete`, and the timeline gets an event from
/// `start` to then.
void follow(const pjrt::Event& complete, host::timeline::Kind kind, std::string_view name,
            int device, host::timeline::Clock::time_point start);

/// Lets go of `what` when `complete` says so.
void hold_until(const pjrt::Event& complete, std::shared_ptr<const void> what);

}  // namespace postern::run
