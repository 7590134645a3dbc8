// What the thread sanitizer cannot see: PJRT's event of a run comes after its calls, an order that
// XLA makes.
#pragma once

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace postern::internal::host {

/// Tells that a call of the run is over, and later: the run is.
inline void call_is_over([[maybe_unused]] void* run) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(run);
#endif
}
inline void run_is_over([[maybe_unused]] void* run) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(run);
#endif
}

}  // namespace postern::internal::host
