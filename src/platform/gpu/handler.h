// The FFI targets of Postern's programs on GPUs.
#pragma once
#include "guest/guest.h"
#include "pjrt/plugin.h"
#include "platform/gpu/driver.h"

namespace postern::internal::gpu {

/// Makes the targets known to XLA, of the plug-in with this number, under its name of the platform
/// whose driver this is; of one driver in a process.
void register_handlers(const pjrt::Plugin& plugin, int number, const Driver& driver,
                       std::string_view xla_platform);

/// Returns what another XLA registers for its programs on the platform whose driver this is; of one
/// driver in a process.
guest::Handlers guest_handlers(const Driver& driver, std::string_view platform);

/// Makes programs on the CPU call back as those on a GPU do, by these functions; null: they do not.
/// For tests, before the first operation.
void stand_in(const Driver* driver);
const Driver* stood_in();

}  // namespace postern::internal::gpu
