// The live page, which is a package: how it is opened, and what it is told of programs.
#pragma once
#include <postern/serve.h>

#include <cstdint>
#include <optional>
#include <string>

namespace postern::internal::live {

/// What the package does.
struct Page {
  Served (*serve)(const ServeOptions& options);
  void (*stop)();                      // the page
  void (*listen_for_attach)();         // until the end of the process
  int (*attach_socket)(long process);  // as detail::attach_socket
};
/// Takes what the package says while it is loaded. `page` lives as long as the process.
POSTERN_API void set_page(const Page& page);

/// Does what POSTERN_SERVE and POSTERN_ATTACH ask for. What keeps it from that is a warning.
void start_from_environment() noexcept;

/// Returns a known program's operations; none when it is gone.
POSTERN_API std::optional<std::string> program_text(std::uint64_t number);

}  // namespace postern::internal::live
