// Host functions for programs that are not ours: custom calls of another XLA in this process, such
// as JAX's.
//
// Each call is a run of one site of its own, and what holds for sites holds for it: types are
// checked, functions have time limits, asynchronous taps go through the queue. The attributes that
// a call may have are those of guest/call_attributes.
#pragma once
#include <cstdint>
#include <exception>
#include <string_view>

#include "pjrt/ffi_frame.h"

namespace postern::internal::host {
class RunState;
struct HostSite;
}  // namespace postern::internal::host

namespace postern::internal::guest {

/// A platform on which guests' programs run.
struct Home {
  using Frame = const XLA_FFI_CallFrame*;
  std::string_view platform;  // what users call it
  /// Enters a site's function for the buffers of an invocation, as host::enter_site does. Null:
  /// that does, since they are in the host's memory.
  bool (*enter)(host::RunState& run, const host::HostSite& site, void* const* buffers, int device,
                Frame frame) noexcept = nullptr;
  /// Copy what a call of this frame is given or gives, and wait for that. Throw Error.
  void (*to_host)(void* to, const void* from, std::size_t bytes, Frame) = copy;
  void (*to_device)(void* to, const void* from, std::size_t bytes, Frame) = copy;
  XLA_FFI_TypeId state = XLA_FFI_UNKNOWN_TYPE_ID;  // the XLA there has numbers of its own

  static void copy(void* to, const void* from, std::size_t bytes, Frame) {
    std::memcpy(to, from, bytes);
  }
};

/// Handles the stage "instantiate" of custom calls with api_version 4: makes the state that belongs
/// to a call of a loaded program. Optional: without it the call is looked up at each invocation.
XLA_FFI_Error* instantiate(XLA_FFI_CallFrame* frame, const Home& home);
/// Handles the stage "execute".
XLA_FFI_Error* execute(XLA_FFI_CallFrame* frame, const Home& home);

/// What another XLA registers: the type of the state, an XLA_FFI_TypeId and an XLA_FFI_TypeInfo,
/// then the handlers.
struct Handlers {
  XLA_FFI_Error* (*instantiate)(XLA_FFI_CallFrame*);
  XLA_FFI_Error* (*execute)(XLA_FFI_CallFrame*);
  void* type_id;
  void* type_info;
};
void* state_type_info();
template <Home& home>
Handlers handlers() {
  return {[](XLA_FFI_CallFrame* frame) { return instantiate(frame, home); },
          [](XLA_FFI_CallFrame* frame) { return execute(frame, home); }, &home.state,
          state_type_info()};
}

/// A device whose guest's program waits.
struct Waiting {
  const Home* home = nullptr;
  int device = -1;
};
inline constexpr int several_devices = -2;  // all that the program runs on
/// Returns the innermost one that waits for the calling thread; none outside of functions, and in
/// those of asynchronous taps.
Waiting waiting();

/// Returns how many calls the calling thread has made.
std::uint64_t calls_made();

/// Returns the failure of that number; null when it is too long ago: the last 256 are kept, and of
/// these the last 16 with their causes, which hold whatever an exception's frames do. A failure's
/// number stands in the text of XLA's error: "[postern failure 7]". 0: the oldest of a run of which
/// no failure has been asked for.
std::exception_ptr failure(std::uint64_t number);

}  // namespace postern::internal::guest
