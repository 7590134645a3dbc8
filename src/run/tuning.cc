// Compilers that try code on the device, and runs that are in their calls.
#include "run/tuning.h"

#include "host/timeline.h"

namespace postern::internal::run {

static bool may_be_in_calls(const Lane& lane) {
  const auto holder = lane.holder.load();
  if (!lane.taken.load()) return false;
  return holder == Lane::Holder::single || holder == Lane::Holder::calling_group;
}

bool Runtime::try_begin_tuning() {
  // Who takes a lane looks for this afterwards, see take(): one of the two sees the other.
  tuning_.fetch_add(1);
  for (std::size_t i = 0, end = lane_count(); i < end; ++i)
    if (may_be_in_calls(*lanes_[i])) {
      end_tuning();
      return false;
    }
  return true;
}

void Runtime::end_tuning() {
  const std::scoped_lock lock(guard_);
  if (tuning_.fetch_sub(1) == 1) freed_.notify_all();
}

/// Also of runs inside of others' calls: their lanes keep compilers from tuning, at most one is
/// just being refused.
void Runtime::wait_for_tuning() {
  if (tuning_.load() == 0) [[likely]]
    return;
  const host::timeline::Span span(host::timeline::Kind::wait, "the compiler to try code");
  std::unique_lock lock(guard_);
  freed_.wait(lock, [&] { return tuning_.load() == 0; });
}

}  // namespace postern::internal::run
