// Formats by their first bytes.
#include "formats.h"

#include <algorithm>
#include <iterator>

namespace postern::internal::imported {

namespace {

struct Format {
  std::size_t at;
  std::string_view bytes, name;
};
constexpr Format formats[] = {
    {0, "PK\x03\x04", "a zip archive, as torch, Keras and NumPy write them"},
    {4, "TFL3", "a model of TFLite"},
    {0, "HloModule ", "HLO text of XLA's"},
    {0, "\x1f\x8b", "compressed by gzip"},
    {0, "\x93NUMPY", "an array of NumPy's"},
    {0, "\x89HDF", "a file of HDF5"},
};

/// Protocol buffers begin with a field's number and kind.
bool is_onnx(std::string_view b) {  // the version, then the producer, a domain or the graph
  return b.size() > 2 && b[0] == 0x08 && b[1] > 0 && b[1] < 0x20 &&
         (b[2] == 0x12 || b[2] == 0x22 || b[2] == 0x3a || b[2] == 0x42);
}
bool is_hlo(std::string_view b) {  // a name, then that of the first computation
  if (b.size() < 2 || b[0] != 0x0a) return false;
  const auto name = static_cast<unsigned char>(b[1]);
  return name < 0x80 && b.size() > 2u + name && b[2 + name] == 0x12;
}

}  // namespace

std::string_view other_format(std::string_view bytes) {
  const auto* const found = std::ranges::find_if(formats, [&](const Format& f) {
    return bytes.size() > f.at && bytes.substr(f.at).starts_with(f.bytes);
  });
  if (found != std::end(formats)) return found->name;
  if (is_onnx(bytes)) return "a model of ONNX";
  // A HloProto has a module inside.
  const std::size_t inner = std::min(bytes.find('\x0a', 1), bytes.size());
  if (is_hlo(bytes) || (inner < 12 && bytes.starts_with('\x0a') && is_hlo(bytes.substr(inner))))
    return "HLO as a protocol buffer";
  return {};
}

}  // namespace postern::internal::imported
