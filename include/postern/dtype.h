// Element types: their list, C++ counterparts and sizes. No function throws.
#pragma once
#include <postern/detail/api.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

namespace Eigen {
struct half;  // <Eigen/Core> defines them; Postern needs only their names
struct bfloat16;
}  // namespace Eigen

namespace postern {

/// Element types, spelled as in StableHLO. Sub-byte types take one byte an element on the host.
/// `token` never holds data.
enum class DType : std::uint8_t {
  pred,
  s2,
  s4,
  s8,
  s16,
  s32,
  s64,
  u2,
  u4,
  u8,
  u16,
  u32,
  u64,
  f16,
  bf16,
  f32,
  f64,
  c64,
  c128,
  f8e5m2,
  f8e4m3fn,
  f8e4m3b11fnuz,
  f8e5m2fnuz,
  f8e4m3fnuz,
  f8e4m3,
  f8e3m4,
  f8e8m0fnu,
  f4e2m1fn,
  token
};
inline constexpr int dtype_count = static_cast<int>(DType::token) + 1;

/// Returns "f32", "pred", ...: the name in prints and errors.
POSTERN_API std::string_view to_string(DType dtype);

/// Returns bytes of one element on the host.
POSTERN_API std::size_t byte_width(DType dtype);
/// Returns the bits of one element in XLA's memory, where s2, u2, s4, u4 and f4 are packed.
POSTERN_API int bit_width(DType dtype);

/// Returns the range's kind: pred, signed or unsigned integer, real or complex float.
POSTERN_API bool is_signed(DType dtype);
POSTERN_API bool is_unsigned(DType dtype);
POSTERN_API bool is_integer(DType dtype);  // signed or unsigned, not pred
POSTERN_API bool is_float(DType dtype);    // real floating point, 4 to 64 bits
POSTERN_API bool is_complex(DType dtype);
POSTERN_API bool is_differentiable(DType dtype);  // float or complex

/// Returns the dtype of the real part: c64 -> f32, c128 -> f64, others unchanged.
POSTERN_API DType real_dtype(DType dtype);

namespace detail {
template <class T>
constexpr DType dtype_of() {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, bool>)
    return DType::pred;
  else if constexpr (std::is_same_v<U, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<U, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<U, std::complex<float>>)
    return DType::c64;
  else if constexpr (std::is_same_v<U, std::complex<double>>)
    return DType::c128;
  else if constexpr (std::is_same_v<U, Eigen::half>)
    return DType::f16;
  else if constexpr (std::is_same_v<U, Eigen::bfloat16>)
    return DType::bf16;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 1)
    return std::is_signed_v<U> ? DType::s8 : DType::u8;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 2)
    return std::is_signed_v<U> ? DType::s16 : DType::u16;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 4)
    return std::is_signed_v<U> ? DType::s32 : DType::u32;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 8)
    return std::is_signed_v<U> ? DType::s64 : DType::u64;
  else
    return DType::token;
}
}  // namespace detail

/// C++ types that are elements: bool, the integers, float, double, their complex forms, Eigen::half
/// and Eigen::bfloat16.
template <class T>
concept Element = (static_cast<int>(detail::dtype_of<T>()) < static_cast<int>(DType::token));

template <Element T>
inline constexpr DType dtype_v = detail::dtype_of<T>();

}  // namespace postern
