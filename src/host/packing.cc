// Packing and unpacking.
#include "host/packing.h"

#include <cstdint>
#include <cstring>

namespace postern::host {

void unpack(DType dtype, const void* packed, void* unpacked, std::size_t elements) {
  const int bits = bit_width(dtype), per_byte = 8 / bits;
  const auto* from = static_cast<const std::uint8_t*>(packed);
  auto* to = static_cast<std::int8_t*>(unpacked);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto high = static_cast<std::uint8_t>(from[i / static_cast<std::size_t>(per_byte)]
                                                << (8 - bits - static_cast<int>(i % static_cast<std::size_t>(per_byte)) * bits));
    to[i] = is_signed(dtype) ? static_cast<std::int8_t>(static_cast<std::int8_t>(high) >> (8 - bits))
                             : static_cast<std::int8_t>(high >> (8 - bits));
  }
}

bool pack(DType dtype, const void* unpacked, void* packed, std::size_t elements, std::size_t& bad) {
  const int bits = bit_width(dtype);
  const auto per_byte = static_cast<std::size_t>(8 / bits);
  const int low = is_signed(dtype) ? -(1 << (bits - 1)) : 0, high = low + (1 << bits) - 1;
  const auto* from = static_cast<const std::int8_t*>(unpacked);
  auto* to = static_cast<std::uint8_t*>(packed);
  std::memset(to, 0, (elements + per_byte - 1) / per_byte);
  for (std::size_t i = 0; i < elements; ++i) {
    const int value = is_signed(dtype) ? from[i] : static_cast<int>(static_cast<std::uint8_t>(from[i]));
    if (value < low || value > high) {
      bad = i;
      return false;
    }
    to[i / per_byte] = static_cast<std::uint8_t>(to[i / per_byte] | (value & ((1 << bits) - 1)) << (static_cast<int>(i % per_byte) * bits));
  }
  return true;
}

}  // namespace postern::host
