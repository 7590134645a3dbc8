// What each process has, brought to process 0 outside of any program.
#pragma once
#include <postern/detail/api.h>

#include <chrono>
#include <string>
#include <vector>

namespace postern::internal::clusters {

/// Returns the bytes of each process by rank, on process 0; nothing on the others. It counts as a
/// run over processes, so all of them call it, at the same place among their runs. Throws Error:
/// `who` did not come within the limit, another process failed, or another run of this one is not
/// over.
POSTERN_API std::vector<std::string> gather_on_first(const std::string& who,
                                                     const std::string& mine,
                                                     std::chrono::milliseconds limit);

}  // namespace postern::internal::clusters
