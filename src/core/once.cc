// Who does what is done once, and who waits for it.
#include "core/once.h"

#include <postern/error.h>

#include "core/mutex.h"
#include "core/never_destroyed.h"

namespace postern::internal {

namespace {

/// One lock for all of them: they are few, and a circle of waits is seen through it.
struct Doing {
  Mutex guard;
  Condition changed;
};
Doing& doing() { return never_destroyed<Doing>(); }

}  // namespace

constinit thread_local Once::Thread Once::this_thread;

// Before it waits it goes from who does this to what that thread waits for, who does that, and so
// on: where that comes back to this thread, all of them would wait for ever.
bool Once::begin() {
  std::unique_lock lock(doing().guard);
  while (doer_) {
    for (const Once* once = this; once && once->doer_; once = once->doer_->waits_for)
      if (once->doer_ == &this_thread)
        throw Error(ErrorCode::reentry,
                    "what a program needs is made of itself: a function that is asked while it is "
                    "made calls it, or waits for a thread that does");
    this_thread.waits_for = this;
    doing().changed.wait(lock);
    this_thread.waits_for = nullptr;
  }
  if (done_.load(std::memory_order_relaxed)) return false;
  doer_ = &this_thread;
  return true;
}

void Once::end(bool done) {
  const std::scoped_lock lock(doing().guard);
  doer_ = nullptr;
  done_.store(done, std::memory_order_release);
  doing().changed.notify_all();
}

}  // namespace postern::internal
