// Turns: with one order over all devices of a run each waits for its own.
#include "host/turns.h"

#include <utility>

#include "host/stage.h"

namespace postern::internal::host {

void Turns::start(std::vector<int> order) {
  order_ = std::move(order);
  next_ = 0;
}

void Turns::wait(int device, const detail::StopState& run,
                 std::chrono::steady_clock::time_point limit) {
  std::unique_lock lock(guard_);
  const auto mine = [&] { return order_[next_] == device; };
  wait_at(turned_, lock, &run, mine, limit);
}

void Turns::pass() {
  const std::scoped_lock lock(guard_);
  next_ = (next_ + 1) % order_.size();
  turned_.notify_all();
}

static bool enter_in_turn(const Stage& stage, Invocation& i) noexcept {
  Turns& turns = i.run.turns;
  if (!turns.several()) return stage.next->enter(i);
  turns.wait(i.device, i.run, i.run.deadline);
  const bool ok = stage.next->enter(i);
  turns.pass();
  return ok;
}

const StageRow turn_stage = {.applies = [](const HostSite& s) { return s.one_order(); },
                             .enter = enter_in_turn};

}  // namespace postern::internal::host
