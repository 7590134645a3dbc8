// Invocations of programs on a GPU.
#pragma once
#include <span>

#include "host/run_state.h"
#include "platform/gpu/staging.h"

namespace postern::internal::gpu {

/// Has pinned memory ready for an invocation of each of these sites on the device of that ordinal.
/// What it cannot get is taken as invocations come.
void reserve(const Driver& driver, int ordinal, std::span<const host::HostSite> sites) noexcept;

/// Enters a site's function for the device buffers of one execution (operands, mask, results),
/// which work queued on `stream` makes and reads. Operands are copied to pinned memory, the stream
/// is waited for once, results are copied back without another wait. An asynchronous tap only
/// queues a copy and an event. False when the run must not go on; it may leave zeros.
bool enter_site(const Driver& driver, host::RunState& run, const host::HostSite& site,
                void* const* buffers, int device, void* stream) noexcept;

}  // namespace postern::internal::gpu
