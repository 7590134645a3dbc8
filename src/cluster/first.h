// What process 0 learns of all processes, outside of any program.
#pragma once
#include <postern/detail/api.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace postern::internal::clusters {

/// Tells that this process is at `done` of something that all of them count: process 0 sees it
/// while runs go on, without a rendezvous. In the machine's memory it costs two stores, else a
/// message that nobody waits for. `what` is a number that all processes have for it, not 0. Nothing
/// where the process is alone.
POSTERN_API void say_count(std::uint64_t what, std::int64_t done) noexcept;

/// Returns on process 0 what each process said last of it, by rank; 0: nothing yet. Only the last
/// few things that a process counts are kept.
POSTERN_API std::vector<std::int64_t> counts_of(std::uint64_t what);

/// Returns the bytes of each process by rank, on process 0; nothing on the others. It counts as a
/// run over processes, so all of them call it, at the same place among their runs. Throws Error:
/// `who` did not come within the limit, another process failed, or another run of this one is not
/// over.
POSTERN_API std::vector<std::string> gather_on_first(const std::string& who,
                                                     const std::string& mine,
                                                     std::chrono::milliseconds limit);

}  // namespace postern::internal::clusters
