// Order between programs: the ordered effects of what a thread runs come one program after the
// other, as far as their sites promise it.
#pragma once
#include <cstdint>
#include <span>

#include "core/program.h"
#include "core/site_spec.h"
#include "run/runtime.h"

namespace postern::internal::run {

/// Behind which earlier programs of its thread a program comes: none; those with ordered effects on
/// a device of its own; of those with ordered calls, all.
enum class Reach : std::uint8_t { none, device, all };
Reach reach_of(const SiteSpec& site);
Reach reach_of(const Program& program);

/// Waits until the runs that this thread began before and that come first have ended; without
/// devices, for any of them. A function that a run calls never waits so: that run might be one of
/// them.
void wait_for_earlier(Reach reach, std::span<const int> devices);
/// Notes that a run that this thread began is still under way when the thread goes on. `lane`: the
/// first of its lanes.
void note_under_way(Reach reach, std::span<const int> devices, const Lane& lane, std::uint64_t run);

}  // namespace postern::internal::run
