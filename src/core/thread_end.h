// Threads that are ended from within: pthread_exit and cancellation unwind the stack by an
// exception that nobody may keep, and that does not get through XLA's frames.
#pragma once
#include <cxxabi.h>
#include <postern/error.h>
#include <pthread.h>

namespace postern::internal {

/// Defers the thread's cancellation while it lives: what is beneath could not be unwound.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

/// Makes the thread go on behind a handler of abi::__forced_unwind, in which it is called. The end
/// of the handler would abort the process, unless nothing is being handled; that stands in the
/// first field of the thread's exception state (Itanium C++ ABI, 2.2.2), and such exceptions are
/// never stacked.
inline void keep_thread_alive() noexcept {
  *reinterpret_cast<void**>(abi::__cxa_get_globals()) = nullptr;
}

inline constexpr const char* ended_its_thread =
    "it tried to end its thread (pthread_exit, or the thread was cancelled), which is not its own; "
    "the thread goes on, the run has failed";

/// Calls a function of the user's on a thread that is not its own. Returns false where it tried to
/// end that. (UBSan takes the handler's reference, for which there is no object, for one to null.)
template <class F>
__attribute__((no_sanitize("undefined"))) inline bool keeps_thread(const F& function) {
  try {
    function();
    return true;
  } catch (const abi::__forced_unwind&) {
    keep_thread_alive();
    return false;
  }
}

/// Calls it likewise. Throws Error(failed_precondition) in place of ending the thread.
template <class F>
void without_thread_end(const F& function) {
  if (!keeps_thread(function)) throw Error(ErrorCode::failed_precondition, ended_its_thread);
}

}  // namespace postern::internal
