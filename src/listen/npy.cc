// Headers of arrays, written and read, and the zip around them.
#include "listen/npy.h"

#include <fmt/format.h>
#include <postern/npy.h>
#include <zlib.h>

#include <charconv>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "core/text.h"
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

namespace {

DType dtype_from(const std::string& descriptor) {
  for (int d = 0; d < static_cast<int>(DType::token); ++d)
    if (const auto dtype = static_cast<DType>(d);
        npy_dtype(dtype) == dtype && descriptor == npy_descriptor(dtype))
      return dtype;
  throw Error(ErrorCode::unimplemented,
              fmt::format("arrays of dtype '{}' cannot be read", one_line(descriptor)));
}

/// What stands behind 'key': in a dictionary of Python.
std::string_view python_entry(std::string_view header, const std::string& key) {
  const std::string quoted = "'" + key + "':";
  const auto at = header.find(quoted);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + quoted.size());
  header.remove_prefix(std::min(header.find_first_not_of(' '), header.size()));
  return header;
}

std::string in_quotes(std::string_view text) {
  if (!text.starts_with("'")) return "";
  const auto end = text.find('\'', 1);
  if (end == std::string_view::npos) return "";
  return std::string(text.substr(1, end - 1));
}

/// "(2, 3,)"; none for what is no shape.
std::optional<Dims> extents_from(std::string_view text) {
  if (!text.starts_with("(")) return {};
  const auto end = text.find(')');
  if (end == std::string_view::npos) return {};
  text = text.substr(1, end - 1);
  Dims dims;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(" ,"), text.size()));
    if (text.empty()) return dims;
    std::int64_t extent = 0;
    const auto [next, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 0) return {};
    dims.push_back(extent);
    text.remove_prefix(static_cast<std::size_t>(next - text.data()));
  }
}

}  // namespace

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

namespace postern {
using namespace internal;

std::string npy_bytes(const AnyView& array) {
  const Type type = array.type();
  check(host::npy_dtype(type.dtype) == type.dtype, "npy_bytes: NumPy's files have no dtype for {}",
        to_string(type));
  std::string out = host::npy_header(type);
  return out.append(reinterpret_cast<const char*>(array.data()), type.byte_size());
}

Type read_npy_header(const std::function<void(void*, std::size_t)>& take) {
  unsigned char start[10];
  take(start, sizeof start);
  if (std::memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
    throw Error(ErrorCode::invalid_argument, "this is no .npy array");
  std::size_t length = start[8] + (std::size_t{start[9]} << 8);
  if (start[6] > 1) {
    unsigned char more[2];
    take(more, sizeof more);
    length += (std::size_t{more[0]} << 16) + (std::size_t{more[1]} << 24);
  }
  if (length > 1 << 20) throw Error(ErrorCode::invalid_argument, "its header is too long");
  std::string header(length, ' ');
  take(header.data(), length);
  const std::string descriptor = host::in_quotes(host::python_entry(header, "descr"));
  const std::string_view order = host::python_entry(header, "fortran_order");
  const std::optional<Dims> dims = host::extents_from(host::python_entry(header, "shape"));
  if (descriptor.empty() || !(order.starts_with("True") || order.starts_with("False")) || !dims)
    throw Error(ErrorCode::invalid_argument, "its header describes no array");
  if (order.starts_with("True") && dims->size() > 1)
    throw Error(ErrorCode::unimplemented,
                "it is in column order; write it with numpy.ascontiguousarray");
  try {
    return make_type(host::dtype_from(descriptor), *dims);
  } catch (const TypeError& e) {  // more bytes than can be counted
    throw Error(ErrorCode::invalid_argument, e.what());
  }
}

}  // namespace postern
