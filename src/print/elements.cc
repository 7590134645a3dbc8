// Looking for what is not finite.
#include "print/elements.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/lists.h"
#include "core/versions.h"
#include "print/number.h"

namespace postern::internal::host {

namespace {

/// Returns whether an element has the largest exponent, as nan and infinity have. By blocks of a
/// fixed size, which compilers make vectors of; what is missing of the last one is zeros.
template <class Bits>
[[gnu::always_inline]] inline bool has_exponent(const std::byte* data, std::int64_t n,
                                                Bits largest) {
  constexpr std::int64_t block = 256;
  Bits x[block];
  for (std::int64_t i = 0; i < n; i += block) {
    const auto size = size_of(std::min(block, n - i));
    if (size < block) std::memset(x, 0, sizeof x);
    std::memcpy(x, data + size_of(i) * sizeof(Bits), size * sizeof(Bits));
    Bits found = 0;
    for (std::int64_t k = 0; k < block; ++k) found |= (x[k] & largest) == largest ? 1 : 0;
    if (found) return true;
  }
  return false;
}
POSTERN_VERSIONS bool any_not_finite_32(const std::byte* data, std::int64_t n) {
  return has_exponent<std::uint32_t>(data, n, 0x7f800000u);
}
POSTERN_VERSIONS bool any_not_finite_64(const std::byte* data, std::int64_t n) {
  return has_exponent<std::uint64_t>(data, n, 0x7ff0000000000000u);
}

/// Looks fast for what is not finite: false only where all are finite, as they usually are.
bool may_hold_some(const AnyView& view) {
  if (view.dtype() == DType::f32) return any_not_finite_32(view.data(), view.size());
  if (view.dtype() == DType::f64) return any_not_finite_64(view.data(), view.size());
  return true;
}

}  // namespace

NonFinite non_finite_in(const AnyView& view, std::span<const bool> mask) {
  NonFinite out;
  if (!is_differentiable(view.dtype())) return out;
  each_live(view, mask, [&](const AnyView& part, std::int64_t first) {
    if (!may_hold_some(part)) return;
    for (std::int64_t i = 0; i < part.size() && (out.nan < 0 || out.inf < 0); ++i) {
      const auto [re, im] = complex_at(part.dtype(), part.data(), i);
      const bool is_nan = std::isnan(re) || std::isnan(im);
      const bool is_inf = !is_nan && (std::isinf(re) || std::isinf(im));
      if (is_nan && out.nan < 0) out.nan = first + i;
      if (is_inf && out.inf < 0) out.inf = first + i;
    }
  });
  return out;
}

std::string index_text(std::int64_t flat, std::span<const std::int64_t> dims) {
  if (dims.empty()) return "";
  Dims index(dims.size());
  for (std::size_t axis = dims.size(); axis-- > 0; flat /= dims[axis])
    index[axis] = flat % dims[axis];
  return dims_to_string(index);
}

}  // namespace postern::internal::host
