// A handler in the child notes that it was forked off; what needs the runtime then refuses.
#include "core/fork.h"

#include <postern/error.h>
#include <pthread.h>

namespace postern::internal {

constinit std::atomic<bool> was_forked{false};

static std::atomic<bool> is_in_use{false};

void throw_forked() {
  throw Error(ErrorCode::failed_precondition,
              "this process was forked off one that had used Postern: the threads of its runtime "
              "are not here, so nothing can run or be waited for; fork before the first "
              "operation, or start a new program (exec; in Python multiprocessing's 'spawn')");
}

void watch_forks(bool in_use) {
  is_in_use = in_use;
  // In the child, of which a child of its own is one, too.
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { was_forked = was_forked || is_in_use.load(); });
}

}  // namespace postern::internal
