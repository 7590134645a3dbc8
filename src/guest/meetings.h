// Calls that several devices make with the same operands, of which one enters the function.
#pragma once
#include <cstdint>
#include <exception>

struct XLA_FFI_CallFrame;

namespace postern::internal::guest {

/// Tells the devices that wait what came of the call at `place` in the frame's run: its results,
/// or `error`. `others`: how many they are. Waits for nobody.
void tell_others(const void* place, const XLA_FFI_CallFrame* frame, std::int64_t others,
                 const std::exception_ptr& error);

/// Waits until the leader has told, and copies its results. Throws what it told, and Error where
/// the run has failed elsewhere. Leaders wait for nobody, and have lower numbers than those that
/// wait for them, so that none waits for itself, in whatever order devices run programs.
void take_outcome(const void* place, const XLA_FFI_CallFrame* frame, int device);

/// Says that the run fails on a device: it may not come to where others wait for it.
void note_failed(std::int64_t run);

/// Forgets what was told at a place that is gone.
void forget_place(const void* place);

}  // namespace postern::internal::guest
