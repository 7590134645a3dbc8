// Lines: the last lines that prints and the log wrote, kept for the live page while there is one.
#pragma once
#include <postern/detail/api.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::lines {

struct Line {
  std::uint64_t number;  // counted from 1
  const char* from;      // "print", "log"
  std::string text;      // may be cut
};

/// How many are kept, and of each how many bytes.
inline constexpr std::size_t most = 500, longest = 4096;

extern std::atomic<int> watched;  // by so many
POSTERN_API void watch(bool on);  // one more who does, or one less

/// Adds a line for who writes. While nobody watches it costs one load.
POSTERN_API void add_kept(const char* from, std::string_view text);
inline void add(const char* from, std::string_view text) {
  if (watched.load(std::memory_order_relaxed) > 0) [[unlikely]]
    add_kept(from, text);
}

/// Returns those that are kept of the lines after this one.
POSTERN_API std::vector<Line> after(std::uint64_t number);

}  // namespace postern::internal::lines
