// PNG: a signature, then chunks, each with its length, type, data and CRC-32.
#include "listen/png.h"

#include <postern/error.h>
#include <zlib.h>

namespace postern::internal::host {

namespace {

void append_big_endian(std::string& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift);
}

void append_chunk(std::string& to, std::string_view type, std::string_view data) {
  append_big_endian(to, static_cast<std::uint32_t>(data.size()));
  uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(type.data()), type.size());
  crc = crc32_z(crc, reinterpret_cast<const Bytef*>(data.data()), data.size());
  to += type;
  to += data;
  append_big_endian(to, static_cast<std::uint32_t>(crc));
}

}  // namespace

std::string png(std::int64_t width, std::int64_t height, int channels, std::string_view samples) {
  constexpr char color_types[] = {0, 0, 0, 2, 6};  // by channels: grey, RGB, RGBA
  std::string header;
  append_big_endian(header, static_cast<std::uint32_t>(width));
  append_big_endian(header, static_cast<std::uint32_t>(height));
  header += char{8};  // bits a sample
  header += color_types[channels];
  header.append(3, '\0');  // zlib, the only filter method, not interlaced

  const auto row = static_cast<std::size_t>(width) * static_cast<std::size_t>(channels);
  std::string rows;  // each behind its filter: none
  for (std::size_t at = 0; at < samples.size(); at += row) {
    rows += '\0';
    rows += samples.substr(at, row);
  }
  uLongf size = compressBound(rows.size());
  std::string data(size, '\0');
  if (compress(reinterpret_cast<Bytef*>(data.data()), &size,
               reinterpret_cast<const Bytef*>(rows.data()), rows.size()) != Z_OK)
    throw Error(ErrorCode::resource_exhausted, "png: no memory to compress an image");
  data.resize(size);

  std::string out = "\x89PNG\r\n\x1a\n";
  append_chunk(out, "IHDR", header);
  append_chunk(out, "IDAT", data);
  append_chunk(out, "IEND", "");
  return out;
}

}  // namespace postern::internal::host
