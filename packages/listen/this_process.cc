// What the system says of the process.
#include "this_process.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "spi.h"

namespace postern::internal::host {

ThisProcess this_process() {
  ThisProcess out;
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) == 0) out.host = name;
  std::string words = read_if_there("/proc/self/cmdline");  // each ends with a zero
  if (!words.empty() && words.back() == '\0') words.pop_back();
  const std::size_t end = std::min(words.find('\0'), words.size());  // a path may have blanks
  out.program = std::filesystem::path(words.substr(0, end)).filename().string();
  out.arguments = words.substr(std::min(end + 1, words.size()));
  std::ranges::replace(out.arguments, '\0', ' ');
  out.version = POSTERN_VERSION;
  return out;
}

}  // namespace postern::internal::host
