// Digests for file names and checksums: not for security.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace postern::internal {

/// FNV-1a, 64 bits.
inline std::uint64_t fnv_1a(std::string_view text, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

/// 32 hexadecimal digits: from two starting points.
inline std::string digest(std::string_view text) {
  return fmt::format("{:016x}{:016x}", fnv_1a(text), fnv_1a(text, 0x9e3779b97f4a7c15u));
}

}  // namespace postern::internal
