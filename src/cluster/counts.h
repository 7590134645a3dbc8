// How far each process is with what all of them count: process 0 sees it while runs go on, without
// a rendezvous. In the machine's memory it costs two stores, else a message that nobody waits for.
#pragma once
#include <postern/detail/api.h>

#include <cstdint>
#include <vector>

namespace postern::internal::clusters {

/// Tells that this process is at `done` of it. `what` is a number that all processes have for it,
/// not 0. Nothing where the process is alone.
POSTERN_API void say_count(std::uint64_t what, std::int64_t done) noexcept;

/// Returns on process 0 what each process said last of it, by rank; 0: nothing yet. Only the last
/// few things that a process counts are kept.
POSTERN_API std::vector<std::int64_t> counts_of(std::uint64_t what);

}  // namespace postern::internal::clusters
