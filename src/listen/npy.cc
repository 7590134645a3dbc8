// Headers of arrays, and the zip around them.
#include "listen/npy.h"

#include <fmt/format.h>
#include <zlib.h>

#include <cstring>

#include "print/number.h"

namespace postern::internal::host {

namespace {

/// Little-endian numbers of a zip file.
class Bytes {
 public:
  Bytes& u16(std::uint64_t v) { return put(v, 2); }
  Bytes& u32(std::uint64_t v) { return put(v, 4); }
  Bytes& text(const std::string& t) {
    bytes_ += t;
    return *this;
  }
  const std::string& str() const { return bytes_; }

 private:
  Bytes& put(std::uint64_t v, int n) {
    for (int i = 0; i < n; ++i) bytes_ += static_cast<char>(v >> (8 * i));
    return *this;
  }
  std::string bytes_;
};

}  // namespace

const char* npy_descriptor(DType dtype) {
  switch (dtype) {
    case DType::pred: return "|b1";
    case DType::s8: return "|i1";
    case DType::s16: return "<i2";
    case DType::s32: return "<i4";
    case DType::s64: return "<i8";
    case DType::u8: return "|u1";
    case DType::u16: return "<u2";
    case DType::u32: return "<u4";
    case DType::u64: return "<u8";
    case DType::f16: return "<f2";
    case DType::f64: return "<f8";
    case DType::c64: return "<c8";
    case DType::c128: return "<c16";
    default: return "<f4";
  }
}

DType npy_dtype(DType dtype) {
  switch (dtype) {
    case DType::s2:
    case DType::s4: return DType::s8;
    case DType::u2:
    case DType::u4: return DType::u8;
    default:
      return is_float(dtype) && dtype != DType::f16 && dtype != DType::f64 ? DType::f32 : dtype;
  }
}

std::vector<std::byte> npy_data(const AnyView& array) {
  const DType written = npy_dtype(array.dtype());
  std::vector<std::byte> out(static_cast<std::size_t>(array.size()) * byte_width(written));
  if (written != DType::f32 || array.dtype() == DType::f32) {
    if (!out.empty()) std::memcpy(out.data(), array.data(), out.size());
    return out;
  }
  for (std::size_t i = 0; i < out.size() / sizeof(float); ++i) {
    const auto x =
        static_cast<float>(real_at(array.dtype(), array.data(), static_cast<std::int64_t>(i)));
    std::memcpy(out.data() + i * sizeof x, &x, sizeof x);
  }
  return out;
}

namespace {

/// `room`: how many more bytes the shape may come to take.
std::string header(DType dtype, const std::string& shape, std::size_t room) {
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 npy_descriptor(dtype), shape);
  // The whole is a multiple of 64 bytes and ends with a newline.
  const std::size_t whole = (11 + text.size() + room + 63) / 64 * 64;
  text.resize(whole - 11, ' ');
  text += '\n';
  return std::string("\x93NUMPY\x01\x00", 8) + Bytes().u16(text.size()).str() + text;
}

std::string extents(const Dims& dims) {
  std::string out;
  for (const std::int64_t d : dims) out += fmt::format("{}{},", out.empty() ? "" : " ", d);
  return out;
}

}  // namespace

std::string npy_header(const Type& type) { return header(type.dtype, extents(type.dims), 0); }

std::string npy_header(DType dtype, std::int64_t rows, const Dims& row) {
  Dims dims = row;
  dims.insert(dims.begin(), rows);
  return header(dtype, extents(dims), 19 - std::to_string(rows).size());
}

// A ZIP archive of files that are stored as they are, not compressed. Writes for each array a local
// header, its .npy header and its data; then the central directory, which repeats the headers with
// where each file begins; then the record that says where the directory is. Sizes and places have
// 32 bits and there is no ZIP64 record, so the caller keeps the archive below 4 GiB. Throws what
// writing to `file` does.
void write_npz(NewFile& file, const std::vector<NpyArray>& arrays) {
  std::uint64_t at = 0;
  auto write = [&](const void* data, std::size_t size) {
    file.write({static_cast<const char*>(data), size});
    at += size;
  };
  std::string directory;
  for (const NpyArray& a : arrays) {
    const std::string name = a.name + ".npy";
    const std::uint64_t size = a.header.size() + a.data.size();
    uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(a.header.data()), a.header.size());
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(a.data.data()), a.data.size());
    // Version, flags (names are UTF-8), method (stored), time, date (1980-01-01), checksum, sizes,
    // lengths.
    const std::string common = Bytes()
                                   .u16(20)
                                   .u16(1 << 11)
                                   .u16(0)
                                   .u16(0)
                                   .u16(33)
                                   .u32(crc)
                                   .u32(size)
                                   .u32(size)
                                   .u16(name.size())
                                   .u16(0)
                                   .str();
    directory += Bytes()
                     .u32(0x02014b50)
                     .u16(20)
                     .text(common)
                     .u16(0)
                     .u16(0)
                     .u16(0)
                     .u32(0)
                     .u32(at)
                     .text(name)
                     .str();
    const std::string local = Bytes().u32(0x04034b50).text(common).text(name).str();
    write(local.data(), local.size());
    write(a.header.data(), a.header.size());
    write(a.data.data(), a.data.size());
  }
  const std::uint64_t start = at;
  write(directory.data(), directory.size());
  const std::string end = Bytes()
                              .u32(0x06054b50)
                              .u16(0)
                              .u16(0)
                              .u16(arrays.size())
                              .u16(arrays.size())
                              .u32(directory.size())
                              .u32(start)
                              .u16(0)
                              .str();
  write(end.data(), end.size());
}

}  // namespace postern::internal::host
