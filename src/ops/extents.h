// Arithmetic on extents that comes from users' numbers: what does not fit is refused, never
// wrapped.
#pragma once
#include "core/check.h"

#include <cstdint>

namespace postern {

inline std::int64_t extent_sum(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  check(!__builtin_add_overflow(a, b, &out), "an extent of {} + {} exceeds 63 bits", a, b);
  return out;
}

inline std::int64_t extent_product(std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  check(!__builtin_mul_overflow(a, b, &out), "an extent of {} * {} exceeds 63 bits", a, b);
  return out;
}

/// Of `extent` elements that lie `step` apart.
inline std::int64_t spread_extent(std::int64_t extent, std::int64_t step) {
  return extent == 0 ? 0 : extent_sum(extent_product(extent - 1, step), 1);
}

}  // namespace postern
