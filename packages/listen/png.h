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

/// Images of one size, with samples of 8 bits: [count, height, width, channels].
struct Images {
  std::int64_t count = 1, height = 0, width = 0, channels = 1;
  std::string samples = {};
  std::vector<std::string> files() const;  // of PNG
};
/// Reads a leaf as TensorBoardOptions::Arrays::images has it. Throws TypeError in the names of
/// `who` and `what` for one that is no image.
Images images_of(std::string_view who, std::string_view what, const AnyView& view);

}  // namespace postern::internal::host
