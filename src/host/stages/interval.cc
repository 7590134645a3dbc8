// Of the invocations of a place those go on that come long enough after the last that did.
#include "host/stage.h"

namespace postern::internal::host {

static bool enter_if_due(const Stage& stage, Invocation& i) noexcept {
  using std::chrono::nanoseconds;
  const std::int64_t now = nanoseconds(RunState::Clock::now().time_since_epoch()).count();
  std::atomic<std::int64_t>& last = i.site.spec->tap.counts->last;
  std::int64_t before = last.load(std::memory_order_relaxed);
  const bool is_due = before == 0 || now - before >= stage.number;
  if (!is_due || !last.compare_exchange_strong(before, now)) return true;  // or another goes on
  return stage.next->enter(i);
}

const StageRow interval_stage = {.option = "interval", .enter = enter_if_due};

}  // namespace postern::internal::host
