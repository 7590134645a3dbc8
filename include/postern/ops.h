// Operations on tensors. Shapes broadcast as in NumPy, dtypes promote as in JAX, C++ numbers are
// weakly typed. Every function throws TypeError (operation, what was required, what came, place)
// for operands that do not fit: of a dtype that it does not take, of shapes that do not broadcast,
// a C++ number that the other operand's integer dtype does not have, an empty Tensor, one of a
// trace that is over.
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

#include <concepts>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <utility>

namespace postern {

// --- elementwise arithmetic ---

// Results have the promoted dtype and the broadcast shape.

/// Returns x + y. Of numbers of any dtype; of pred it is "or".
[[nodiscard]] POSTERN_API Tensor add(const Operand& x, const Operand& y);
/// Returns x - y. Of numbers of any dtype, not of pred.
[[nodiscard]] POSTERN_API Tensor subtract(const Operand& x, const Operand& y);
/// Returns x y. Of numbers of any dtype; of pred it is "and".
[[nodiscard]] POSTERN_API Tensor multiply(const Operand& x, const Operand& y);
/// Returns x / y. Of numbers of any dtype; of integers truncated toward zero, and by zero -1 (the
/// greatest number of unsigned dtypes).
[[nodiscard]] POSTERN_API Tensor divide(const Operand& x, const Operand& y);
/// Returns what division leaves, with the sign of x, as C's fmod. Of integers and floats; of
/// integers by zero it is x.
[[nodiscard]] POSTERN_API Tensor remainder(const Operand& x, const Operand& y);
/// Returns x to the power of y. Of numbers of any dtype; with an integer y it is exact. The
/// derivative by x at x = 0 is right for y >= 1.
[[nodiscard]] POSTERN_API Tensor pow(const Operand& x, const Operand& y);
/// Returns the larger or the smaller one, of any dtype: NaN wins. Complex numbers are compared by
/// their real, then by their imaginary parts; as in JAX y is returned where NaN decides. Equal
/// operands share the derivative.
[[nodiscard]] POSTERN_API Tensor maximum(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor minimum(const Operand& x, const Operand& y);
/// Returns -x, of x's type. Of numbers of any dtype; unsigned ones wrap around.
[[nodiscard]] POSTERN_API Tensor negative(const Operand& x);
/// Returns |x|, of numbers of any dtype and x's type; of complex ones the magnitude, which is real.
[[nodiscard]] POSTERN_API Tensor abs(const Operand& x);
/// Returns -1, 0 or 1, of numbers of any dtype and x's type; of complex ones x / |x|. NaN stays
/// NaN.
[[nodiscard]] POSTERN_API Tensor sign(const Operand& x);

// --- elementwise functions ---

// Of float or complex x, unless said otherwise, and of x's type; integers and pred become f32.

/// Returns e to the power of x; the same less 1, exact near 0.
[[nodiscard]] POSTERN_API Tensor exp(const Operand& x);
[[nodiscard]] POSTERN_API Tensor expm1(const Operand& x);
/// Returns the natural logarithm of x; that of 1 + x, exact near 0. NaN for negative real
/// arguments.
[[nodiscard]] POSTERN_API Tensor log(const Operand& x);
[[nodiscard]] POSTERN_API Tensor log1p(const Operand& x);
/// Returns the square root of x; 1 over it. NaN for negative real numbers.
[[nodiscard]] POSTERN_API Tensor sqrt(const Operand& x);
[[nodiscard]] POSTERN_API Tensor rsqrt(const Operand& x);
/// Returns the cubic root of real x, with its sign; complex x is a TypeError.
[[nodiscard]] POSTERN_API Tensor cbrt(const Operand& x);
/// Returns that of x in radians.
[[nodiscard]] POSTERN_API Tensor sin(const Operand& x);
[[nodiscard]] POSTERN_API Tensor cos(const Operand& x);
[[nodiscard]] POSTERN_API Tensor tan(const Operand& x);
/// Returns the hyperbolic tangent.
[[nodiscard]] POSTERN_API Tensor tanh(const Operand& x);
/// Returns the angle of the point (x, y) in radians, from -pi to pi, of the promoted dtype and the
/// broadcast shape.
[[nodiscard]] POSTERN_API Tensor atan2(const Operand& y, const Operand& x);
/// Returns 1 / (1 + exp(-x)), the sigmoid.
[[nodiscard]] POSTERN_API Tensor logistic(const Operand& x);
/// Returns the error function of real x, 1 less that, and its inverse on (-1, 1); complex x is a
/// TypeError.
[[nodiscard]] POSTERN_API Tensor erf(const Operand& x);
[[nodiscard]] POSTERN_API Tensor erfc(const Operand& x);
[[nodiscard]] POSTERN_API Tensor erf_inv(const Operand& x);
/// Returns the whole number below, above, or nearest, of which `round` takes the even one where two
/// are near. Integers and pred stay as they are, complex x is a TypeError.
[[nodiscard]] POSTERN_API Tensor floor(const Operand& x);
[[nodiscard]] POSTERN_API Tensor ceil(const Operand& x);
[[nodiscard]] POSTERN_API Tensor round(const Operand& x);
/// Returns pred of x's shape: neither NaN nor infinite. Complex x is a TypeError.
[[nodiscard]] POSTERN_API Tensor is_finite(const Operand& x);
/// Returns x x, of numbers of any dtype or pred and of x's type.
[[nodiscard]] inline Tensor square(const Operand& x) { return multiply(x, x); }

// --- comparison, logic, bits ---

// Operands are promoted and broadcast to each other. None has a derivative.

/// Returns pred: whether they are equal, of any dtype. NaN equals nothing.
[[nodiscard]] POSTERN_API Tensor equal(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor not_equal(const Operand& x, const Operand& y);
/// Returns pred: x < y, x <= y, x > y, x >= y. False where one is NaN; complex numbers are a
/// TypeError.
[[nodiscard]] POSTERN_API Tensor less(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor less_equal(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor greater(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor greater_equal(const Operand& x, const Operand& y);
/// Works on pred as logic, on integers bit by bit; other dtypes are a TypeError.
[[nodiscard]] POSTERN_API Tensor logical_and(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor logical_or(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor logical_xor(const Operand& x, const Operand& y);
[[nodiscard]] POSTERN_API Tensor logical_not(const Operand& x);
/// Returns how many bits of an integer are 1, and how many are 0 before the first 1, of x's type.
[[nodiscard]] POSTERN_API Tensor population_count(const Operand& x);
[[nodiscard]] POSTERN_API Tensor count_leading_zeros(const Operand& x);
/// Moves the bits of integers by so many places. From the left come, to the right, copies of the
/// sign where x is signed; with shift_right_logical always zeros.
[[nodiscard]] POSTERN_API Tensor shift_left(const Operand& x, const Operand& bits);
[[nodiscard]] POSTERN_API Tensor shift_right(const Operand& x, const Operand& bits);
[[nodiscard]] POSTERN_API Tensor shift_right_logical(const Operand& x, const Operand& bits);

// --- choosing and converting ---

/// Returns x where `condition` (pred) holds, else y: of the promoted dtype of x and y, and the
/// shape that all three broadcast to.
///
///   const pn::Tensor x = pn::tensor<float>({-1, 2});
///   const pn::Tensor y = pn::where(x < 0.0f, 0.1f * x, x);  // [-0.1 2]
[[nodiscard]] POSTERN_API Tensor where(const Operand& condition, const Operand& x,
                                       const Operand& y);

/// Returns the same values in another dtype. Float to integer truncates, complex to real drops the
/// imaginary part, to pred means "is not zero".
[[nodiscard]] POSTERN_API Tensor convert(const Operand& x, DType dtype);
template <Element T>
[[nodiscard]] Tensor convert(const Operand& x) {
  return convert(x, dtype_v<T>);
}
/// Returns the same bits under another dtype of the same width; between pred or complex ones and
/// others a TypeError.
[[nodiscard]] POSTERN_API Tensor bitcast(const Operand& x, DType dtype);
/// Returns the parts of complex x, c64 -> f32, c128 -> f64; real x is itself, and has zeros for the
/// other.
[[nodiscard]] POSTERN_API Tensor real(const Operand& x);
[[nodiscard]] POSTERN_API Tensor imag(const Operand& x);
/// Returns the complex conjugate, of x's type; real x is itself.
[[nodiscard]] POSTERN_API Tensor conj(const Operand& x);
/// Returns c64 or c128 of f32 or f64 parts, which are promoted and broadcast; others are a
/// TypeError.
[[nodiscard]] POSTERN_API Tensor complex(const Operand& real, const Operand& imag);

// --- making ---

/// Returns one of that type, with `number`, a scalar, converted, as every element.
[[nodiscard]] POSTERN_API Tensor full(const Type& type, const Operand& number);
/// Returns one of that type, or of x's, with 0 or 1 as every element. TypeError for a dtype that
/// has no such number.
[[nodiscard]] POSTERN_API Tensor zeros(const Type& type, Place place = Place::current());
[[nodiscard]] POSTERN_API Tensor ones(const Type& type, Place place = Place::current());
[[nodiscard]] POSTERN_API Tensor zeros_like(const Operand& x);
[[nodiscard]] POSTERN_API Tensor ones_like(const Operand& x);
/// Returns one of that type, whose dtype is a number's, 0, 1, 2, ... along `axis`; the short form
/// has rank 1.
[[nodiscard]] POSTERN_API Tensor iota(const Type& type, std::int64_t axis,
                                      Place place = Place::current());
template <Element T>
[[nodiscard]] Tensor iota(std::int64_t n, Place place = Place::current()) {
  return iota(type<T>({n}, place), 0, place);
}
/// Returns [rows, columns] of that dtype: 1 (pred: true) on the diagonal, else 0; `eye<T>(n)` is
/// the identity matrix.
[[nodiscard]] POSTERN_API Tensor eye(DType dtype, std::int64_t rows, std::int64_t columns,
                                     Place place = Place::current());
template <Element T>
[[nodiscard]] Tensor eye(std::int64_t n, Place place = Place::current()) {
  return eye(dtype_v<T>, n, n, place);
}

// --- shape ---

// Of any dtype, which is kept. Axes that there are not, and extents that do not fit, are a
// TypeError.

/// Returns same elements, row-major; one extent may be -1 and is then computed.
[[nodiscard]] POSTERN_API Tensor reshape(const Operand& x, const Dims& dims);
/// Axis i of the result is axis order[i] of x; without `order` all axes are reversed.
[[nodiscard]] POSTERN_API Tensor transpose(const Operand& x, const Dims& order);
[[nodiscard]] POSTERN_API Tensor transpose(const Operand& x);
/// Returns x of these extents, as NumPy's broadcast_to: its axes are the last ones, and those of
/// extent 1 are stretched.
[[nodiscard]] POSTERN_API Tensor broadcast_to(const Operand& x, const Dims& dims);
/// Returns x with one more axis, of extent 1, which is then `axis` of the result.
[[nodiscard]] POSTERN_API Tensor expand_dims(const Operand& x, std::int64_t axis);
/// Returns x without these axes, whose extents must be 1.
[[nodiscard]] POSTERN_API Tensor squeeze(const Operand& x, const Dims& axes);
/// Puts one behind the other along `axis`. At least one tensor of rank 1 or more; off the axis
/// their extents are the same, their dtypes are promoted.
[[nodiscard]] POSTERN_API Tensor concatenate(std::span<const Tensor> parts, std::int64_t axis = 0,
                                             Place place = Place::current());
[[nodiscard]] inline Tensor concatenate(std::initializer_list<Tensor> parts, std::int64_t axis = 0,
                                        Place place = Place::current()) {
  return concatenate(std::span(parts.begin(), parts.size()), axis, place);
}
/// Returns x[start:limit:stride] on each axis; `strides` empty: all 1. Bounds are checked, not
/// clamped.
[[nodiscard]] POSTERN_API Tensor slice(const Operand& x, const Dims& start, const Dims& limit,
                                       const Dims& strides = {});
/// Returns x[start:limit:stride] along one axis; negative numbers count from the end. Bounds are
/// checked, not clamped: TypeError.
[[nodiscard]] POSTERN_API Tensor slice_axis(const Operand& x, std::int64_t axis, std::int64_t start,
                                            std::int64_t limit, std::int64_t stride = 1);
/// Returns `low` and `high` elements of `value` at both ends of each axis (negative: removed),
/// `interior` between elements. `value` is a scalar of a dtype that promotes to x's.
///
///   const pn::Tensor x = pn::tensor<float>({1, 2});
///   const pn::Tensor y = pn::pad(x, 0, {1}, {2}, {1});  // [0 1 0 2 0 0]
[[nodiscard]] POSTERN_API Tensor pad(const Operand& x, const Operand& value, const Dims& low,
                                     const Dims& high, const Dims& interior = {});
/// Returns the elements in the opposite order along each of these axes.
[[nodiscard]] POSTERN_API Tensor reverse(const Operand& x, const Dims& axes);

// --- reductions ---

// Over `axes` (none given: all), which disappear unless keep_dims. The dtype is kept unless said
// otherwise.

/// Some axes, or none given: `1`, `{0, -1}` and Dims make them. Nothing throws.
struct ReduceAxes : std::optional<Dims> {
  /// Takes none, which are all, or these. Throws nothing.
  ReduceAxes() = default;
  ReduceAxes(std::optional<Dims> axes) : optional(std::move(axes)) {}
  ReduceAxes(Dims axes) : optional(std::move(axes)) {}
  ReduceAxes(std::initializer_list<std::int64_t> axes) : optional(Dims(axes)) {}
  ReduceAxes(std::integral auto axis) : optional(Dims{static_cast<std::int64_t>(axis)}) {}
};
/// Which axes a reduction is over, and whether they stay, with extent 1.
struct ReduceOptions {
  ReduceAxes axes = {};
  bool keep_dims = false;
};
/// Reduces numbers of any dtype; pred counts as s32. f16 and bf16 are added and multiplied in f32.
///
///   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}});
///   const pn::Tensor all = pn::sum(x), rows = pn::sum(x, 1);              // [3 7]
///   const pn::Tensor kept = pn::sum(x, {.axes = {-1}, .keep_dims = true});  // [[3] [7]]
[[nodiscard]] POSTERN_API Tensor sum(const Operand& x, const ReduceOptions& options = {});
[[nodiscard]] POSTERN_API Tensor prod(const Operand& x, const ReduceOptions& options = {});
/// Returns the largest and the smallest element, of any dtype but complex ones, which are a
/// TypeError. NaN wins; of no elements the smallest (largest) value of the dtype. Equal ones share
/// the derivative.
[[nodiscard]] POSTERN_API Tensor max(const Operand& x, const ReduceOptions& options = {});
[[nodiscard]] POSTERN_API Tensor min(const Operand& x, const ReduceOptions& options = {});
/// Returns the sum over the number of elements; integers and pred become f32, no elements give NaN.
[[nodiscard]] POSTERN_API Tensor mean(const Operand& x, const ReduceOptions& options = {});
/// Returns whether all, or any, are true; of integers bit by bit. Other dtypes are a TypeError.
[[nodiscard]] POSTERN_API Tensor all(const Operand& x, const ReduceOptions& options = {});
[[nodiscard]] POSTERN_API Tensor any(const Operand& x, const ReduceOptions& options = {});
/// Reduces over one axis, which disappears: as NumPy's `sum(x, axis)`.
[[nodiscard]] inline Tensor sum(const Operand& x, std::integral auto axis) {
  return sum(x, ReduceOptions{.axes = axis});
}
[[nodiscard]] inline Tensor prod(const Operand& x, std::integral auto axis) {
  return prod(x, ReduceOptions{.axes = axis});
}
[[nodiscard]] inline Tensor max(const Operand& x, std::integral auto axis) {
  return max(x, ReduceOptions{.axes = axis});
}
[[nodiscard]] inline Tensor min(const Operand& x, std::integral auto axis) {
  return min(x, ReduceOptions{.axes = axis});
}
[[nodiscard]] inline Tensor mean(const Operand& x, std::integral auto axis) {
  return mean(x, ReduceOptions{.axes = axis});
}
[[nodiscard]] inline Tensor all(const Operand& x, std::integral auto axis) {
  return all(x, ReduceOptions{.axes = axis});
}
[[nodiscard]] inline Tensor any(const Operand& x, std::integral auto axis) {
  return any(x, ReduceOptions{.axes = axis});
}
/// Returns index (s32) of the first largest or smallest element along `axis`, which disappears; NaN
/// counts as such. TypeError for complex x and where the axis has no elements.
[[nodiscard]] POSTERN_API Tensor argmax(const Operand& x, std::int64_t axis = -1);
[[nodiscard]] POSTERN_API Tensor argmin(const Operand& x, std::int64_t axis = -1);

// --- products ---

/// How a product of f32 or c64 is computed: rounded first where Config::tf32 allows it (usual), or
/// never (highest, JAX's Precision.HIGHEST). Its derivatives are computed likewise.
enum class Precision : std::uint8_t { usual, highest };

/// Multiplies as numpy.matmul: rank 1 is a row or column, axes before the last two broadcast. Of
/// numbers or pred, of the promoted dtype. TypeError where the contracted axes differ, and for
/// scalars.
[[nodiscard]] POSTERN_API Tensor matmul(const Operand& x, const Operand& y);
/// Contraction over pairs of axes, with pairs of batch axes that lead the result; StableHLO's
/// dot_general. Behind them are the other axes of x, then those of y. Of numbers or pred, of the
/// promoted dtype. TypeError where pairs of axes differ in extent, or one is named twice.
///
///   const pn::Tensor x = pn::ones(pn::type<float>({8, 2, 5}));  // batch, rows, inner
///   const pn::Tensor y = pn::ones(pn::type<float>({8, 5, 3}));  // batch, inner, columns
///   const pn::Tensor z = pn::dot_general(  // f32[8,2,3]
///       x, y, {.contract_x = {2}, .contract_y = {1}, .batch_x = {0}, .batch_y = {0}});
struct DotAxes {
  Dims contract_x, contract_y, batch_x, batch_y;
};
[[nodiscard]] POSTERN_API Tensor dot_general(const Operand& x, const Operand& y,
                                             const DotAxes& axes,
                                             Precision precision = Precision::usual);

// --- indices ---

/// Returns rows of x along `axis` at integer `indices` (of any shape, which takes the axis's
/// place). Negative indices count from the end; those out of range give NaN, as jax.numpy.take
/// does, or of other dtypes what OutOfRange::fill of indexing.h says. TypeError for indices that
/// are no integers, and for some where the axis has no elements.
///
///   const pn::Tensor x = pn::tensor<float>({{1, 2}, {3, 4}, {5, 6}});
///   const pn::Tensor y = pn::take(x, pn::tensor<int>({-1, 0}));  // [[5 6] [1 2]]
[[nodiscard]] POSTERN_API Tensor take(const Operand& x, const Operand& indices,
                                      std::int64_t axis = 0);
/// Returns one of the indices' shape with one more axis of `classes`, at the end: 1 where that
/// axis's index is the one in `indices`, else 0; rows for indices out of range are zero.
[[nodiscard]] POSTERN_API Tensor one_hot(const Operand& indices, std::int64_t classes,
                                         DType dtype = DType::f32);
/// Sorts along `axis`, ascending, stable, of x's type; NaN last, complex numbers by their real,
/// then by their imaginary parts.
[[nodiscard]] POSTERN_API Tensor sort(const Operand& x, std::int64_t axis = -1);
/// Returns the order (s32, of x's shape) that sorts x along `axis`, stable.
[[nodiscard]] POSTERN_API Tensor argsort(const Operand& x, std::int64_t axis = -1);

// --- from these ---

/// Returns exp(x) over its sum along `axis`, and the logarithm of that, of x's type; integers and
/// pred become f32, f16 and bf16 are computed in f32. Large elements do not overflow.
[[nodiscard]] POSTERN_API Tensor softmax(const Operand& x, std::int64_t axis = -1);
[[nodiscard]] POSTERN_API Tensor log_softmax(const Operand& x, std::int64_t axis = -1);
/// Returns log(sum(exp(x))), a reduction; dtypes as softmax has them. Large elements do not
/// overflow.
[[nodiscard]] POSTERN_API Tensor logsumexp(const Operand& x, const ReduceOptions& options = {});
[[nodiscard]] inline Tensor logsumexp(const Operand& x, std::integral auto axis) {
  return logsumexp(x, ReduceOptions{.axes = axis});
}

}  // namespace postern
