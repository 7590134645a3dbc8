// Compiled executables on disk, by program, plug-in and version.
#pragma once
#include <string>

#include "run/backend.h"

namespace postern::internal::run {

/// Returns the executable of this StableHLO text with these options, for a client of the platform:
/// from the cache folder (Config::cache_dir) when a valid file is there, else compiled, and kept
/// there. `kept`: the options of the entry to look for, where that is made for other devices. Long
/// programs (lower/parts) are compiled in one piece where the platform needs that.
pjrt::Executable compile_or_load(const Backend& backend, std::size_t client,
                                 const std::string& in_parts, pjrt::CompileOptions options,
                                 const pjrt::CompileOptions* kept = nullptr);

}  // namespace postern::internal::run
