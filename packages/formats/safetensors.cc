// Writing and reading the heads of safetensors files, and whole files of tensors.
#include "safetensors.h"

#include <fmt/format.h>
#include <postern/safetensors.h>

#include <algorithm>
#include <set>

#include "spi.h"

namespace postern::internal::formats {

namespace {

using file::exactly;
using HeadJson = nlohmann::json;  // finds names fast, also where a file has a million of them

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t longest_head = 100'000'000;  // the format's own limit
constexpr const char* metadata = "__metadata__";
constexpr const char* note = "postern.dtypes";  // JSON as text: what the format has no dtype for

struct Spelling {
  DType dtype;
  std::string_view name;
};
constexpr Spelling spellings[] = {{DType::pred, "BOOL"},
                                  {DType::u8, "U8"},
                                  {DType::s8, "I8"},
                                  {DType::u16, "U16"},
                                  {DType::s16, "I16"},
                                  {DType::u32, "U32"},
                                  {DType::s32, "I32"},
                                  {DType::u64, "U64"},
                                  {DType::s64, "I64"},
                                  {DType::f16, "F16"},
                                  {DType::bf16, "BF16"},
                                  {DType::f32, "F32"},
                                  {DType::f64, "F64"},
                                  {DType::c64, "C64"},
                                  {DType::f8e5m2, "F8_E5M2"},
                                  {DType::f8e4m3fn, "F8_E4M3"},
                                  {DType::f8e8m0fnu, "F8_E8M0"}};

[[noreturn]] void refuse(ErrorCode code, const std::string& why) { throw Error(code, why); }

/// As it stands in the file: itself, or bytes along one more axis.
Type stored_type(const Type& type) {
  if (std::ranges::find(spellings, type.dtype, &Spelling::dtype) != std::end(spellings))
    return make_type(type.dtype, type.dims);
  Dims dims = type.dims;
  dims.push_back(static_cast<std::int64_t>(byte_width(type.dtype)));
  return make_type(DType::u8, std::move(dims));
}

/// The type that was noted for what is stored as `bytes`.
Type noted_type(const Type& bytes, const std::string& name) {
  const Type element = file::parse_type(name + "[]");
  Dims dims = bytes.dims;
  if (!dims.empty()) dims.pop_back();
  Type type = make_type(element.dtype, std::move(dims));
  if (stored_type(type) != bytes)
    refuse(ErrorCode::invalid_argument,
           fmt::format("{} cannot hold elements of {}", to_string(bytes), name));
  return type;
}

Type type_in(const HeadJson& entry) {
  const std::string name = entry.at("dtype").get<std::string>();
  const auto* const found = std::ranges::find(spellings, name, &Spelling::name);
  if (found == std::end(spellings))
    refuse(ErrorCode::unimplemented,
           fmt::format("tensors of dtype {} cannot be read", internal::quoted(name)));
  return make_type(found->dtype, exactly<Dims>(entry.at("shape")));
}

/// The tensors as the head lists them, their offsets from the end of the head.
std::vector<StoredTensor> tensors_in(const HeadJson& head) {
  check(head.is_object(), "its head is no safetensors' one: it is no object");
  HeadJson noted = HeadJson::object();
  if (head.contains(metadata) && head.at(metadata).contains(note))
    noted = HeadJson::parse(head.at(metadata).at(note).get<std::string>());
  std::vector<StoredTensor> out;
  for (const auto& [name, entry] : head.items()) {
    if (name == metadata) continue;
    Type type = type_in(entry);
    const auto ends = exactly<std::vector<std::uint64_t>>(entry.at("data_offsets"));
    if (ends.size() != 2 || ends[1] < ends[0] || ends[1] - ends[0] != type.byte_size())
      refuse(ErrorCode::invalid_argument,
             fmt::format("tensor {} of {} has not the bytes of its type", internal::quoted(name),
                         to_string(type)));
    if (noted.contains(name)) type = noted_type(type, noted.at(name).get<std::string>());
    out.push_back({name, std::move(type), static_cast<std::size_t>(ends[0])});
  }
  return out;
}

}  // namespace

std::string safetensors_head(std::vector<StoredTensor>& tensors, std::size_t multiple) {
  HeadJson head = HeadJson::object(), noted = HeadJson::object();
  std::size_t at = 0;
  for (StoredTensor& t : tensors) {
    check(!t.name.empty() && t.name != metadata && is_utf8(t.name),
          "save_tensors: a name is UTF-8, not empty and not {}, got {}", metadata,
          internal::quoted(t.name));
    check(!head.contains(t.name), "save_tensors: two tensors are named {}",
          internal::quoted(t.name));
    const Type stored = stored_type(t.type);
    const auto* const spelling = std::ranges::find(spellings, stored.dtype, &Spelling::dtype);
    const std::size_t end = at + t.type.byte_size();
    head[t.name] = {{"dtype", spelling->name}, {"shape", stored.dims}, {"data_offsets", {at, end}}};
    if (stored.dtype != t.type.dtype) noted[t.name] = to_string(t.type.dtype);
    t.offset = at;
    at = end;
  }
  if (!noted.empty()) head[metadata] = {{note, noted.dump()}};
  std::string text = head.dump();
  const std::size_t size = (length_bytes + text.size() + multiple - 1) / multiple * multiple;
  text.resize(size - length_bytes, ' ');  // so that what follows is aligned
  std::string out;
  for (std::size_t i = 0; i < length_bytes; ++i)
    out += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i));
  for (StoredTensor& t : tensors) t.offset += length_bytes + text.size();
  return out + text;
}

// The length, then the JSON, then what it says of each tensor; last that the tensors, one behind
// the other, are all of the file. Errors of the JSON library and of types are ours from here on.
std::vector<StoredTensor> read_safetensors_head(std::string_view file) {
  if (file.size() < length_bytes)
    refuse(ErrorCode::invalid_argument, "this is no safetensors file: it is too short");
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(file[i]);
  if (length > longest_head)
    refuse(ErrorCode::invalid_argument,
           fmt::format("this is no safetensors file: its head would have {} bytes", length));
  if (length > file.size() - length_bytes)
    refuse(ErrorCode::data_loss, "the file is cut short, in its head");
  const std::size_t begin = length_bytes + static_cast<std::size_t>(length);
  std::vector<StoredTensor> tensors;
  try {
    tensors = tensors_in(HeadJson::parse(file.substr(length_bytes, begin - length_bytes)));
  } catch (const HeadJson::exception& e) {
    refuse(ErrorCode::invalid_argument,
           fmt::format("its head is no safetensors' one: {}", one_line(e.what())));
  } catch (const TypeError& e) {
    refuse(ErrorCode::invalid_argument, e.what());
  }
  std::ranges::stable_sort(tensors, {}, [](const StoredTensor& t) {
    return std::pair(t.offset, t.type.byte_size());  // empty ones before what begins there
  });
  std::size_t at = 0;
  for (StoredTensor& t : tensors) {
    if (t.offset != at)
      refuse(ErrorCode::invalid_argument,
             fmt::format("tensor {} overlaps another or leaves a gap", internal::quoted(t.name)));
    if (t.type.byte_size() > file.size() - begin - at)
      refuse(ErrorCode::data_loss,
             fmt::format("the file is cut short, in tensor {}", internal::quoted(t.name)));
    at += t.type.byte_size();
    t.offset += begin;
  }
  if (begin + at != file.size())
    refuse(ErrorCode::invalid_argument,
           fmt::format("{} bytes behind the last tensor are nobody's", file.size() - begin - at));
  return tensors;
}

}  // namespace postern::internal::formats

namespace postern {
using namespace internal;

std::string detail::tensor_name(const std::string& path) {
  if (path.empty()) return "value";
  return path.starts_with('.') ? path.substr(1) : path;
}

void save_tensors(const std::filesystem::path& file, const NamedTensors& tensors, Place place) {
  PlaceScope at(place);
  std::vector<formats::StoredTensor> stored;
  for (const auto& [name, tensor] : tensors) stored.push_back({name, tensor.type()});
  const std::string head = formats::safetensors_head(stored);
  host::NewFile out("save_tensors", file.string());
  out.write(head);
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    bytes.resize(tensor.type().byte_size());
    tensor.read(bytes.data());
    out.write(bytes);
  }
  out.finish();
}

NamedTensors load_tensors(const std::filesystem::path& file) {
  const std::string bytes = host::read_file("load_tensors", file.string());
  try {
    NamedTensors out;
    for (const formats::StoredTensor& t : formats::read_safetensors_head(bytes))
      out.emplace_back(t.name, Tensor(t.type, bytes.data() + t.offset));
    return out;
  } catch (const Error& e) {
    throw Error(e.code(), fmt::format("load_tensors: {}: {}", one_line(file.string()), e.what()));
  }
}

namespace detail {

Tensors load_tensors(const std::filesystem::path& file, const std::vector<std::string>& names,
                     const Tensors& like, const Place& place) {
  PlaceScope at(place);
  const NamedTensors all = postern::load_tensors(file);
  Tensors out;
  std::string differ;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto found = std::ranges::find(all, names[i], &NamedTensors::value_type::first);
    const Type& type = like[i].type();
    if (found == all.end()) {
      differ += fmt::format("\n  leaf {} is not in the file", internal::quoted(names[i]));
    } else if (found->second.dtype() != type.dtype || found->second.dims() != type.dims) {
      differ += fmt::format("\n  leaf {} is {}, in the file {}", internal::quoted(names[i]),
                            to_string(type), to_string(found->second.type()));
    } else {
      out.push_back(found->second);
    }
  }
  if (!differ.empty())
    throw Error(ErrorCode::failed_precondition, fmt::format("load_tensors: {} has other tensors:{}",
                                                            one_line(file.string()), differ));
  return out;
}

}  // namespace detail
}  // namespace postern
