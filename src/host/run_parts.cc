// Parts of a run, and the runs around one.
#include "host/queue.h"
#include "host/run_end.h"
#include "host/run_state.h"

namespace postern::internal::host {

RunState::Part::Part(RunState& whole, std::shared_ptr<RunState> part)
    : whole_(whole), part_(std::move(part)) {
  whole.hand_on(*part_);
  part_->outermost = whole.outermost.expired() ? whole.self() : whole.outermost.lock();
  {
    std::scoped_lock lock(whole.parts_guard_);
    whole.parts_.push_back(part_);
  }
  whole.tell_parts();
}

RunState::Part::~Part() {
  {
    std::scoped_lock lock(whole_.parts_guard_);
    std::erase(whole_.parts_, part_);
  }
  if (part_->outcome() == Outcome::stopped) whole_.request(Outcome::stopped);
}

void RunState::hand_on(RunState& part) const {
  part.context = context;
  part.sink = sink;
  part.floats = floats;
  part.deadline = deadline;
  std::scoped_lock lock(guard_);  // a function that is late may still begin one
  part.own_functions = own_functions;
}

void RunState::tell_parts() {
  std::unique_lock lock(parts_guard_);
  if (parts_.empty()) return;  // with parts it has begun, and `around` is known
  lock.unlock();
  const bool is_awaited = must_not_wait();  // not under the lock: a run may go with it
  lock.lock();
  for (const auto& part : parts_) {
    if (stop.load()) part->request(Outcome::cancelled);
    if (!is_awaited) continue;
    part->never_wait();
    part->tell_parts();
  }
}

void RunState::begins_here() {
  if (in_delivery()) never_waits = true;
  around = run_around();
}

std::weak_ptr<RunState> run_around() {
  const Nesting* n = nesting();
  while (n && !n->run && n->outer) n = n->outer;
  if (!n) return {};
  return n->run ? n->run->self() : static_cast<const Beginning*>(n)->around;
}

void RunState::never_wait() {
  never_waits = true;
  look_for_room();
}

void RunState::refuse_own_wait() {
  // A listener of an asynchronous tap that waits for a run must not keep it waiting for room in the
  // listener's own queue.
  if (in_delivery()) {
    never_wait();
    tell_parts();
  }
  static_cast<void>(Wait(name()));  // which throws: it need not live as long as the wait
}

}  // namespace postern::internal::host
