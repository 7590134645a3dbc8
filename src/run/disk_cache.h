// Compiled executables on disk, by program, plug-in and version.
#pragma once
#include <string>

#include "pjrt/client.h"

namespace postern::internal::run {

/// The executable of this StableHLO text with these options: from the cache folder
/// (Config::cache_dir) when a valid file is there, else compiled, and kept there.
/// Long programs (lower/parts) are compiled in one piece where the platform needs that.
pjrt::Executable compile_or_load(const pjrt::Client& client, const std::string& in_parts,
                                 pjrt::CompileOptions options);

}  // namespace postern::internal::run
