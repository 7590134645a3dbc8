// Arithmetic on extents that comes from users' numbers: what does not fit is refused, never
// wrapped.
#pragma once
#include <postern/type.h>

#include "core/check.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace postern::internal {

/// Looks at the rank of a user's shape before work is done by axis.
inline void check_rank(const Dims& dims) {
  check(dims.size() <= std::size_t{max_rank}, "a tensor has at most {} axes, got {}", max_rank,
        dims.size());
}

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

/// Counts the windows in `extent` elements, each begun `stride` behind the one before.
inline std::int64_t window_places(std::int64_t extent, std::int64_t window, std::int64_t stride) {
  if (extent < window || extent == 0) return 0;
  return (extent - window) / stride + 1;
}

/// Returns the extent of `extent` elements that lie `step` apart.
inline std::int64_t spread_extent(std::int64_t extent, std::int64_t step) {
  if (extent == 0) return 0;
  return extent_sum(extent_product(extent - 1, step), 1);
}

/// Returns the padding in front and behind with which `extent` elements have extent / stride
/// windows, rounded up; the odd one goes behind.
inline std::pair<std::int64_t, std::int64_t> same_padding(std::int64_t extent, std::int64_t window,
                                                          std::int64_t stride) {
  const std::int64_t places = extent / stride + (extent % stride != 0),
                     covered = (places - 1) * stride + window;
  const std::int64_t missing = std::max<std::int64_t>(covered - extent, 0);
  return {missing / 2, missing - missing / 2};
}

}  // namespace postern::internal
