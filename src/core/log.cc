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
#include <utility>

#include "core/lines.h"
#include "core/mutex.h"
#include "core/text.h"

namespace postern::internal {

namespace {

/// The first of these words that the text has, between commas or blanks; else the end.
const std::string_view* first_of(std::span<const std::string_view> words, std::string_view text) {
  auto found = words.end();
  while (!text.empty() && found == words.end()) {
    const std::string_view word = text.substr(0, text.find_first_of(", "));
    found = std::ranges::find(words, word);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
  }
  return std::to_address(found);
}

}  // namespace

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
  struct Said {
    Clock::time_point at;
    std::uint64_t more = 0;
  };
  constexpr std::size_t most = 1024;
  static auto* const guard = new Mutex;
  static auto* const said = new std::map<std::string, Said>;  // late functions may outlive statics
  std::unique_lock lock(*guard);
  const auto now = Clock::now();
  if (said->size() > most) said->clear();
  const auto [before, is_new] = said->try_emplace(text, Said{now});
  if (!is_new && now - before->second.at < std::chrono::seconds(1))
    return static_cast<void>(++before->second.more);
  const std::uint64_t more = std::exchange(before->second, {now}).more;
  lock.unlock();
  log_line(more > 0 ? fmt::format("{} ({} more of these)", text, more) : text);
}

}  // namespace postern::internal
