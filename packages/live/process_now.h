// The process itself, as the page shows it.
#pragma once
#include <cstdint>

#include "listen/shown.h"
#include "spi.h"

namespace postern::internal::live {

struct ProcessNow : host::ThisProcess {
  long pid = 0;
  double seconds = 0;        // since it began
  std::uint64_t memory = 0;  // bytes that are in memory
  int threads = 0;
};
ProcessNow process_now();

}  // namespace postern::internal::live
