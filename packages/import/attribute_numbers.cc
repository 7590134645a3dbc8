// Reading numbers of attributes.
#include "attribute_numbers.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <vector>

#include "mlir_text.h"
#include "reader.h"
#include "spi.h"

namespace postern::internal::imported {

namespace {

template <class T>
T from_bytes(const char* at) {
  T out;
  std::memcpy(&out, at, sizeof(T));
  return out;
}
template <class Signed>
std::int64_t whole_from(bool is_signed, const char* at) {
  if (is_signed) return from_bytes<Signed>(at);
  return from_bytes<std::make_unsigned_t<Signed>>(at);
}

}  // namespace

std::optional<Attribute> numbers_of_bytes(std::string_view element, std::string_view bytes,
                                          std::size_t size, std::size_t count) {
  std::vector<std::int64_t> integers;
  std::vector<double> reals;
  for (std::size_t i = 0; i < count; ++i) {
    const char* at = bytes.data();
    if (bytes.size() != size) at += i * size;  // else one value is for all
    if (element == "f32") {
      reals.push_back(from_bytes<float>(at));
    } else if (element == "f64") {
      reals.push_back(from_bytes<double>(at));
    } else if (element.starts_with("i") || element.starts_with("ui")) {
      const bool is_signed = element.front() == 'i';
      switch (size) {
        case 1: integers.push_back(whole_from<std::int8_t>(is_signed, at)); break;
        case 2: integers.push_back(whole_from<std::int16_t>(is_signed, at)); break;
        case 4: integers.push_back(whole_from<std::int32_t>(is_signed, at)); break;
        default: integers.push_back(from_bytes<std::int64_t>(at));
      }
    } else {
      return {};
    }
  }
  if (element.starts_with("f")) return reals;
  return integers;
}

bool is_listed(std::size_t count, std::size_t bytes) {
  return count <= std::max<std::size_t>(bytes, 1 << 16);
}

namespace {

/// Bytes of an element; 0: of a type that host functions are not given.
std::size_t element_bytes(std::string_view element) {
  if (element == "f32") return 4;
  if (element == "f64") return 8;
  if (element.starts_with("u")) element.remove_prefix(1);
  for (const auto& [name, size] : {std::pair{"i4", 1u}, std::pair{"i8", 1u}, std::pair{"i16", 2u},
                                   std::pair{"i32", 4u}, std::pair{"i64", 8u}})
    if (element == name) return size;
  return 0;
}

template <class T>
bool read_all(std::string_view text, T& out, int base = 10) {
  const char* const end = text.data() + text.size();
  std::from_chars_result result{};
  if constexpr (std::is_integral_v<T>)
    result = std::from_chars(text.data(), end, out, base);
  else
    result = std::from_chars(text.data(), end, out);
  return result.ec == std::errc() && result.ptr == end;
}

/// Of an element as it is written, the bits: of reals perhaps as such, 0x7F800000.
std::optional<std::uint64_t> bits_of(std::string_view text, std::string_view element) {
  std::uint64_t bits = 0;
  if (text.starts_with("0x"))
    return read_all(text.substr(2), bits, 16) ? std::optional(bits) : std::nullopt;
  if (element == "f32") {
    float f = 0;
    if (!read_all(text, f)) return {};
    return std::bit_cast<std::uint32_t>(f);
  }
  if (element == "f64") {
    double d = 0;
    if (!read_all(text, d)) return {};
    return std::bit_cast<std::uint64_t>(d);
  }
  if (std::int64_t n = 0; read_all(text, n)) return static_cast<std::uint64_t>(n);
  return read_all(text, bits) ? std::optional(bits) : std::nullopt;
}

/// One of a type whose bytes we do not know.
std::optional<Attribute> number_of(std::string_view text, std::string_view element) {
  if (std::int64_t n = 0; read_all(text, n)) return n;
  double d = 0;
  if (element != "bf16") return read_all(text, d) ? std::optional<Attribute>(d) : std::nullopt;
  auto bits = bits_of(text, "f32");
  if (!bits) return {};
  if (text.starts_with("0x")) *bits <<= 16;
  const auto rounded = static_cast<std::uint32_t>(*bits + 0x7FFF + (*bits >> 16 & 1)) & 0xFFFF0000;
  return static_cast<double>(std::bit_cast<float>(rounded));
}

/// The bytes of elements between commas, whatever brackets they are in, or of a string: "0x0100".
std::optional<std::string> list_bytes(std::string_view list, std::string_view element,
                                      std::size_t size) {
  std::string out;
  const auto add = [&](std::uint64_t bits, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) out += static_cast<char>(bits >> (8 * i));
  };
  if (list.starts_with("\"0x") && list.size() % 2 == 0) {
    for (std::size_t i = 3; i + 2 < list.size(); i += 2) {
      unsigned byte = 0;
      if (!read_all(list.substr(i, 2), byte, 16)) return {};
      add(byte, 1);
    }
    return out;
  }
  std::string flat(list);
  std::erase_if(flat, [](char c) { return c == '[' || c == ']'; });
  if (MlirText::trimmed(flat).empty()) return out;
  for (std::size_t from = 0, to = 0; from <= flat.size(); from = to + 1) {
    to = std::min(flat.find(',', from), flat.size());
    const auto bits =
        bits_of(MlirText::trimmed(std::string_view(flat).substr(from, to - from)), element);
    if (!bits) return {};
    add(*bits, size);
  }
  return out;
}

}  // namespace

std::optional<Attribute> numbers_of_text(std::string_view value) {
  std::string_view list = value, element;
  std::optional<std::size_t> count;  // of elements, as the type says
  const bool dense = value.starts_with("dense<");
  bool one = false;
  if (value.starts_with("array<") && value.ends_with(">")) {
    value = value.substr(6, value.size() - 7);
    const std::size_t colon = std::min(value.find(':'), value.size());
    element = MlirText::trimmed(value.substr(0, colon));
    list = value.substr(std::min(colon + 1, value.size()));
  } else if (dense) {
    const std::size_t type = value.rfind(" tensor<"), end = value.rfind('>', type);
    if (type == value.npos || end == value.npos || !value.ends_with(">")) return {};
    element = value.substr(value.find_last_of("<x") + 1);
    element.remove_suffix(1);
    if (element_bytes(element) == 0) return {};
    count = static_cast<std::size_t>(mlir_type(value.substr(type + 1)).size());
    list = value.substr(6, end - 6);
  } else {
    const std::size_t colon = std::min(value.find(':'), value.size());
    list = MlirText::trimmed(value.substr(0, colon));
    element = MlirText::trimmed(value.substr(std::min(colon + 1, value.size())));
    if (element.empty()) element = list.find('.') == list.npos ? "i64" : "f64";
    if (element == "index") element = "i64";
    if (element_bytes(element) == 0) return number_of(list, element);
    if (list.starts_with("[") || list.starts_with("\"")) return {};
    one = true;
    count = 1;
  }
  const std::size_t size = element_bytes(element);
  if (size == 0) return {};
  const auto bytes = list_bytes(list, element, size);
  if (!bytes || bytes->size() % size != 0) return {};
  const std::size_t given = bytes->size() / size, wanted = count.value_or(given);
  if (given != wanted && (given != 1 || !dense)) return {};
  if (!is_listed(wanted, bytes->size())) return {};
  const auto numbers = numbers_of_bytes(element, *bytes, size, wanted);
  if (!one) return numbers;
  if (const auto* whole = std::get_if<std::vector<std::int64_t>>(&*numbers)) return whole->at(0);
  return std::get<std::vector<double>>(*numbers).at(0);
}

void require_one_device(std::string_view operation, std::string_view name,
                        const std::optional<Attribute>& value) {
  bool one = true;
  const std::vector<std::int64_t>* groups = nullptr;
  if (value) groups = std::get_if<std::vector<std::int64_t>>(&*value);
  if (name.starts_with("mhlo."))
    one = value == Attribute(std::int64_t{1});
  else if (groups)
    one = std::ranges::none_of(*groups, [](std::int64_t device) { return device > 0; });
  if (!one)
    throw Error(ErrorCode::unimplemented, "it is for several devices; one is what can be loaded");
  if (operation == "all_to_all" && name == "replica_groups" && (!groups || groups->empty()))
    throw Error(ErrorCode::unimplemented, "operation 'all_to_all' has groups of no device");
}

}  // namespace postern::internal::imported
