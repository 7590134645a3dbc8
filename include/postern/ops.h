// Operations on tensors. Shapes broadcast as in NumPy, dtypes promote as in JAX, C++ numbers are
// weakly typed. Every function throws TypeError (operation, what was required, what came, place)
// for operands that do not fit.
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

#include <limits>
#include <optional>
#include <span>

namespace postern {

// --- elementwise arithmetic: results have the promoted dtype and the broadcast shape
// ----------------------------------------
POSTERN_API Tensor add(const Operand& x, const Operand& y);
POSTERN_API Tensor subtract(const Operand& x, const Operand& y);
POSTERN_API Tensor multiply(const Operand& x, const Operand& y);
POSTERN_API Tensor divide(const Operand& x,
                          const Operand& y);  // of integers: truncates toward zero
POSTERN_API Tensor remainder(const Operand& x, const Operand& y);  // sign of x, as C's fmod
POSTERN_API Tensor
pow(const Operand& x,
    const Operand& y);  // integer y is exact; the derivative by x at x = 0 is right for y >= 1
POSTERN_API Tensor maximum(const Operand& x,
                           const Operand& y);  // NaN wins; equal operands share the derivative
POSTERN_API Tensor minimum(const Operand& x, const Operand& y);
POSTERN_API Tensor negative(const Operand& x);
POSTERN_API Tensor abs(const Operand& x);  // of complex: the magnitude, real
POSTERN_API Tensor sign(const Operand& x);

// --- elementwise functions of float or complex x; integers become f32
// ---------------------------------------------------------
POSTERN_API Tensor exp(const Operand& x);
POSTERN_API Tensor expm1(const Operand& x);
POSTERN_API Tensor log(const Operand& x);
POSTERN_API Tensor log1p(const Operand& x);
POSTERN_API Tensor sqrt(const Operand& x);
POSTERN_API Tensor rsqrt(const Operand& x);
POSTERN_API Tensor cbrt(const Operand& x);  // real x
POSTERN_API Tensor sin(const Operand& x);
POSTERN_API Tensor cos(const Operand& x);
POSTERN_API Tensor tan(const Operand& x);
POSTERN_API Tensor tanh(const Operand& x);
POSTERN_API Tensor atan2(const Operand& y, const Operand& x);
POSTERN_API Tensor logistic(const Operand& x);
POSTERN_API Tensor erf(const Operand& x);  // real x
POSTERN_API Tensor erf_inv(const Operand& x);
POSTERN_API Tensor floor(const Operand& x);  // as ceil and round, integers as they are
POSTERN_API Tensor ceil(const Operand& x);
POSTERN_API Tensor round(const Operand& x);      // halves to even
POSTERN_API Tensor is_finite(const Operand& x);  // pred
inline Tensor square(const Operand& x) { return multiply(x, x); }

// --- comparison (pred results) and logic (pred or integer)
// ----------------------------------------------------------------------
POSTERN_API Tensor equal(const Operand& x, const Operand& y);
POSTERN_API Tensor not_equal(const Operand& x, const Operand& y);
POSTERN_API Tensor less(const Operand& x, const Operand& y);  // ordered dtypes only
POSTERN_API Tensor less_equal(const Operand& x, const Operand& y);
POSTERN_API Tensor greater(const Operand& x, const Operand& y);
POSTERN_API Tensor greater_equal(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_and(const Operand& x, const Operand& y);  // of integers: bitwise
POSTERN_API Tensor logical_or(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_xor(const Operand& x, const Operand& y);
POSTERN_API Tensor logical_not(const Operand& x);
POSTERN_API Tensor population_count(const Operand& x);     // integers
POSTERN_API Tensor count_leading_zeros(const Operand& x);  // integers
POSTERN_API Tensor shift_left(const Operand& x, const Operand& bits);
POSTERN_API Tensor
shift_right(const Operand& x,
            const Operand& bits);  // arithmetic for signed, logical for unsigned integers
POSTERN_API Tensor shift_right_logical(const Operand& x, const Operand& bits);

/// x where `condition` (pred, broadcast) holds, else y.
POSTERN_API Tensor where(const Operand& condition, const Operand& x, const Operand& y);

/// The same values in another dtype. Float to integer truncates, complex to real drops the
/// imaginary part, to pred means "is not zero".
POSTERN_API Tensor convert(const Operand& x, DType dtype);
template <Element T>
Tensor convert(const Operand& x) {
  return convert(x, dtype_v<T>);
}
/// The same bits under another dtype of the same width.
POSTERN_API Tensor bitcast(const Operand& x, DType dtype);
POSTERN_API Tensor real(const Operand& x);
POSTERN_API Tensor imag(const Operand& x);
POSTERN_API Tensor conj(const Operand& x);
POSTERN_API Tensor complex(const Operand& real, const Operand& imag);  // f32 or f64 parts

// --- making
// -------------------------------------------------------------------------------------------------
POSTERN_API Tensor full(const Type& type,
                        const Operand& number);  // every element that number, converted
POSTERN_API Tensor zeros(const Type& type, Place place = Place::current());
POSTERN_API Tensor ones(const Type& type, Place place = Place::current());
POSTERN_API Tensor zeros_like(const Operand& x);
POSTERN_API Tensor ones_like(const Operand& x);
/// 0, 1, 2, ... along `axis`.
POSTERN_API Tensor iota(const Type& type, std::int64_t axis, Place place = Place::current());
template <Element T>
Tensor iota(std::int64_t n, Place place = Place::current()) {
  return iota(type<T>({n}), 0, place);
}
/// pred: true on the diagonal; `eye<T>(n)` the identity matrix.
POSTERN_API Tensor eye(DType dtype, std::int64_t rows, std::int64_t columns,
                       Place place = Place::current());
template <Element T>
Tensor eye(std::int64_t n, Place place = Place::current()) {
  return eye(dtype_v<T>, n, n, place);
}

// --- shape
// -------------------------------------------------------------------------------------------------
/// Same elements, row-major; one extent may be -1 and is then computed.
POSTERN_API Tensor reshape(const Operand& x, const Dims& dims);
/// Axis i of the result is axis order[i] of x; without `order` all axes are reversed.
POSTERN_API Tensor transpose(const Operand& x, const Dims& order);
POSTERN_API Tensor transpose(const Operand& x);
/// NumPy's broadcast_to.
POSTERN_API Tensor broadcast_to(const Operand& x, const Dims& dims);
POSTERN_API Tensor expand_dims(const Operand& x, std::int64_t axis);
POSTERN_API Tensor squeeze(const Operand& x, const Dims& axes);
POSTERN_API Tensor concatenate(std::span<const Tensor> parts, std::int64_t axis = 0,
                               Place place = Place::current());
inline Tensor concatenate(std::initializer_list<Tensor> parts, std::int64_t axis = 0,
                          Place place = Place::current()) {
  return concatenate(std::span(parts.begin(), parts.size()), axis, place);
}
/// x[start:limit:stride] on each axis; `strides` empty: all 1. Bounds are checked, not clamped.
POSTERN_API Tensor slice(const Operand& x, const Dims& start, const Dims& limit,
                         const Dims& strides = {});
/// x[start:limit] along one axis; negative numbers count from the end.
POSTERN_API Tensor slice_axis(const Operand& x, std::int64_t axis, std::int64_t start,
                              std::int64_t limit, std::int64_t stride = 1);
/// `low` and `high` elements of `value` at both ends of each axis (negative: removed), `interior`
/// between elements.
POSTERN_API Tensor pad(const Operand& x, const Operand& value, const Dims& low, const Dims& high,
                       const Dims& interior = {});
POSTERN_API Tensor reverse(const Operand& x, const Dims& axes);

// --- reductions: over `axes` (none given: all), which disappear unless keep_dims. The dtype is
// kept; sum of pred is s32 -----------
struct ReduceOptions {
  std::optional<Dims> axes = {};
  bool keep_dims = false;
};
POSTERN_API Tensor sum(const Operand& x, const ReduceOptions& options = {});
POSTERN_API Tensor prod(const Operand& x, const ReduceOptions& options = {});
POSTERN_API Tensor
max(const Operand& x,
    const ReduceOptions& options = {});  // no elements: the smallest value of the dtype
POSTERN_API Tensor min(const Operand& x, const ReduceOptions& options = {});
POSTERN_API Tensor mean(const Operand& x,
                        const ReduceOptions& options = {});  // integers become f32
POSTERN_API Tensor all(const Operand& x,
                       const ReduceOptions& options = {});  // of pred or integers (bitwise)
POSTERN_API Tensor any(const Operand& x, const ReduceOptions& options = {});
/// Index (s32) of the first largest element along `axis`; NaN counts as the largest.
POSTERN_API Tensor argmax(const Operand& x, std::int64_t axis = -1);
POSTERN_API Tensor argmin(const Operand& x, std::int64_t axis = -1);

// --- products
// -------------------------------------------------------------------------------------------------
/// As numpy.matmul: rank 1 is a row or column, axes before the last two broadcast.
POSTERN_API Tensor matmul(const Operand& x, const Operand& y);
/// Contraction over pairs of axes, with pairs of batch axes that lead the result; StableHLO's
/// dot_general.
struct DotAxes {
  Dims contract_x, contract_y, batch_x, batch_y;
};
POSTERN_API Tensor dot_general(const Operand& x, const Operand& y, const DotAxes& axes);

// --- indices
// -------------------------------------------------------------------------------------------------
/// Rows of x along `axis` at integer `indices` (of any shape, which takes the axis's place).
/// Negative indices count from the end; those out of range give NaN (or the dtype's smallest value
/// for integers), as jax.numpy.take does.
POSTERN_API Tensor take(const Operand& x, const Operand& indices, std::int64_t axis = 0);
/// 1 where the last axis's index is `indices`, else 0; rows for indices out of range are zero.
POSTERN_API Tensor one_hot(const Operand& indices, std::int64_t classes, DType dtype = DType::f32);
/// Sorted along `axis`, stable; NaN last.
POSTERN_API Tensor sort(const Operand& x, std::int64_t axis = -1);
/// The order (s32) that sorts x along `axis`, stable.
POSTERN_API Tensor argsort(const Operand& x, std::int64_t axis = -1);

// --- from these
// -------------------------------------------------------------------------------------------------
POSTERN_API Tensor softmax(const Operand& x, std::int64_t axis = -1);
POSTERN_API Tensor log_softmax(const Operand& x, std::int64_t axis = -1);
POSTERN_API Tensor logsumexp(const Operand& x, const ReduceOptions& options = {});

}  // namespace postern
