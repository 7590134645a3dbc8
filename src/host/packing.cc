// Packing and unpacking.
#include "host/packing.h"

#include <cstdint>
#include <cstring>

#include "core/lists.h"

namespace postern::internal::host {

void unpack(DType dtype, const void* packed, void* unpacked, std::size_t elements) {
  const int bits = bit_width(dtype), per_byte = 8 / bits;
  const auto* from = static_cast<const std::uint8_t*>(packed);
  auto* to = static_cast<std::int8_t*>(unpacked);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto high = static_cast<std::uint8_t>(
        from[i / size_of(per_byte)] << (8 - bits - static_cast<int>(i % size_of(per_byte)) * bits));
    to[i] = is_signed(dtype)
                ? static_cast<std::int8_t>(static_cast<std::int8_t>(high) >> (8 - bits))
                : static_cast<std::int8_t>(high >> (8 - bits));
  }
}

std::pair<int, int> range_of(DType dtype) {
  const int bits = bit_width(dtype), low = is_signed(dtype) ? -(1 << (bits - 1)) : 0;
  return {low, low + (1 << bits) - 1};
}

int element_of(DType dtype, const void* unpacked, std::size_t i) {
  if (is_signed(dtype)) return int{static_cast<const std::int8_t*>(unpacked)[i]};
  return int{static_cast<const std::uint8_t*>(unpacked)[i]};
}

std::size_t first_misfit(DType dtype, const void* unpacked, std::size_t elements) {
  const auto [low, high] = range_of(dtype);
  std::size_t i = 0;
  for (; i < elements; ++i)
    if (const int value = element_of(dtype, unpacked, i); value < low || value > high) break;
  return i;
}

void pack(DType dtype, const void* unpacked, void* packed, std::size_t elements) {
  const int bits = bit_width(dtype);
  const auto per_byte = size_of(8 / bits);
  auto* to = static_cast<std::uint8_t*>(packed);
  std::memset(to, 0, (elements + per_byte - 1) / per_byte);
  for (std::size_t i = 0; i < elements; ++i) {
    const int value = element_of(dtype, unpacked, i);
    to[i / per_byte] = static_cast<std::uint8_t>(
        to[i / per_byte] | (value & ((1 << bits) - 1)) << (static_cast<int>(i % per_byte) * bits));
  }
}

}  // namespace postern::internal::host
