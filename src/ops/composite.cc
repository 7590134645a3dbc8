// Functions made of others: softmax and its kin, statistics, normalisation, comparison within
// tolerances.
#include <postern/compare.h>
#include <postern/detail/transform_core.h>
#include <postern/reduce.h>

#include "ops/axes.h"
#include "ops/elementwise.h"
#include "ops/family.h"
#include "ops/reduce.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

/// Returns the largest element, which is taken off exponents so that they do not overflow; 0 where
/// it is not finite and `finite` is asked for.
Tensor shift_of(const Tensor& x, const Dims& axes, bool finite) {
  Tensor shift = max(real(x), {.axes = axes, .keep_dims = true});
  if (finite) shift = where(is_finite(shift), shift, zeros_of({shift.dtype(), {}}));
  return detail::stop_gradient(shift, PlaceScope::current());  // it cancels in the result
}

/// Converts to a float dtype in which sums are kept: f16 and bf16 to f32, integers as well.
Tensor as_wide_float(const Tensor& operand) {
  const Tensor x = as_float(operand);
  return convert_to(x, sum_dtype(x.dtype()));
}

/// Brings a result back to the dtype that the operand has as a float.
Tensor as_narrow_as(const Operand& operand, const Tensor& y) {
  return convert_to(y, as_float(operand.tensor()).dtype(), y.type().weak);
}

/// Returns |a - b| of integers of one dtype in f64. The difference is taken in 64 bits, which as
/// unsigned ones hold it always.
Tensor distance(const Tensor& a, const Tensor& b) {
  const DType dtype = is_unsigned(a.dtype()) ? DType::u64 : DType::s64;
  const Tensor x = convert_to(a, dtype);
  const Tensor y = convert_to(b, dtype);
  return convert_to(bitcast(where(x > y, x - y, y - x), DType::u64), DType::f64);
}

Tensor squared_size(const Tensor& x) {
  if (is_complex(x.dtype())) return square(real(x)) + square(imag(x));
  return square(x);
}

/// Returns the variance; of f16 and bf16 in f32, in which its root is taken.
Tensor wide_variance(const Operand& operand, const ReduceOptions& options, std::int64_t ddof) {
  const Tensor x = as_wide_float(operand.tensor());
  const Dims axes = axes_or_all("variance", options.axes, x.rank());
  const Tensor squares = squared_size(x - mean(x, {.axes = axes, .keep_dims = true}));
  const std::int64_t divisor = product(pick(x.dims(), axes)) - ddof;
  const Tensor y =
      sum(squares, {.axes = axes, .keep_dims = options.keep_dims}) / static_cast<double>(divisor);
  if (divisor > 0) return y;
  // Too few elements have no variance, and nothing moves it: as in JAX.
  return where(zeros({DType::pred, y.dims()}), y, std::numeric_limits<double>::quiet_NaN());
}

/// Does the same with a real result of complex numbers.
Tensor as_real_part_of(const Operand& operand, const Tensor& y) {
  return convert_to(y, real_dtype(as_float(operand.tensor()).dtype()));
}

}  // namespace

Tensor softmax(const Operand& operand, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor x = as_wide_float(operand.tensor());
  const Dims axes{normal_axis("softmax", axis, x.rank())};
  const Tensor e = exp(x - shift_of(x, axes, false));
  return as_narrow_as(operand, e / sum(e, {.axes = axes, .keep_dims = true}));
}

Tensor log_softmax(const Operand& operand, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor x = as_wide_float(operand.tensor());
  const Dims axes{normal_axis("log_softmax", axis, x.rank())};
  const Tensor shifted_x = x - shift_of(x, axes, false);
  return as_narrow_as(operand,
                      shifted_x - log(sum(exp(shifted_x), {.axes = axes, .keep_dims = true})));
}

Tensor logsumexp(const Operand& operand, const ReduceOptions& options) {
  PlaceScope scope(operand.place());
  const Tensor x = as_wide_float(operand.tensor());
  const Dims axes = axes_or_all("logsumexp", options.axes, x.rank());
  const Tensor shift = shift_of(x, axes, true);  // of -inf alone: -inf - -inf would be NaN
  const Tensor y =
      as_narrow_as(operand, log(sum(exp(x - shift), {.axes = axes, .keep_dims = true})) + shift);
  if (options.keep_dims) return y;
  return squeeze(y, axes);
}

Tensor variance(const Operand& x, const ReduceOptions& options, std::int64_t ddof) {
  PlaceScope scope(x.place());
  return as_real_part_of(x, wide_variance(x, options, ddof));
}

Tensor standard_deviation(const Operand& x, const ReduceOptions& options, std::int64_t ddof) {
  PlaceScope scope(x.place());
  return as_real_part_of(x, sqrt(wide_variance(x, options, ddof)));
}

Tensor layer_norm(const Operand& operand, const Operand& scale, const Operand& bias,
                  double epsilon) {
  PlaceScope scope(operand.place());
  const Tensor x = as_wide_float(operand.tensor());
  check(x.rank() > 0 && !is_complex(x.dtype()),
        "layer_norm: real numbers of rank 1 or more are needed, got {}", to_string(x.type()));
  const ReduceOptions last{.axes = Dims{-1}, .keep_dims = true};
  const Tensor centred = x - mean(x, last);
  const Tensor normal = centred * rsqrt(mean(square(centred), last) + epsilon);
  const Tensor y = normal * scale.tensor() + bias.tensor();
  check(y.dims() == x.dims(), "layer_norm: scale {} and bias {} must stretch to {}",
        to_string(scale.tensor().type()), to_string(bias.tensor().type()), to_string(x.type()));
  return as_narrow_as(operand, y);
}

Tensor clip(const Operand& x, const Operand& low, const Operand& high) {
  PlaceScope scope(x.place());
  return minimum(maximum(x, low), high);
}

Tensor isclose(const Operand& operand_x, const Operand& operand_y, double relative, double absolute,
               bool equal_nan) {
  PlaceScope scope(operand_x.place());
  const auto [a, b] = matched("isclose", operand_x.tensor(), operand_y.tensor());
  if (integral(a.dtype()))
    return less_equal(distance(a, b), absolute + relative * abs(convert_to(b, DType::f64))) |
           equal(a, b);
  // Infinities are close to themselves only; their difference says nothing.
  const Tensor near = less_equal(abs(a - b), absolute + relative * abs(b)) &
                      less(abs(b), std::numeric_limits<double>::infinity());
  const Tensor close = near | equal(a, b);
  if (equal_nan) return close | (not_equal(a, a) & not_equal(b, b));
  return close;
}

Tensor allclose(const Operand& x, const Operand& y, double relative, double absolute,
                bool equal_nan) {
  PlaceScope scope(x.place());
  return all(isclose(x, y, relative, absolute, equal_nan));
}

}  // namespace postern
