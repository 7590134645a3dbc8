// The memory that the process holds.
#pragma once
#include <unistd.h>

#include <fstream>

namespace postern::test {

inline long resident_kib() {
  std::ifstream in("/proc/self/statm");
  long pages = 0;
  in >> pages >> pages;
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool counts_memory = false;  // a sanitizer's own memory counts
#else
inline constexpr bool counts_memory = true;
#endif

}  // namespace postern::test
