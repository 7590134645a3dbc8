// Reading elements.
#include "print/number.h"

#include <Eigen/Core>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/lists.h"

namespace postern::internal::host {

namespace {

template <class T>
double load(const std::byte* data, std::int64_t i) {
  T value;
  std::memcpy(&value, data + size_of(i) * sizeof value, sizeof value);
  return static_cast<double>(value);
}

/// Floats of a byte and less, with a sign bit in front. `ieee` has infinities and nans in the
/// largest exponent, `finite` there one nan, all ones, and numbers; `no_nan` has numbers alone, as
/// has `unsigned_zero` but for nan in place of -0.
struct SmallFloat {
  int exponent_bits, mantissa_bits, bias;
  enum Kind { ieee, finite, unsigned_zero, no_nan } kind;
};

double decode(const SmallFloat& f, unsigned bits) {
  const unsigned mantissa_ones = (1u << f.mantissa_bits) - 1,
                 exponent_ones = (1u << f.exponent_bits) - 1;
  const unsigned mantissa = bits & mantissa_ones,
                 exponent = (bits >> f.mantissa_bits) & exponent_ones;
  const bool negative = (bits >> (f.mantissa_bits + f.exponent_bits)) & 1;
  const double sign = negative ? -1 : 1;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (f.kind == SmallFloat::unsigned_zero && negative && exponent == 0 && mantissa == 0) return nan;
  if (exponent == exponent_ones && f.kind == SmallFloat::ieee) {
    if (mantissa) return nan;
    return sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == exponent_ones && mantissa == mantissa_ones && f.kind == SmallFloat::finite)
    return nan;
  const double fraction = std::ldexp(mantissa, -f.mantissa_bits);
  const int power = static_cast<int>(exponent) - f.bias;
  if (exponent == 0) return sign * std::ldexp(fraction, 1 - f.bias);  // subnormal
  return sign * std::ldexp(1 + fraction, power);
}

}  // namespace

double real_at(DType dtype, const std::byte* data, std::int64_t i) {
  const auto bits = [&] { return std::to_integer<unsigned>(data[i]); };
  switch (dtype) {
    case DType::pred: return load<bool>(data, i);
    case DType::s2:
    case DType::s4:
    case DType::s8: return load<std::int8_t>(data, i);
    case DType::s16: return load<std::int16_t>(data, i);
    case DType::s32: return load<std::int32_t>(data, i);
    case DType::s64: return load<std::int64_t>(data, i);
    case DType::u2:
    case DType::u4:
    case DType::u8: return load<std::uint8_t>(data, i);
    case DType::u16: return load<std::uint16_t>(data, i);
    case DType::u32: return load<std::uint32_t>(data, i);
    case DType::u64: return load<std::uint64_t>(data, i);
    case DType::f16: return static_cast<double>(load<Eigen::half>(data, i));
    case DType::bf16: return static_cast<double>(load<Eigen::bfloat16>(data, i));
    case DType::f32: return load<float>(data, i);
    case DType::f64: return load<double>(data, i);
    case DType::c64: return load<float>(data, 2 * i);
    case DType::c128: return load<double>(data, 2 * i);
    case DType::f8e5m2: return decode({5, 2, 15, SmallFloat::ieee}, bits());
    case DType::f8e4m3: return decode({4, 3, 7, SmallFloat::ieee}, bits());
    case DType::f8e3m4: return decode({3, 4, 3, SmallFloat::ieee}, bits());
    case DType::f8e4m3fn: return decode({4, 3, 7, SmallFloat::finite}, bits());
    case DType::f8e4m3b11fnuz: return decode({4, 3, 11, SmallFloat::unsigned_zero}, bits());
    case DType::f8e5m2fnuz: return decode({5, 2, 16, SmallFloat::unsigned_zero}, bits());
    case DType::f8e4m3fnuz: return decode({4, 3, 8, SmallFloat::unsigned_zero}, bits());
    case DType::f8e8m0fnu:
      if (bits() == 255) return std::numeric_limits<double>::quiet_NaN();
      return std::ldexp(1.0, static_cast<int>(bits()) - 127);
    case DType::f4e2m1fn: return decode({2, 1, 1, SmallFloat::no_nan}, bits());
    case DType::token: break;
  }
  return 0;
}

std::pair<double, double> complex_at(DType dtype, const std::byte* data, std::int64_t i) {
  if (dtype == DType::c64) return {load<float>(data, 2 * i), load<float>(data, 2 * i + 1)};
  if (dtype == DType::c128) return {load<double>(data, 2 * i), load<double>(data, 2 * i + 1)};
  return {real_at(dtype, data, i), 0};
}

}  // namespace postern::internal::host
