// Calls that several devices make with the same operands, of which one enters the function.
#pragma once
#include <postern/detail/function.h>

#include <cstdint>

#include "guest/guest.h"

namespace postern::internal::guest {

/// Makes the call at `place` in the frame's run, which `devices` devices make, once: the first of
/// them does by enter(), and the others wait for it and get its results, or what it threw. They
/// wait for what runs, never for a device that is still to come: XLA may have no thread for it
/// before they go on. Throws Error, and enters nothing, where the run has failed on another device.
void meet(const void* place, const XLA_FFI_CallFrame* frame, int device, std::int64_t devices,
          const Home& home, detail::FunctionRef<void()> enter);

/// Says that the run fails on a device, which may not come to where the others meet.
void note_failed(std::int64_t run);

/// Forgets what came of calls at a place that is gone.
void forget_place(const void* place);

}  // namespace postern::internal::guest
