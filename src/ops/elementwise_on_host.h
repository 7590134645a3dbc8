// Elementwise operations in host memory.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/on_host.h"

namespace postern::internal::on_host {

/// x where it comes before y. Of zeros of both signs XLA takes which it likes: NaN, which is
/// unusual, leaves the choice to it.
template <class Before>
struct Choice {
  template <class X>
  X operator()(X x, X y) const {
    if constexpr (std::is_floating_point_v<X>)
      if (x == y && std::signbit(x) != std::signbit(y)) return std::numeric_limits<X>::quiet_NaN();
    if (Before()(x, y)) return x;
    return y;
  }
};
struct Not {
  template <std::integral X>
  X operator()(X x) const {
    if constexpr (std::is_same_v<X, bool>)
      return !x;
    else
      return static_cast<X>(~x);
  }
};
/// Where bits go, and what comes in behind them: zeros, or to the right copies of the highest bit,
/// also of unsigned numbers.
enum class Bits { left, right, right_signed };
/// A shift by as many bits as y says, read as unsigned: by the width or more, all go out.
template <Bits way>
struct Shift {
  template <std::integral X>
  X operator()(X x, X y) const requires(!std::is_same_v<X, bool>) {
    using U = std::make_unsigned_t<X>;
    constexpr int width = 8 * sizeof(X);
    const int by = static_cast<int>(std::min<U>(static_cast<U>(y), width));
    if constexpr (way == Bits::right_signed)
      return static_cast<X>(static_cast<std::make_signed_t<X>>(x) >> std::min(by, width - 1));
    if (by == width) return 0;
    if constexpr (way == Bits::left) return static_cast<X>(static_cast<U>(x) << by);
    return static_cast<X>(static_cast<U>(x) >> by);
  }
};

/// Calls f with an unsigned word of the dtype's width; returns false where there is none.
template <class F>
bool with_bits(DType dtype, F&& f) {
  switch (byte_width(dtype)) {
    case 1: return f(std::uint8_t());
    case 2: return f(std::uint16_t());
    case 4: return f(std::uint32_t());
    case 8: return f(std::uint64_t());
    default: return false;
  }
}

/// Multiplies; of complex numbers XLA chooses how it rounds.
inline bool multiply(const Params* params, const HostArrays& a) {
  return !is_complex(a.types[0].dtype) && binary<Wrapping<std::multiplies<>>>(params, a);
}
inline bool divide(const Params* params, const HostArrays& a) {
  return is_float(a.types[0].dtype) && binary<std::divides<>>(params, a);
}
inline bool select(const Params*, const HostArrays& a) {
  return with_bits(a.types[1].dtype, [&]<class T>(T) {
    return each<T, bool, T, T>(a, a.types[0].size(),
                               [](bool c, auto x, auto y) { return c ? x : y; });
  });
}
/// Computes a comparison that gives these for x == y, x < y and x > y.
inline bool order(const HostArrays& a, int equal, int less, int greater) {
  return with_element(a.types[0].dtype, [&]<class T>(T) {
    return each<bool, T, T>(a, a.types[0].size(), [&](auto x, auto y) {
      if (x == y) return equal;
      if (x < y) return less;
      return greater;
    });
  });
}

}  // namespace postern::internal::on_host
