// Who is inside of functions that may be turned off.
#include "host/gate.h"

#include <atomic>

namespace postern::internal::host {

constinit thread_local Gate::Entry* Gate::innermost = nullptr;

std::uint64_t Gate::next() {
  static std::atomic<std::uint64_t> count{0};
  return ++count;
}

Gate::Entry::Entry(Gate& gate) : gate_(gate), outer_(innermost) {
  std::scoped_lock lock(gate.guard_);
  open_ = !gate.closed_;
  gate.inside_ += open_;
  if (open_) innermost = this;
}

Gate::Entry::~Entry() {
  if (!open_) return;
  innermost = outer_;
  std::scoped_lock lock(gate_.guard_);
  if (--gate_.inside_ == 0) gate_.left_.notify_all();
}

void Gate::close(bool waits) noexcept try {
  std::unique_lock lock(guard_);
  closed_ = true;
  if (!waits || inside_ == 0) return;
  lock.unlock();
  const Wait wait(RunName{.gate = number_});  // for who is inside
  lock.lock();
  left_.wait(lock, [&] { return inside_ == 0; });
} catch (...) {  // Wait: this thread is inside, or is waited for there, so it must not wait
}

void Gate::add_surrounding(std::vector<RunName>& names) {
  for (const Entry* entry = innermost; entry; entry = entry->outer_)
    names.push_back({.gate = entry->gate_.number_});
}

}  // namespace postern::internal::host
