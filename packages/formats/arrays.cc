// Files of arrays: .npy and .npz of tensors.
#include <fmt/format.h>
#include <postern/npy.h>

#include <cstring>
#include <set>

#include "npy.h"
#include "spi.h"

namespace postern {
using namespace internal;
using namespace formats;

namespace {

[[noreturn]] void refuse(ErrorCode code, const std::string& why) { throw Error(code, why); }

/// Runs `read`; its errors begin with `who`.
template <class F>
auto told(const std::string& who, F&& read) {
  try {
    return read();
  } catch (const Error& e) {
    refuse(e.code(), who + ": " + e.what());
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
  return {type, data.data()};
}

/// A tensor's elements on the host as NumPy's, and their header.
struct Written {
  explicit Written(const Tensor& tensor) {
    std::vector<std::byte> elements(std::max<std::size_t>(tensor.type().byte_size(), 1));
    tensor.read(elements.data());
    const Type& type = tensor.type();
    data = npy_data(
        AnyView(type.dtype, elements.data(), type.dims.data(), type.dims.size(), type.size()));
    header = npy_header(make_type(npy_dtype(type.dtype), type.dims));
  }
  std::string header;
  std::vector<std::byte> data;
};

}  // namespace

Tensor read_npy(const std::filesystem::path& file) {
  const std::string data = host::read_file("read_npy", file.string());
  return told("read_npy: " + one_line(file.string()), [&] { return npy_in(data); });
}

void write_npy(const std::filesystem::path& file, const Tensor& value, Place place) {
  PlaceScope at(place);
  const Written array(value);
  host::NewFile out("write_npy", file.string());
  out.write(array.header);
  out.write({reinterpret_cast<const char*>(array.data.data()), array.data.size()});
  out.finish();
}

NamedTensors read_npz(const std::filesystem::path& file) {
  const std::string archive = host::read_file("read_npz", file.string());
  NamedTensors out;
  told("read_npz: " + one_line(file.string()), [&] {
    read_zip(archive, [&](const std::string& name, std::string_view data) {
      const bool suffix = name.ends_with(".npy");
      out.emplace_back(suffix ? name.substr(0, name.size() - 4) : name,
                       told(one_line(name), [&] { return npy_in(data); }));
    });
  });
  return out;
}

void write_npz(const std::filesystem::path& file, const NamedTensors& arrays, Place place) {
  PlaceScope at(place);
  constexpr std::size_t longest_name = 4096;
  std::set<std::string> names;
  std::vector<Written> written;
  std::vector<ZipFile> parts;
  written.reserve(arrays.size());
  for (const auto& [name, tensor] : arrays) {
    check(!name.empty() && name.size() <= longest_name && name.find('\0') == name.npos &&
              is_utf8(name),
          "write_npz: a name has 1 to {} bytes, is UTF-8 and has no NUL, got {}", longest_name,
          internal::quoted(std::string_view(name).substr(0, 80)));
    check(names.insert(name).second, "write_npz: two arrays are named {}", internal::quoted(name));
    const Written& array = written.emplace_back(tensor);
    parts.push_back(npz_entry(name, array.header, array.data));
  }
  host::NewFile out("write_npz", file.string());
  write_zip(out, parts);
  out.finish();
}

}  // namespace postern
