// Where a process listens for `postern attach PID`: a name of Linux's abstract sockets, which needs
// no file and goes with the process. Who connects and who listens see each other's user.
#pragma once
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace postern::internal::live {

/// Fills `address`; its size. Processes in other containers may have the same number, so the name
/// has that of the numbers' space too.
inline socklen_t attach_address(long process, sockaddr_un& address) {
  struct stat space {};
  const bool known = ::stat("/proc/self/ns/pid", &space) == 0;
  const std::string name =
      fmt::format("postern-{}-{}", known ? static_cast<unsigned long>(space.st_ino) : 0, process);
  address.sun_family = AF_UNIX;
  std::ranges::copy(name, address.sun_path + 1);  // behind a zero: abstract
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

}  // namespace postern::internal::live
