// Images as PNG files.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace postern::internal::host {

/// Encodes samples of 8 bits, rows from the top, `channels` 1 (grey), 3 (RGB) or 4 (RGBA) beside
/// each other.
std::string png(std::int64_t width, std::int64_t height, int channels, std::string_view samples);

}  // namespace postern::internal::host
