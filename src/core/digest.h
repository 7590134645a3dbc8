// Digests for file names and checksums: not for security.
#pragma once
#include <fmt/format.h>

#include <cstdint>
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

}  // namespace postern::internal
