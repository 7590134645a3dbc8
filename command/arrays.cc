// .npy, .npz, and numbers as JSON.
#include "arrays.h"

#include <fmt/format.h>
#include <zip.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "commands.h"
#include "host/text_file.h"
#include "listen/npy.h"
#include "print/print_text.h"

namespace command {

namespace pn = postern;
using Json = nlohmann::json;

namespace {

pn::DType dtype_of(const std::string& descriptor, const std::string& who) {
  for (int d = 0; d < pn::dtype_count; ++d)
    if (const auto dtype = static_cast<pn::DType>(d); dtype != pn::DType::token &&
                                                      pn::host::npy_dtype(dtype) == dtype &&
                                                      descriptor == pn::host::npy_descriptor(dtype))
      return dtype;
  throw Problem(bad_file, fmt::format("{}: arrays of dtype '{}' cannot be read", who, descriptor));
}

/// Takes from memory.
struct Source {
  const std::string& who;
  const char* at;
  std::size_t left;
  void operator()(void* to, std::size_t bytes) {
    if (bytes > left) throw Problem(bad_file, who + ": the file is cut short");
    std::memcpy(to, at, bytes);
    at += bytes, left -= bytes;
  }
};

pn::Tensor npy_in(const std::string& who, const char* data, std::size_t size) {
  Source source{who, data, size};
  const pn::Type type = read_npy_header(who, std::ref(source));
  if (source.left != type.byte_size())
    throw Problem(bad_file, fmt::format("{}: an array of {} has {} bytes, the file has {}", who,
                                        pn::to_string(type), type.byte_size(), source.left));
  return pn::Tensor(type, source.at);
}

std::vector<pn::Tensor> npz_in(const std::string& path) {
  int code = 0;
  const std::unique_ptr<zip_t, int (*)(zip_t*)> archive(zip_open(path.c_str(), ZIP_RDONLY, &code),
                                                        zip_close);
  if (!archive) {
    zip_error_t error;
    zip_error_init_with_code(&error, code);
    const std::string why = zip_error_strerror(&error);
    zip_error_fini(&error);
    throw Problem(bad_file, path + ": " + why);
  }
  std::vector<pn::Tensor> out;
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive.get(), 0); ++i) {
    zip_stat_t about;
    zip_stat_init(&about);
    const auto index = static_cast<zip_uint64_t>(i);
    const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> file(
        zip_fopen_index(archive.get(), index, 0), zip_fclose);
    if (!file || zip_stat_index(archive.get(), index, 0, &about) != 0)
      throw Problem(bad_file, path + ": " + zip_strerror(archive.get()));
    std::string data;
    char part[1 << 16];
    for (zip_int64_t n = 0; (n = zip_fread(file.get(), part, sizeof part)) != 0;) {
      if (n < 0)
        throw Problem(bad_file,
                      fmt::format("{}: {}: {}", path, about.name, zip_file_strerror(file.get())));
      data.append(part, static_cast<std::size_t>(n));
    }
    out.push_back(npy_in(fmt::format("{}: {}", path, about.name), data.data(), data.size()));
  }
  return out;
}

/// The start of what a user gave, for an error.
std::string shown(const std::string& text) {
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

constexpr int deepest = 64;  // lists in lists

/// Numbers in nested lists: their extents, and the numbers in order.
void flatten(const Json& json, std::size_t depth, pn::Dims& dims, std::vector<Json>& numbers,
             const std::string& text) {
  if (!json.is_array()) {
    if (depth != dims.size() || (!json.is_number() && !json.is_boolean()))
      throw Problem(
          usage,
          fmt::format("'{}' is no array: lists of equal lengths, and numbers in the innermost",
                      shown(text)));
    numbers.push_back(json);
    return;
  }
  const auto size = static_cast<std::int64_t>(json.size());
  if (numbers.empty() && dims.size() == depth) dims.push_back(size);
  if (depth >= dims.size() || dims[depth] != size)
    throw Problem(usage,
                  fmt::format("'{}' is no array: its lists have different lengths", shown(text)));
  for (const Json& part : json) flatten(part, depth + 1, dims, numbers, text);
}

pn::Tensor from_text(const std::string& text, const pn::Type& like) {
  // Lists are looked through by recursion.
  const Json json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t event, Json&) {
        if (event == Json::parse_event_t::array_start && depth >= deepest)
          throw Problem(usage, fmt::format("'{}' has more than {} lists in each other", shown(text),
                                           deepest));
        return true;
      },
      false);
  if (json.is_discarded())
    throw Problem(
        usage,
        fmt::format(
            "'{}' is neither a .npy or .npz file nor numbers such as 3.5 or [[1, 2], [3, 4]]",
            shown(text)));
  pn::Dims dims;
  std::vector<Json> numbers;
  flatten(json, 0, dims, numbers, text);
  std::vector<double> values;
  std::vector<std::int64_t> whole;
  bool integers = true;
  for (const Json& n : numbers) {
    integers = integers && !n.is_number_float();
    values.push_back(n.is_boolean() ? n.get<bool>() : n.get<double>());
    whole.push_back(n.is_number_integer() ? n.get<std::int64_t>()
                                          : static_cast<std::int64_t>(values.back()));
  }
  // Numbers that belong to the program's dtype; which 2.5 does not for s32.
  const bool integral = pn::is_integer(like.dtype) || like.dtype == pn::DType::pred;
  if (integral && !integers)
    throw Problem(usage, fmt::format("'{}' has fractions, the program takes {}", shown(text),
                                     pn::to_string(like)));
  const pn::Tensor wide = integral ? pn::Tensor(pn::Type{pn::DType::s64, dims}, whole.data())
                                   : pn::Tensor(pn::Type{pn::DType::f64, dims}, values.data());
  return pn::convert(wide, like.dtype);
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
  return end == std::string_view::npos ? "" : std::string(text.substr(1, end - 1));
}

/// "(2, 3,)"; none for what is no shape.
std::optional<pn::Dims> extents(std::string_view text) {
  if (!text.starts_with("(")) return {};
  const auto end = text.find(')');
  if (end == std::string_view::npos) return {};
  text = text.substr(1, end - 1);
  pn::Dims dims;
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

pn::Type read_npy_header(const std::string& who,
                         const std::function<void(void*, std::size_t)>& take) {
  unsigned char start[10];
  take(start, sizeof start);
  if (std::memcmp(start, "\x93NUMPY", 6) != 0 || start[6] < 1 || start[6] > 3)
    throw Problem(bad_file, who + ": this is no .npy array");
  std::size_t length = start[8] + (std::size_t{start[9]} << 8);
  if (start[6] > 1) {
    unsigned char more[2];
    take(more, sizeof more);
    length += (std::size_t{more[0]} << 16) + (std::size_t{more[1]} << 24);
  }
  if (length > 1 << 20) throw Problem(bad_file, who + ": its header is too long");
  std::string header(length, ' ');
  take(header.data(), length);
  const std::string descriptor = in_quotes(value_of(header, "descr"));
  const std::string_view order = value_of(header, "fortran_order");
  const std::optional<pn::Dims> dims = extents(value_of(header, "shape"));
  if (descriptor.empty() || !(order.starts_with("True") || order.starts_with("False")) || !dims)
    throw Problem(bad_file, who + ": its header describes no array");
  if (order.starts_with("True") && dims->size() > 1)
    throw Problem(bad_file, who + ": it is in column order; write it with numpy.ascontiguousarray");
  return pn::make_type(dtype_of(descriptor, who), *dims);
}

std::string npy_message(const pn::Type& type, const void* data) {
  const pn::DType written = pn::host::npy_dtype(type.dtype);
  if (written != type.dtype)
    throw Problem(failed, fmt::format("NumPy's files have no dtype for {}", pn::to_string(type)));
  std::string out = pn::host::npy_header(type);
  return out.append(static_cast<const char*>(data), type.byte_size());
}

std::vector<pn::Tensor> read_inputs(const std::vector<std::string>& inputs,
                                    const std::vector<pn::Type>& types) {
  std::vector<pn::Tensor> out;
  auto wanted = [&] {
    return fmt::format("the program takes {} inputs {}", types.size(), pn::to_string(types));
  };
  for (const std::string& input : inputs) {
    if (input.ends_with(".npz")) {
      for (pn::Tensor& t : npz_in(input)) out.push_back(std::move(t));
    } else if (input.ends_with(".npy")) {
      const std::string data = pn::host::read_file("input", input);
      out.push_back(npy_in(input, data.data(), data.size()));
    } else if (out.size() < types.size()) {
      out.push_back(from_text(input, types[out.size()]));
    } else {
      throw Problem(usage, wanted() + fmt::format(", '{}' is one too many", shown(input)));
    }
  }
  if (out.size() != types.size())
    throw Problem(usage, wanted() + fmt::format(", {} came", out.size()));
  for (std::size_t i = 0; i < types.size(); ++i)
    if (out[i].dtype() != types[i].dtype || out[i].dims() != types[i].dims)
      throw Problem(usage, fmt::format("input {} must be {}, got {}", i, pn::to_string(types[i]),
                                       pn::to_string(out[i].type())));
  return out;
}

void write_npy(const std::string& path, const pn::Tensor& tensor) {
  // What NumPy does not know is widened.
  const pn::Tensor known = pn::convert(tensor, pn::host::npy_dtype(tensor.dtype()));
  std::string data(known.type().byte_size(), ' ');
  known.read(data.data());
  pn::host::write_text_file("output", path, npy_message(known.type(), data.data()));
}

std::string text_of(const pn::Tensor& tensor) {
  std::string data(std::max<std::size_t>(tensor.type().byte_size(), 1), ' ');
  tensor.read(data.data());
  const pn::Type& type = tensor.type();
  return pn::host::text_of(pn::AnyView(type.dtype, reinterpret_cast<const std::byte*>(data.data()),
                                       type.dims.data(), type.dims.size(), type.size()),
                           "", {});
}

}  // namespace command
