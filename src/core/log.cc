// Log lines.
#include "core/log.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>

#include "core/lines.h"
#include "core/mutex.h"
#include "core/text.h"

namespace postern::internal {

/// Returns which of `words` is the first in the text, whose words stand between commas or blanks;
/// the end of `words` where none is there.
static const std::string_view* first_of(std::span<const std::string_view> words,
                                        std::string_view text) {
  auto found = words.end();
  while (!text.empty() && found == words.end()) {
    const std::string_view word = text.substr(0, text.find_first_of(", "));
    found = std::ranges::find(words, word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return std::to_address(found);
}

LogLevel log_level_in(std::string_view words) {
  static constexpr std::string_view levels[] = {"off", "warning", "info", "debug"};
  const std::string_view* const found = first_of(levels, words);
  if (found == std::end(levels)) return LogLevel::warning;
  return static_cast<LogLevel>(found - levels);
}

LogLevel log_level() {
  static const LogLevel level = log_level_in(text_or(std::getenv("POSTERN_LOG"), ""));
  return level;
}

bool log_has(std::string_view word) {
  return first_of({&word, 1}, text_or(std::getenv("POSTERN_LOG"), "")) == &word;
}

void log_line(std::string_view text) {
  std::string line = "postern: ";
  line += printable(text);
  lines::add("log", line);
  line += '\n';
  // One write, so that lines of several threads stay whole.
  [[maybe_unused]] const auto written = ::write(2, line.data(), line.size());
}

void log_seldom(const std::string& text) {
  if (log_level() < LogLevel::warning) return;
  using Clock = std::chrono::steady_clock;
  struct Logged {
    Clock::time_point last;
    std::uint64_t held_back = 0;  // since then
  };
  constexpr std::size_t most_texts = 1024;
  static auto* const guard = new Mutex;
  static auto* const all = new std::map<std::string, Logged>;  // late functions may outlive statics
  std::unique_lock lock(*guard);
  const auto now = Clock::now();
  if (all->size() > most_texts) all->clear();
  const auto [known, is_new] = all->try_emplace(text, Logged{.last = now});
  Logged& logged = known->second;
  if (!is_new && now - logged.last < std::chrono::seconds(1)) {
    ++logged.held_back;
    return;
  }
  const std::uint64_t held_back = logged.held_back;
  logged = {.last = now};
  lock.unlock();
  log_line(held_back > 0 ? fmt::format("{} ({} more of these)", text, held_back) : text);
}

}  // namespace postern::internal
