// Reading dense<...>: numbers in lists, one number for all, or bytes in hexadecimal.
#include "constants.h"

#include <postern/ops.h>

#include <Eigen/Core>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "mlir_text.h"

namespace postern::internal::imported {

namespace {

[[noreturn]] void refuse(std::string_view text) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("load: '{}' is no constant that can be read", text.substr(0, 60)));
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Of "0x0A0B" after the 0x.
std::string bytes_of(std::string_view hex) {
  std::string out(hex.size() / 2, '\0');
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<char>(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
  return out;
}

/// The tensor of so many bytes; of pred, where they are `packed`, of bits. Those of one element
/// alone make a scalar.
Tensor tensor_of(const std::string& bytes, const Type& type, bool packed = false) {
  const auto count = static_cast<std::size_t>(type.size());
  const std::size_t width = byte_width(type.dtype);
  if (bytes.size() == count * width) return {type, bytes.data()};
  const Type one{type.dtype, {}};
  if (packed && type.dtype == DType::pred && bytes.size() == (count + 7) / 8) {
    std::string bits(count, '\0');
    for (std::size_t i = 0; i < count; ++i)
      bits[i] = static_cast<char>(static_cast<unsigned char>(bytes[i / 8]) >> (i % 8) & 1);
    return {type, bits.data()};
  }
  if (bytes.size() != width) refuse("a constant whose bytes are not of its type");
  return {one, bytes.data()};
}

template <class T>
void put(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <class T>
T read(std::string_view word) {
  T value{};
  if constexpr (std::is_integral_v<T>) {
    const bool hex = word.starts_with("0x");
    if (hex) word.remove_prefix(2);
    const auto [end, error] =
        std::from_chars(word.data(), word.data() + word.size(), value, hex ? 16 : 10);
    if (error != std::errc() || end != word.data() + word.size()) refuse(word);
  } else {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error == std::errc::result_out_of_range)  // underflow or overflow, as the C library rounds
      return static_cast<T>(parse_number(std::string(word)));
    if (error != std::errc() || end != word.data() + word.size()) refuse(word);
  }
  return value;
}

/// Bits in hexadecimal, or a number.
template <class T, class Bits>
void put_float(std::string& out, std::string_view word) {
  if (word.starts_with("0x"))
    put(out, static_cast<Bits>(read<std::uint64_t>(word)));
  else
    put(out, static_cast<T>(read<double>(word)));
}

void put_element(std::string& out, DType dtype, std::string_view word) {
  switch (dtype) {
    case DType::pred: return put(out, static_cast<std::uint8_t>(word == "true" || word == "1"));
    case DType::f16: return put_float<Eigen::half, std::uint16_t>(out, word);
    case DType::bf16: return put_float<Eigen::bfloat16, std::uint16_t>(out, word);
    case DType::f32:
    case DType::c64:
      if (!word.starts_with("0x")) return put(out, read<float>(word));
      return put(out, static_cast<std::uint32_t>(read<std::uint64_t>(word)));
    case DType::f64:
    case DType::c128: return put_float<double, std::uint64_t>(out, word);
    default: break;
  }
  std::uint64_t bits = 0;
  if (word.starts_with("-"))
    bits = static_cast<std::uint64_t>(read<std::int64_t>(word));
  else
    bits = read<std::uint64_t>(word);
  out.append(reinterpret_cast<const char*>(&bits), byte_width(dtype));
}

bool is_small_float(DType dtype) { return dtype >= DType::f8e5m2 && dtype <= DType::f4e2m1fn; }

/// The words between brackets and commas.
template <class F>
void each_word(std::string_view text, F&& f) {
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t end = std::min(text.find_first_of("[](), \n\t\r", i), text.size());
    if (end > i) f(text.substr(i, end - i));
    i = end + 1;
  }
}

/// Numbers by way of a wider type, or bits.
Tensor small_floats(std::string_view inside, const Type& type) {
  const AtOnce now;
  std::string wide, bytes;
  std::vector<std::pair<std::size_t, char>> bits;
  each_word(inside, [&](std::string_view word) {
    float number = 0;
    if (word.starts_with("0x"))
      bits.emplace_back(wide.size() / sizeof number, static_cast<char>(read<std::uint8_t>(word)));
    else
      number = static_cast<float>(read<double>(word));
    if (type.dtype == DType::f8e8m0fnu && number == 0 && !word.starts_with("0x"))
      bits.emplace_back(wide.size() / sizeof number, '\0');  // it has no zero, but its least
    put(wide, number);
  });
  const auto count = static_cast<std::int64_t>(wide.size() / sizeof(float));
  const Tensor numbers = convert(Tensor({DType::f32, {count}}, wide.data()), type.dtype);
  bytes.resize(static_cast<std::size_t>(count));
  numbers.read(bytes.data());
  for (const auto& [at, bit] : bits) bytes[at] = bit;
  return tensor_of(bytes, type);
}

}  // namespace

Tensor constant_of(std::string_view text, const Type& type) {
  constexpr std::string_view open = "dense<";
  if (!text.starts_with(open)) refuse(text);
  const std::size_t close = text.rfind('>', text.rfind(':'));  // in front of its type
  std::string_view inside = text.substr(open.size(), close - open.size());
  if (inside.starts_with("\"0x"))
    return tensor_of(bytes_of(inside.substr(3, inside.size() - 4)), type, true);
  if (is_small_float(type.dtype)) return small_floats(inside, type);
  std::string bytes;
  each_word(inside, [&](std::string_view word) { put_element(bytes, type.dtype, word); });
  return tensor_of(bytes, type);
}

}  // namespace postern::internal::imported
