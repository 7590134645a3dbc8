// One line at a time on stderr, as loud as POSTERN_LOG asks: off, warning (default), info, debug.
// Other words beside it: xla, for the plug-in (`pjrt/plugin`), and compiles (`run/misses`).
#pragma once
#include <fmt/format.h>
#include <postern/detail/api.h>

#include <string>
#include <string_view>

namespace postern::internal {

enum class LogLevel { off, warning, info, debug };

/// Returns the first level among words between commas or blanks; unknown words say nothing.
LogLevel log_level_in(std::string_view words);
/// Returns the level of POSTERN_LOG, read once.
POSTERN_API LogLevel log_level();
/// Returns whether POSTERN_LOG has that word.
bool log_has(std::string_view word);
POSTERN_API void log_line(std::string_view text);
/// Logs warnings that may come at every step: each once a second, with how many more there were.
void log_seldom(const std::string& text);

template <class... A>
void log(LogLevel level, fmt::format_string<A...> format, A&&... args) {
  if (level <= log_level()) log_line(fmt::format(format, std::forward<A>(args)...));
}

}  // namespace postern::internal
