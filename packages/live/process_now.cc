// What the kernel says of the process.
#include "process_now.h"

#include <unistd.h>

#include <ctime>
#include <sstream>
#include <vector>

namespace postern::internal::live {

ProcessNow process_now() {
  ProcessNow out{host::this_process()};
  out.pid = ::getpid();
  const std::string text = host::read_if_there("/proc/self/stat");
  std::string word;
  // The second field is a name in brackets, in which there may be anything.
  std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::vector<std::string> fields;
  while (rest >> word) fields.push_back(word);
  constexpr std::size_t threads = 17, begin = 19, pages = 21;  // from the third field on
  if (fields.size() <= pages) return out;
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  out.threads = std::atoi(fields[threads].c_str());
  out.seconds = static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9 -
                parse_number(fields[begin]) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  out.memory = std::strtoull(fields[pages].c_str(), nullptr, 10) *
               static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return out;
}

}  // namespace postern::internal::live
