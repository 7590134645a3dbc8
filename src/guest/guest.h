// Host functions for programs that are not ours: custom calls of another XLA in this process, such
// as JAX's.
//
// Each call is a run of one site of its own, and what holds for sites holds for it: types are
// checked, functions have time limits, asynchronous taps go through the queue. The attributes that
// a call may have are those of guest/call_attributes.
#pragma once
#include <cstdint>
#include <exception>

struct XLA_FFI_CallFrame;
struct XLA_FFI_Error;

namespace postern::internal::guest {

/// Handles the stage "instantiate" of custom calls with api_version 4: makes the state that belongs
/// to a call of a loaded program. Optional: without it the call is looked up at each invocation.
XLA_FFI_Error* handle_instantiate(XLA_FFI_CallFrame* frame);
/// Handles the stage "execute".
XLA_FFI_Error* handle_call(XLA_FFI_CallFrame* frame);

/// Returns the XLA_FFI_TypeId and XLA_FFI_TypeInfo of that state, for that XLA to register before
/// the handlers.
void* state_type_id();
void* state_type_info();

/// Returns the device whose guest's program waits for the calling thread, the innermost one; -1
/// where none does: outside of functions, and in those of asynchronous taps; `several_devices`
/// where all that the program runs on do.
int waiting_device();
inline constexpr int several_devices = -2;

/// Returns how many calls the calling thread has made.
std::uint64_t calls_made();

/// Returns the failure of that number; null when it is too long ago: the last 256 are kept, and of
/// these the last 16 with their causes, which hold whatever an exception's frames do. A failure's
/// number stands in the text of XLA's error: "[postern failure 7]".
std::exception_ptr failure(std::uint64_t number);

}  // namespace postern::internal::guest
