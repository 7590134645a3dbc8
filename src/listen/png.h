// Images as PNG files.
#pragma once
#include <postern/view.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace postern::internal::host {

/// Encodes samples of 8 bits, rows from the top, `channels` 1 (grey), 3 (RGB) or 4 (RGBA) beside
/// each other.
std::string png(std::int64_t width, std::int64_t height, int channels, std::string_view samples);

/// Images of one size, as files.
struct Images {
  std::int64_t width, height;
  std::vector<std::string> files;
};

/// Encodes what a tap shows as images: u8 or floats from 0 to 1, [height, width], [height, width,
/// channels] or [n, height, width, channels]. Throws TypeError for anything else, named `what`.
Images pngs_of(const char* who, const std::string& what, const AnyView& view);

}  // namespace postern::internal::host
