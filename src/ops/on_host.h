// Rules on_host: what small tensors go through outside of programs without XLA, to XLA's bits.
// Moving elements and whole numbers leave no choice. Nor do floats where IEEE says what a result is
// and nothing unusual comes or goes: what is no number or subnormal is left to XLA, whose platforms
// differ in that.
#pragma once
#include <Eigen/Core>

#include <cmath>
#include <concepts>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#include "core/primitive.h"

namespace postern::internal::on_host {

// --- moving elements ---

/// A walk over two arrays of extents `dims`: steps along each axis, and where to begin, in
/// elements. Steps may be 0 or negative.
struct Walk {
  Dims dims, from, to;  // steps
  std::int64_t first = 0, to_first = 0;
};
/// Copies elements of `width` bytes as the walk goes.
void walk(const Walk& walk, std::size_t width, const void* from, void* to);

/// Returns the steps of row-major elements.
Dims row_major(const Dims& dims);

/// Fills the result, row-major, with the first operand's elements from `first` on in steps `from`;
/// returns true.
bool moved(const HostArrays& arrays, const Dims& from, std::int64_t first = 0);
/// Fills it with the first operand's elements in their order.
bool copied(const Params* params, const HostArrays& arrays);

// --- computing ---

/// Calls f with some element of that dtype; returns false for one of which C++ has none.
template <class F>
bool with_element(DType dtype, F&& f) {
  switch (dtype) {
    case DType::pred: return f(bool());
    case DType::s8: return f(std::int8_t());
    case DType::s16: return f(std::int16_t());
    case DType::s32: return f(std::int32_t());
    case DType::s64: return f(std::int64_t());
    case DType::u8: return f(std::uint8_t());
    case DType::u16: return f(std::uint16_t());
    case DType::u32: return f(std::uint32_t());
    case DType::u64: return f(std::uint64_t());
    case DType::f16: return f(Eigen::half());
    case DType::bf16: return f(Eigen::bfloat16());
    case DType::f32: return f(float());
    case DType::f64: return f(double());
    default: return false;
  }
}

/// What XLA computes with: small floats as f32.
template <class T>
auto wide(T x) {
  if constexpr (std::is_arithmetic_v<T>)
    return x;
  else
    return static_cast<float>(x);
}

/// Returns whether x is 0 or larger than the smallest normal number, which NaN is not: as 1 or 0,
/// so that many are combined without a branch.
template <class T>
int usual(T x) {
  if constexpr (std::is_integral_v<T>) {
    return 1;
  } else {
    const auto size = std::abs(wide(x));
    return int{size == 0} | int{size > wide(std::numeric_limits<T>::min())};
  }
}

/// Computes result R = f(x, ...) for `count` elements of the operands, one of each X; false where
/// an element or result is unusual.
template <class R, class... X, class F>
bool each(const HostArrays& arrays, std::int64_t count, F&& f) {
  return [&]<std::size_t... i>(std::index_sequence<i...>) {
    const std::tuple operands{static_cast<const X*>(arrays.operands[i])...};
    auto* const to = static_cast<R*>(arrays.to[0]);
    int all = 1;
    for (std::int64_t at = 0; at < count; ++at) {
      to[at] = static_cast<R>(f(wide(std::get<i>(operands)[at])...));
      all &= usual(to[at]) & (usual(std::get<i>(operands)[at]) & ...);
    }
    return all != 0;
  }
  (std::index_sequence_for<X...>());
}

/// An operation on integers as on unsigned ones, of 32 bits or more (+ 0u), which wrap around.
template <class F>
struct Wrapping {
  template <std::integral... X>
  auto operator()(X... x) const {
    return F()(static_cast<std::make_unsigned_t<decltype(x + 0u)>>(x)...);
  }
  template <std::floating_point... X>
  auto operator()(X... x) const requires std::invocable<F, X...> {
    return F()(x...);
  }
};

/// Computes f(count, some element) for the operands' dtype; of complex numbers for both parts.
template <class F>
bool with_elements(const HostArrays& arrays, F&& f) {
  const Type& type = arrays.types[0];
  const std::int64_t count = is_complex(type.dtype) ? 2 * type.size() : type.size();
  return with_element(real_dtype(type.dtype), [&](auto one) { return f(count, one); });
}
/// Computes z = F(x) or z = F(x, y), all of one dtype; false for one that F does not take.
template <class F>
bool unary(const Params*, const HostArrays& arrays) {
  return with_elements(arrays, [&]<class T>(std::int64_t count, T one) {
    if constexpr (std::invocable<F, decltype(wide(one))>) return each<T, T>(arrays, count, F());
    return false;
  });
}
template <class F>
bool binary(const Params*, const HostArrays& arrays) {
  return with_elements(arrays, [&]<class T>(std::int64_t count, T one) {
    using Wide = decltype(wide(one));
    if constexpr (std::invocable<F, Wide, Wide>) return each<T, T, T>(arrays, count, F());
    return false;
  });
}

}  // namespace postern::internal::on_host
