// Sums and extremes of rows, in the order of the processes: all get the same bits.
#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>

#include "reduce.h"
#include "spi.h"

namespace postern::internal::clusters {

namespace {

/// What a sum is kept in: elements of two bytes are rounded once, at the end; integers wrap.
template <class T>
struct Kept {
  using type = T;
};
template <>
struct Kept<Eigen::half> {
  using type = float;
};
template <>
struct Kept<Eigen::bfloat16> {
  using type = float;
};
template <class T>
requires std::is_integral_v<T>
struct Kept<T> {
  using type = std::make_unsigned_t<T>;
};

struct Sum {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(a + b);
    else
      return a + b;
  }
};
template <class T>
bool is_negative(T x) {
  return !std::is_integral_v<T> && std::signbit(static_cast<double>(x));
}
/// nan wins, and of two zeros the positive one is the larger, as between devices.
struct Max {
  template <class T>
  static T of(T a, T b) {
    if (a == b) return is_negative(a) ? b : a;
    return a != a || a > b ? a : b;
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    if (a == b) return is_negative(a) ? a : b;
    return a != a || a < b ? a : b;
  }
};

template <class T, class K, class F>
void rows_as(std::span<const void* const> rows, std::size_t count, void* out) {
  if constexpr (std::is_same_v<T, K> || std::is_integral_v<T>) {
    if (rows.size() == 2) {  // nothing is to be kept
      const auto *const a = static_cast<const K*>(rows[0]), *const b =
                                                                static_cast<const K*>(rows[1]);
      auto* const to = static_cast<K*>(out);
      for (std::size_t i = 0; i < count; ++i) to[i] = F::of(a[i], b[i]);
      return;
    }
  }
  constexpr std::size_t at_a_time = 1024;
  K kept[at_a_time];
  for (std::size_t begin = 0; begin < count; begin += at_a_time) {
    const std::size_t n = std::min(at_a_time, count - begin);
    const T* const first = static_cast<const T*>(rows[0]) + begin;
    for (std::size_t i = 0; i < n; ++i) kept[i] = static_cast<K>(first[i]);
    for (std::size_t r = 1; r < rows.size(); ++r) {
      const T* const row = static_cast<const T*>(rows[r]) + begin;
      for (std::size_t i = 0; i < n; ++i) kept[i] = F::of(kept[i], static_cast<K>(row[i]));
    }
    T* const to = static_cast<T*>(out) + begin;
    for (std::size_t i = 0; i < n; ++i) to[i] = static_cast<T>(kept[i]);
  }
}

template <class T>
void reduce_as(Reduction reduction, std::span<const void* const> rows, std::size_t count,
               void* out) {
  if (reduction == Reduction::sum) return rows_as<T, typename Kept<T>::type, Sum>(rows, count, out);
  if constexpr (!std::is_same_v<T, std::complex<float>> &&
                !std::is_same_v<T, std::complex<double>>) {
    if (reduction == Reduction::max) return rows_as<T, T, Max>(rows, count, out);
    return rows_as<T, T, Min>(rows, count, out);
  }
}

using Function = void (*)(Reduction, std::span<const void* const>, std::size_t, void*);

Function function_for(DType dtype) {
  switch (dtype) {
    case DType::s8: return reduce_as<std::int8_t>;
    case DType::s16: return reduce_as<std::int16_t>;
    case DType::s32: return reduce_as<std::int32_t>;
    case DType::s64: return reduce_as<std::int64_t>;
    case DType::u8: return reduce_as<std::uint8_t>;
    case DType::u16: return reduce_as<std::uint16_t>;
    case DType::u32: return reduce_as<std::uint32_t>;
    case DType::u64: return reduce_as<std::uint64_t>;
    case DType::f16: return reduce_as<Eigen::half>;
    case DType::bf16: return reduce_as<Eigen::bfloat16>;
    case DType::f32: return reduce_as<float>;
    case DType::f64: return reduce_as<double>;
    case DType::c64: return reduce_as<std::complex<float>>;
    case DType::c128: return reduce_as<std::complex<double>>;
    default: return nullptr;
  }
}

}  // namespace

void reduce_rows(Reduction reduction, DType dtype, std::span<const void* const> rows,
                 std::size_t count, void* out) {
  const Function f = function_for(dtype);
  check(f != nullptr, "{} is not reduced over processes", to_string(dtype));
  f(reduction, rows, count, out);
}

}  // namespace postern::internal::clusters
