// Where the part of an array that a listener is shown on one device lies in the whole.
#pragma once
#include <postern/detail/api.h>
#include <postern/type.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace postern::internal::host {

struct PartShown {
  std::vector<std::pair<std::string, Type>> wholes;
  std::vector<Dims> begins;
  std::size_t givers = 1;   // devices of this process that give something
  bool gives = true;        // this one does
  bool repeats = false;     // another device before it, perhaps of another process, shows this part
  bool on_several = false;  // processes
  std::uint64_t job_run =
      0;  // on several: the run's number there, 0 where it is none of all of them
};

/// Returns that of the leaves, by name, which the invocation that the calling thread is in shows on
/// a device. The site says how its first leaf is cut, and with TapOptions::partitioned all are cut
/// like it. Throws Error(failed_precondition), in the name of `who`, where their places are not
/// known.
POSTERN_API PartShown part_shown(const char* who, int device,
                                 std::vector<std::pair<std::string, Type>> leaves);

}  // namespace postern::internal::host
