// Reading NumPy's headers, and whole files of arrays.
#include "listen/npy.h"

#include <fmt/format.h>
#include <postern/npy.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <set>

#include "core/check.h"
#include "core/text.h"
#include "file/safetensors.h"
#include "file/unzip.h"
#include "host/text_file.h"

namespace postern {
using namespace internal;

namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& why) { throw Error(code, why); }

/// Runs `read`; its errors begin with `who`.
template <class F>
auto named(const std::string& who, F&& read) {
  try {
    return read();
  } catch (const Error& e) {
    refuse(e.code(), who + ": " + e.what());
  }
}

DType dtype_of(const std::string& descriptor) {
  for (int d = 0; d < static_cast<int>(DType::token); ++d)
    if (const auto dtype = static_cast<DType>(d);
        host::npy_dtype(dtype) == dtype && descriptor == host::npy_descriptor(dtype))
      return dtype;
  refuse(ErrorCode::unimplemented,
         fmt::format("arrays of dtype '{}' cannot be read", one_line(descriptor)));
}

/// What stands behind 'key': in a dictionary of Python.
std::string_view value_of(std::string_view header, const std::string& key) {
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
std::optional<Dims> extents(std::string_view text) {
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

Tensor npy_in(std::string_view data) {
  const Type type = read_npy_header([&](void* to, std::size_t bytes) {
    if (bytes > data.size()) refuse(ErrorCode::data_loss, "the file is cut short");
    std::memcpy(to, data.data(), bytes);
    data.remove_prefix(bytes);
  });
  if (data.size() != type.byte_size())
    refuse(ErrorCode::data_loss, fmt::format("an array of {} has {} bytes, the file has {}",
                                             to_string(type), type.byte_size(), data.size()));
  return file::tensor_of(type, data.data());
}

/// A tensor's elements on the host as NumPy's, and their header.
struct Written {
  explicit Written(const Tensor& tensor) {
    std::vector<std::byte> elements(std::max<std::size_t>(tensor.type().byte_size(), 1));
    tensor.read(elements.data());
    const Type& type = tensor.type();
    data = host::npy_data(
        AnyView(type.dtype, elements.data(), type.dims.data(), type.dims.size(), type.size()));
    header = host::npy_header(make_type(host::npy_dtype(type.dtype), type.dims));
  }
  std::string header;
  std::vector<std::byte> data;
};

}  // namespace

Type read_npy_header(const std::function<void(void*, std::size_t)>& take) {
  unsigned char start[10];
  take(start, sizeof start);
  if (std::memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
    refuse(ErrorCode::invalid_argument, "this is no .npy array");
  std::size_t length = start[8] + (std::size_t{start[9]} << 8);
  if (start[6] > 1) {
    unsigned char more[2];
    take(more, sizeof more);
    length += (std::size_t{more[0]} << 16) + (std::size_t{more[1]} << 24);
  }
  if (length > 1 << 20) refuse(ErrorCode::invalid_argument, "its header is too long");
  std::string header(length, ' ');
  take(header.data(), length);
  const std::string descriptor = in_quotes(value_of(header, "descr"));
  const std::string_view order = value_of(header, "fortran_order");
  const std::optional<Dims> dims = extents(value_of(header, "shape"));
  if (descriptor.empty() || !(order.starts_with("True") || order.starts_with("False")) || !dims)
    refuse(ErrorCode::invalid_argument, "its header describes no array");
  if (order.starts_with("True") && dims->size() > 1)
    refuse(ErrorCode::unimplemented,
           "it is in column order; write it with numpy.ascontiguousarray");
  try {
    return make_type(dtype_of(descriptor), *dims);
  } catch (const TypeError& e) {  // more bytes than can be counted
    refuse(ErrorCode::invalid_argument, e.what());
  }
}

std::string npy_bytes(const AnyView& array) {
  const Type type = array.type();
  check(host::npy_dtype(type.dtype) == type.dtype, "npy_bytes: NumPy's files have no dtype for {}",
        to_string(type));
  std::string out = host::npy_header(type);
  return out.append(reinterpret_cast<const char*>(array.data()), type.byte_size());
}

Tensor read_npy(const std::filesystem::path& file) {
  const std::string data = host::read_file("read_npy", file.string());
  return named("read_npy: " + one_line(file.string()), [&] { return npy_in(data); });
}

void write_npy(const std::filesystem::path& file, const Tensor& value) {
  const Written array(value);
  host::NewFile out("write_npy", file.string());
  out.write(array.header);
  out.write({reinterpret_cast<const char*>(array.data.data()), array.data.size()});
  out.finish();
}

NamedTensors read_npz(const std::filesystem::path& file) {
  const std::string archive = host::read_file("read_npz", file.string());
  NamedTensors out;
  named("read_npz: " + one_line(file.string()), [&] {
    file::unzip(archive, [&](const std::string& name, std::string_view data) {
      const bool suffix = name.ends_with(".npy");
      out.emplace_back(suffix ? name.substr(0, name.size() - 4) : name,
                       named(one_line(name), [&] { return npy_in(data); }));
    });
  });
  return out;
}

void write_npz(const std::filesystem::path& file, const NamedTensors& arrays) {
  constexpr std::size_t most_arrays = 0xFFFF, longest_name = 4096;
  constexpr std::uint64_t most_bytes = 0xFFFFFFFF;
  check(arrays.size() <= most_arrays, "write_npz: a file holds at most {} arrays, got {}",
        most_arrays, arrays.size());
  std::set<std::string> names;
  std::vector<Written> written;
  std::vector<host::NpyArray> parts;
  std::uint64_t bytes = 0;
  written.reserve(arrays.size());
  for (const auto& [name, tensor] : arrays) {
    check(!name.empty() && name.size() <= longest_name && name.find('\0') == std::string::npos,
          "write_npz: a name has 1 to {} bytes and no NUL, got {}", longest_name,
          internal::quoted(std::string_view(name).substr(0, 80)));
    check(names.insert(name).second, "write_npz: two arrays are named {}", internal::quoted(name));
    const Written& array = written.emplace_back(tensor);
    bytes += array.header.size() + array.data.size() + 2 * name.size() + 200;
    check(bytes <= most_bytes, "write_npz: a file holds at most {} bytes", most_bytes);
    parts.push_back({name, array.header, array.data});
  }
  host::NewFile out("write_npz", file.string());
  host::write_npz(out, parts);
  out.finish();
}

}  // namespace postern
