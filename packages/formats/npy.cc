// Headers of arrays, written and read.
#include "npy.h"

#include <fmt/format.h>
#include <postern/npy.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

#include "spi.h"

namespace postern::internal::formats {

/// NumPy's spelling of each dtype that npy_dtype leaves as it is.
constexpr std::pair<DType, const char*> descriptors[] = {
    {DType::pred, "|b1"}, {DType::s8, "|i1"},   {DType::s16, "<i2"}, {DType::s32, "<i4"},
    {DType::s64, "<i8"},  {DType::u8, "|u1"},   {DType::u16, "<u2"}, {DType::u32, "<u4"},
    {DType::u64, "<u8"},  {DType::f16, "<f2"},  {DType::f32, "<f4"}, {DType::f64, "<f8"},
    {DType::c64, "<c8"},  {DType::c128, "<c16"}};

const char* npy_descriptor(DType dtype) {
  for (const auto& [known, descriptor] : descriptors)
    if (known == dtype) return descriptor;
  return "<f4";
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
    const auto x = static_cast<float>(
        host::real_at(array.dtype(), array.data(), static_cast<std::int64_t>(i)));
    std::memcpy(out.data() + i * sizeof x, &x, sizeof x);
  }
  return out;
}

namespace {

constexpr std::string_view magic = "\x93NUMPY";

/// The header of version 1.0: the magic, the version, the text's length in two bytes, the text. The
/// text ends with a newline, before which blanks make the whole a multiple of 64 bytes. `room`: how
/// many more bytes the shape may come to take.
std::string header(DType dtype, const std::string& shape, std::size_t room) {
  constexpr std::size_t start = 10, newline = 1, multiple = 64;
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                 npy_descriptor(dtype), shape);
  const std::size_t least = start + text.size() + room + newline;
  text.resize((least + multiple - 1) / multiple * multiple - start - newline, ' ');
  text += '\n';
  const char version_and_length[] = {1, 0, static_cast<char>(text.size()),
                                     static_cast<char>(text.size() >> 8)};
  return std::string(magic).append(version_and_length, sizeof version_and_length) + text;
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
  constexpr std::size_t most_digits = 19;  // of a number of rows
  return header(dtype, extents(dims), most_digits - std::to_string(rows).size());
}

namespace {

DType dtype_from(const std::string& descriptor) {
  // As NumPy writes arrays of ml_dtypes, whose types it does not know.
  if (descriptor == "<V2" || descriptor == "|V2") return DType::bf16;
  if (descriptor == "<f1") return DType::f8e5m2;
  if (descriptor == "<V1" || descriptor == "|V1")
    throw Error(ErrorCode::unimplemented,
                "it does not say which of ml_dtypes' types of one byte its elements are; write it "
                "as a .safetensors file, or as another dtype");
  for (const auto& [dtype, known] : descriptors)
    if (known == descriptor) return dtype;
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

/// What stands in the quotes with which the text begins; empty where it begins with none.
std::string in_quotes(std::string_view text) {
  if (!text.starts_with("'")) return "";
  const auto end = text.find('\'', 1);
  if (end == std::string_view::npos) return "";
  return std::string(text.substr(1, end - 1));
}

/// Reads a shape as Python writes it: "(2, 3,)"; none for what is none.
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

ZipFile npz_entry(const std::string& name, std::string header, std::span<const std::byte> data) {
  return {name + ".npy", std::move(header), data};
}

}  // namespace postern::internal::formats

namespace postern {
using namespace internal;
using namespace formats;

std::string npy_bytes(const AnyView& array, Place place) {
  PlaceScope at(place);
  const Type type = array.type();
  check(npy_dtype(type.dtype) == type.dtype, "npy_bytes: NumPy's files have no dtype for {}",
        to_string(type));
  std::string out = npy_header(type);
  return out.append(reinterpret_cast<const char*>(array.data()), type.byte_size());
}

// The magic, the version in two bytes, the length in two (of version 1) or four; and the header, a
// dictionary of Python.
Type read_npy_header(const std::function<void(void*, std::size_t)>& take) {
  unsigned char start[10];
  take(start, sizeof start);
  const int version = start[6];
  if (std::memcmp(start, magic.data(), magic.size()) != 0 || version < 1 || version > 3)
    throw Error(ErrorCode::invalid_argument, "this is no .npy array");
  std::size_t length = start[8] + (std::size_t{start[9]} << 8);
  if (version > 1) {
    unsigned char more[2];
    take(more, sizeof more);
    length += (std::size_t{more[0]} << 16) + (std::size_t{more[1]} << 24);
  }
  if (length > 1 << 20) throw Error(ErrorCode::invalid_argument, "its header is too long");
  std::string header(length, ' ');
  take(header.data(), length);
  const std::string descriptor = in_quotes(python_entry(header, "descr"));
  const std::string_view order = python_entry(header, "fortran_order");
  const std::optional<Dims> dims = extents_from(python_entry(header, "shape"));
  const bool by_columns = order.starts_with("True"), by_rows = order.starts_with("False");
  if (descriptor.empty() || !(by_columns || by_rows) || !dims)
    throw Error(ErrorCode::invalid_argument, "its header describes no array");
  if (by_columns && dims->size() > 1)
    throw Error(ErrorCode::unimplemented,
                "it is in column order; write it with numpy.ascontiguousarray");
  try {
    return make_type(dtype_from(descriptor), *dims);
  } catch (const TypeError& e) {  // more bytes than can be counted
    throw Error(ErrorCode::invalid_argument, e.what());
  }
}

}  // namespace postern
