// Putting tensors together, taking them apart, and numbers in a row. Of any dtype, which is kept,
// unless said otherwise. Every function throws TypeError for what does not fit, as in ops.h: shapes
// and counts other than said, and axes that there are not.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <type_traits>
#include <vector>

namespace postern {

/// Stacks at least one tensor, all of one shape, along a new axis, which is then `axis` of the
/// result; dtypes are promoted.
[[nodiscard]] POSTERN_API Tensor stack(std::span<const Tensor> parts, std::int64_t axis = 0,
                                       Place place = Place::current());
[[nodiscard]] inline Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis = 0,
                                  Place place = Place::current()) {
  return stack(std::span(parts.begin(), parts.size()), axis, place);
}
/// Returns `count` equal parts, into which the axis must divide, or the parts between `places`,
/// which rise from 0 to the extent: one more than there are places.
///
///   auto parts = pn::split_at(pn::iota<float>(6), {1, 4});  // f32[1], f32[3], f32[2]
///   const pn::Tensor middle = parts[1];                     // [1 2 3]
[[nodiscard]] POSTERN_API std::vector<Tensor> split(const Operand& x, std::int64_t count,
                                                    std::int64_t axis = 0);
[[nodiscard]] POSTERN_API std::vector<Tensor> split_at(const Operand& x, const Dims& places,
                                                       std::int64_t axis = 0);
/// Returns all of x so many times along each axis (the last ones where there are fewer counts);
/// each element `count` times in a row along `axis`. Counts are 0 or more. The extents are
/// multiplied.
[[nodiscard]] POSTERN_API Tensor tile(const Operand& x, const Dims& counts);
[[nodiscard]] POSTERN_API Tensor repeat(const Operand& x, std::int64_t count, std::int64_t axis);
/// Rolls along one axis; gives x's shape: shifted by `shift` toward the end, in a circle; in the
/// opposite order. Or the axis put in another place, the others in their order.
[[nodiscard]] POSTERN_API Tensor roll(const Operand& x, std::int64_t shift, std::int64_t axis);
[[nodiscard]] POSTERN_API Tensor flip(const Operand& x, std::int64_t axis);
[[nodiscard]] POSTERN_API Tensor move_axis(const Operand& x, std::int64_t from, std::int64_t to);
/// Returns the lower or upper triangle of the last two axes with the k-th diagonal (above the main
/// one when positive), zeros elsewhere. Rank 2 or more; of x's type.
[[nodiscard]] POSTERN_API Tensor tril(const Operand& x, std::int64_t k = 0);
[[nodiscard]] POSTERN_API Tensor triu(const Operand& x, std::int64_t k = 0);
/// Returns the k-th diagonal of two different axes, as the last axis of the result; of the first
/// two axes its sum, with dtypes as in `sum`, one for each place of the other axes.
///
///   const pn::Tensor x = pn::reshape(pn::iota<float>(6), {2, 3});
///   const pn::Tensor main = pn::diagonal(x), above = pn::diagonal(x, 1);  // [1 5]
///   const pn::Tensor trace = pn::matrix_trace(x);                         // 4
[[nodiscard]] POSTERN_API Tensor diagonal(const Operand& x, std::int64_t k = 0,
                                          std::int64_t axis1 = 0, std::int64_t axis2 = 1);
[[nodiscard]] POSTERN_API Tensor matrix_trace(const Operand& x, std::int64_t k = 0);

/// Returns [count] of that dtype: numbers from `start` to `stop`, scalars, of which `stop` is the
/// last one when `endpoint`; integers are rounded down.
[[nodiscard]] POSTERN_API Tensor linspace(DType dtype, const Operand& start, const Operand& stop,
                                          std::int64_t count, bool endpoint = true);
template <Element T>
[[nodiscard]] Tensor linspace(const Operand& start, const Operand& stop, std::int64_t count,
                              bool endpoint = true) {
  return linspace(dtype_v<T>, start, stop, count, endpoint);
}
namespace detail {
/// Returns how many of start, start + step, ... come before stop.
POSTERN_API std::int64_t count_before(double start, double stop, double step, Place place);
POSTERN_API std::int64_t count_before(std::int64_t start, std::int64_t stop, std::int64_t step,
                                      Place place);
POSTERN_API std::int64_t count_before(std::uint64_t start, std::uint64_t stop, std::uint64_t step,
                                      Place place);
}  // namespace detail

/// Returns start, start + step, ...: as many as `type` (of rank 1) says, or all before `stop`, of
/// the C++ type's dtype. A step of 0 is a TypeError, and so are more than 2^63 numbers.
[[nodiscard]] POSTERN_API Tensor arange(const Type& type, const Operand& start,
                                        const Operand& step);
template <Element T>
requires std::is_arithmetic_v<T>
[[nodiscard]] Tensor arange(T start, T stop, T step = 1, Place place = Place::current()) {
  using Integer = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  using Wide = std::conditional_t<std::is_floating_point_v<T>, double, Integer>;
  const std::int64_t count = detail::count_before(static_cast<Wide>(start), static_cast<Wide>(stop),
                                                  static_cast<Wide>(step), place);
  return arange(type<T>({count}), Operand(start, place), step);
}

}  // namespace postern
