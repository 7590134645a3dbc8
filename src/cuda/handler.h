// The FFI targets of Postern's programs on GPUs.
#pragma once
#include "cuda/driver.h"
#include "pjrt/plugin.h"

namespace postern::cuda {

/// Makes the targets known to XLA for platform CUDA. Throws PluginError where CUDA's driver cannot
/// be used.
void register_handlers(const pjrt::Plugin& plugin);

/// For tests, before the first operation: programs on the CPU call back as those on a GPU do, by
/// these functions. Null: they do not.
void stand_in(const Driver* driver);
bool has_stand_in();
/// The same handlers for platform Host.
void register_stand_in(const pjrt::Plugin& plugin);

}  // namespace postern::cuda
