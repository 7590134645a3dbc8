// Log lines.
#include "core/log.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "core/lines.h"
#include "core/text.h"

namespace postern::internal {

LogLevel log_level_in(std::string_view words) {
  while (!words.empty()) {
    const std::string_view word = words.substr(0, words.find_first_of(", "));
    if (word == "off") return LogLevel::off;
    if (word == "warning") return LogLevel::warning;
    if (word == "info") return LogLevel::info;
    if (word == "debug") return LogLevel::debug;
    words.remove_prefix(std::min(words.size(), word.size() + 1));
  }
  return LogLevel::warning;
}

LogLevel log_level() {
  static const LogLevel level = log_level_in(text_or(std::getenv("POSTERN_LOG"), ""));
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
