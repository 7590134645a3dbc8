// Operations on tensors. Shapes broadcast as in NumPy, dtypes promote as in JAX, C++ numbers are
// weakly typed. Every function throws TypeError (operation, what was required, what came, place)
// for operands that do not fit.
#pragma once
#include <postern/tensor.h>

#include <limits>
#include <optional>
#include <span>

namespace postern {

// --- elementwise arithmetic: results have the promoted dtype and the broadcast shape
// ----------------------------------------
Tensor add(const Operand& x, const Operand& y);
Tensor subtract(const Operand& x, const Operand& y);
Tensor multiply(const Operand& x, const Operand& y);
Tensor divide(const Operand& x, const Operand& y);     // of integers: truncates toward zero
Tensor remainder(const Operand& x, const Operand& y);  // sign of x, as C's fmod
Tensor pow(
    const Operand& x,
    const Operand& y);  // integer y is exact; the derivative by x at x = 0 is right for y >= 1
Tensor maximum(const Operand& x,
               const Operand& y);  // NaN wins; equal operands share the derivative
Tensor minimum(const Operand& x, const Operand& y);
Tensor negative(const Operand& x);
Tensor abs(const Operand& x);  // of complex: the magnitude, real
Tensor sign(const Operand& x);

// --- elementwise functions of float or complex x; integers become f32
// ---------------------------------------------------------
Tensor exp(const Operand& x);
Tensor expm1(const Operand& x);
Tensor log(const Operand& x);
Tensor log1p(const Operand& x);
Tensor sqrt(const Operand& x);
Tensor rsqrt(const Operand& x);
Tensor cbrt(const Operand& x);  // real x
Tensor sin(const Operand& x);
Tensor cos(const Operand& x);
Tensor tan(const Operand& x);
Tensor tanh(const Operand& x);
Tensor atan2(const Operand& y, const Operand& x);
Tensor logistic(const Operand& x);
Tensor erf(const Operand& x);  // real x
Tensor erf_inv(const Operand& x);
Tensor floor(const Operand& x);
Tensor ceil(const Operand& x);
Tensor round(const Operand& x);      // halves to even
Tensor is_finite(const Operand& x);  // pred
inline Tensor square(const Operand& x) { return multiply(x, x); }

// --- comparison (pred results) and logic (pred or integer)
// ----------------------------------------------------------------------
Tensor equal(const Operand& x, const Operand& y);
Tensor not_equal(const Operand& x, const Operand& y);
Tensor less(const Operand& x, const Operand& y);  // ordered dtypes only
Tensor less_equal(const Operand& x, const Operand& y);
Tensor greater(const Operand& x, const Operand& y);
Tensor greater_equal(const Operand& x, const Operand& y);
Tensor logical_and(const Operand& x, const Operand& y);  // of integers: bitwise
Tensor logical_or(const Operand& x, const Operand& y);
Tensor logical_xor(const Operand& x, const Operand& y);
Tensor logical_not(const Operand& x);
Tensor population_count(const Operand& x);     // integers
Tensor count_leading_zeros(const Operand& x);  // integers
Tensor shift_left(const Operand& x, const Operand& bits);
Tensor shift_right(const Operand& x,
                   const Operand& bits);  // arithmetic for signed, logical for unsigned integers
Tensor shift_right_logical(const Operand& x, const Operand& bits);

/// x where `condition` (pred, broadcast) holds, else y.
Tensor where(const Operand& condition, const Operand& x, const Operand& y);

/// The same values in another dtype. Float to integer truncates, complex to real drops the
/// imaginary part, to pred means "is not zero".
Tensor convert(const Operand& x, DType dtype);
template <Element T>
Tensor convert(const Operand& x) {
  return convert(x, dtype_v<T>);
}
/// The same bits under another dtype of the same width.
Tensor bitcast(const Operand& x, DType dtype);
Tensor real(const Operand& x);
Tensor imag(const Operand& x);
Tensor conj(const Operand& x);
Tensor complex(const Operand& real, const Operand& imag);  // f32 or f64 parts

// --- making
// -------------------------------------------------------------------------------------------------
Tensor full(const Type& type, const Operand& number);  // every element that number, converted
Tensor zeros(const Type& type, Place place = Place::current());
Tensor ones(const Type& type, Place place = Place::current());
Tensor zeros_like(const Operand& x);
Tensor ones_like(const Operand& x);
/// 0, 1, 2, ... along `axis`.
Tensor iota(const Type& type, std::int64_t axis, Place place = Place::current());
template <Element T>
Tensor iota(std::int64_t n, Place place = Place::current()) {
  return iota(type<T>({n}), 0, place);
}
/// pred: true on the diagonal; `eye<T>(n)` the identity matrix.
Tensor eye(DType dtype, std::int64_t rows, std::int64_t columns, Place place = Place::current());
template <Element T>
Tensor eye(std::int64_t n, Place place = Place::current()) {
  return eye(dtype_v<T>, n, n, place);
}

// --- shape
// -------------------------------------------------------------------------------------------------
/// Same elements, row-major; one extent may be -1 and is then computed.
Tensor reshape(const Operand& x, const Dims& dims);
/// Axis i of the result is axis order[i] of x; without `order` all axes are reversed.
Tensor transpose(const Operand& x, const Dims& order);
Tensor transpose(const Operand& x);
/// NumPy's broadcast_to.
Tensor broadcast_to(const Operand& x, const Dims& dims);
Tensor expand_dims(const Operand& x, std::int64_t axis);
Tensor squeeze(const Operand& x, const Dims& axes);
Tensor concatenate(std::span<const Tensor> parts, std::int64_t axis = 0,
                   Place place = Place::current());
inline Tensor concatenate(std::initializer_list<Tensor> parts, std::int64_t axis = 0,
                          Place place = Place::current()) {
  return concatenate(std::span(parts.begin(), parts.size()), axis, place);
}
/// x[start:limit:stride] on each axis; `strides` empty: all 1. Bounds are checked, not clamped.
Tensor slice(const Operand& x, const Dims& start, const Dims& limit, const Dims& strides = {});
/// x[start:limit] along one axis; negative numbers count from the end.
Tensor slice_axis(const Operand& x, std::int64_t axis, std::int64_t start, std::int64_t limit,
                  std::int64_t stride = 1);
/// `low` and `high` elements of `value` at both ends of each axis (negative: removed), `interior`
/// between elements.
Tensor pad(const Operand& x, const Operand& value, const Dims& low, const Dims& high,
           const Dims& interior = {});
Tensor reverse(const Operand& x, const Dims& axes);

// --- reductions: over `axes` (none given: all), which disappear unless keep_dims. The dtype is
// kept; sum of pred is s32 -----------
struct ReduceOptions {
  std::optional<Dims> axes = {};
  bool keep_dims = false;
};
Tensor sum(const Operand& x, const ReduceOptions& options = {});
Tensor prod(const Operand& x, const ReduceOptions& options = {});
Tensor max(const Operand& x,
           const ReduceOptions& options = {});  // no elements: the smallest value of the dtype
Tensor min(const Operand& x, const ReduceOptions& options = {});
Tensor mean(const Operand& x, const ReduceOptions& options = {});  // integers become f32
Tensor all(const Operand& x, const ReduceOptions& options = {});   // of pred or integers (bitwise)
Tensor any(const Operand& x, const ReduceOptions& options = {});
/// Index (s32) of the first largest element along `axis`; NaN counts as the largest.
Tensor argmax(const Operand& x, std::int64_t axis = -1);
Tensor argmin(const Operand& x, std::int64_t axis = -1);

// --- products
// -------------------------------------------------------------------------------------------------
/// As numpy.matmul: rank 1 is a row or column, axes before the last two broadcast.
Tensor matmul(const Operand& x, const Operand& y);
/// Contraction over pairs of axes, with pairs of batch axes that lead the result; StableHLO's
/// dot_general.
struct DotAxes {
  Dims contract_x, contract_y, batch_x, batch_y;
};
Tensor dot_general(const Operand& x, const Operand& y, const DotAxes& axes);

// --- indices
// -------------------------------------------------------------------------------------------------
/// Rows of x along `axis` at integer `indices` (of any shape, which takes the axis's place).
/// Negative indices count from the end; those out of range give NaN (or the dtype's smallest value
/// for integers), as jax.numpy.take does.
Tensor take(const Operand& x, const Operand& indices, std::int64_t axis = 0);
/// 1 where the last axis's index is `indices`, else 0; rows for indices out of range are zero.
Tensor one_hot(const Operand& indices, std::int64_t classes, DType dtype = DType::f32);
/// Sorted along `axis`, stable; NaN last.
Tensor sort(const Operand& x, std::int64_t axis = -1);
/// The order (s32) that sorts x along `axis`, stable.
Tensor argsort(const Operand& x, std::int64_t axis = -1);

// --- from these
// -------------------------------------------------------------------------------------------------
Tensor softmax(const Operand& x, std::int64_t axis = -1);
Tensor log_softmax(const Operand& x, std::int64_t axis = -1);
Tensor logsumexp(const Operand& x, const ReduceOptions& options = {});

}  // namespace postern
