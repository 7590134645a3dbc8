// Log lines.
#include "core/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "core/lines.h"
#include "core/text.h"

namespace postern::internal {

LogLevel log_level() {
  static const LogLevel level = [] {
    const std::string_view word = text_or(std::getenv("POSTERN_LOG"), "");
    if (word == "off") return LogLevel::off;
    if (word == "info") return LogLevel::info;
    if (word == "debug") return LogLevel::debug;
    return LogLevel::warning;
  }();
  return level;
}

void log_line(std::string_view text) {
  std::string line = "postern: ";
  line += printable(text);
  lines::add("log", line);
  line += '\n';
  // One write, so that lines of several threads stay whole.
  [[maybe_unused]] const auto written = ::write(2, line.data(), line.size());
}

}  // namespace postern::internal
