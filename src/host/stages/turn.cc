// Turns: with one order over all devices of a run each waits for its own.
#include "host/turns.h"

#include <utility>

#include "host/stage.h"

namespace postern::internal::host {

void Turns::start(std::vector<int> order) {
  order_ = std::move(order);
  next_ = 0;
}

void Turns::wait(int device, const std::atomic<bool>& stop, Clock::time_point limit) {
  std::unique_lock lock(guard_);
  auto mine = [&] { return order_[next_] == device || stop.load(); };
  if (limit == Clock::time_point::max())
    turned_.wait(lock, mine);
  else
    turned_.wait_until(lock, limit, mine);
}

void Turns::pass() {
  const std::scoped_lock lock(guard_);
  next_ = (next_ + 1) % order_.size();
  turned_.notify_all();
}

void Turns::wake() {
  const std::scoped_lock lock(guard_);
  turned_.notify_all();
}

static bool enter_in_turn(const Stage& stage, Invocation& i) noexcept {
  Turns& turns = i.run.turns;
  if (!turns.several()) return stage.next->enter(i);
  turns.wait(i.device, i.run.stop, i.run.deadline);
  const bool ok = stage.next->enter(i);
  turns.pass();
  return ok;
}

const StageRow turn_stage = {.applies = [](const HostSite& s) { return s.one_order(); },
                             .enter = enter_in_turn};

}  // namespace postern::internal::host
