// Digests for file names and checksums: not for security.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace postern {

/// 32 hexadecimal digits: FNV-1a, 64 bits, from two starting points.
inline std::string digest(std::string_view text) {
  auto fnv = [text](std::uint64_t hash) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return hash;
  };
  return fmt::format("{:016x}{:016x}", fnv(0xcbf29ce484222325u), fnv(0x9e3779b97f4a7c15u));
}

}  // namespace postern
