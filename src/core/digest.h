// Digests for file names and checksums: not for security.
#pragma once
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace postern::internal {

inline constexpr std::uint64_t fnv_start = 0xcbf29ce484222325u;
/// Adds a byte to FNV-1a, 64 bits.
constexpr std::uint64_t fnv_1a(char byte, std::uint64_t hash) {
  return (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
}
inline std::uint64_t fnv_1a(std::string_view text, std::uint64_t hash = fnv_start) {
  for (const char c : text) hash = fnv_1a(c, hash);
  return hash;
}

/// Returns 32 hexadecimal digits: from two starting points. Side by side, since each step of one
/// waits for the step before: half the time of one after the other.
inline std::string digest(std::string_view text) {
  std::uint64_t first = fnv_start, second = 0x9e3779b97f4a7c15u;
  for (const char c : text) {
    first = fnv_1a(c, first);
    second = fnv_1a(c, second);
  }
  return fmt::format("{:016x}{:016x}", first, second);
}

/// Returns the text of a file: its head, which says what it is, then a line with the digest of the
/// body, then the body.
inline std::string sealed(std::string_view head, std::string_view body) {
  return fmt::format("{}{}\n{}", head, digest(body), body);
}
/// Returns the body of such a text behind a head of so many bytes; none: it was changed or cut.
inline std::optional<std::string_view> unsealed(std::string_view text, std::size_t head) {
  constexpr std::size_t digits = 32;
  if (text.size() <= head + digits || text[head + digits] != '\n') return {};
  const std::string_view body = text.substr(head + digits + 1);
  if (text.substr(head, digits) != digest(body)) return {};
  return body;
}

}  // namespace postern::internal
