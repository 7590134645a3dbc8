// Defaults of cholesky, lu, qr and triangular_solve for one matrix: the textbook algorithms, a
// column or row a step.
#include <postern/control.h>
#include <postern/indexing.h>

#include "linalg/linalg.h"

namespace postern::internal::linear_algebra {

namespace {

Tensor row_index(std::int64_t m, std::int64_t n) { return iota({DType::s32, {m, n}}, 0); }
Tensor column_index(std::int64_t m, std::int64_t n) { return iota({DType::s32, {m, n}}, 1); }
Tensor index(std::int64_t n) { return iota({DType::s32, {n}}, 0); }
Tensor at_row(const Tensor& a, const Tensor& i) { return dynamic_index(a, i, 0); }
Tensor at_column(const Tensor& a, const Tensor& j) { return dynamic_index(a, j, 1); }
Tensor as_column(const Tensor& v) { return expand_dims(v, 1); }
Tensor as_row(const Tensor& v) { return expand_dims(v, 0); }
Tensor zero_of(const Tensor& x) { return zeros({x.dtype(), {}}); }
/// v * w^T, without a matrix product.
Tensor product(const Tensor& v, const Tensor& w) { return as_column(v) * as_row(w); }
/// a v.
Tensor times(const Tensor& a, const Tensor& v) { return sum(a * as_row(v), {.axes = Dims{1}}); }

}  // namespace

Tensor scale_of(const Tensor& a) {
  if (a.size() == 0) return ones({a.dtype(), {}});
  Tensor most = max(abs(real(a)));
  if (is_complex(a.dtype())) most = maximum(most, max(abs(imag(a))));
  DType word = DType::u32;
  std::uint64_t exponent_bits = 0x7f800000;
  if (most.dtype() == DType::f64) {
    word = DType::u64;
    exponent_bits = 0x7ff0000000000000;
  }
  const Tensor bits = logical_and(bitcast(most, word), convert(Tensor(exponent_bits), word));
  const Tensor power = bitcast(bits, most.dtype());
  const Tensor is_usual = logical_and(is_finite(most), power > 0.0f);
  return convert(where(is_usual, power, 1.0f), a.dtype());
}

Tensors cholesky_default(const void*, TensorSpan x) {
  const Tensor a = hermitian_part(x[0]);
  const std::int64_t n = rows(a);
  if (n == 0) return {a};
  const Tensor l = fori_loop(
      0, n,
      [a, n](Tensor j, Tensor done) {
        const Tensor left = at_column(a, j) - times(done, conj(at_row(done, j)));
        const Tensor root = convert(sqrt(real(at_row(left, j))), a.dtype());
        const Tensor from_diagonal = where(index(n) == j, root, zero_of(a));
        const Tensor column = where(index(n) > j, left / root, from_diagonal);
        return where(column_index(n, n) == j, as_column(column), done);
      },
      zeros_like(a));
  // A matrix that is not positive definite has no factor at all, not half of one: also where it is
  // the last pivot that is 0.
  const Tensor is_positive = all(real(diagonal_of(l)) > 0.0f);
  const Tensor nan(std::numeric_limits<float>::quiet_NaN());
  const Tensor zero_or_nan = convert(where(is_positive, Tensor(0.0f), nan), a.dtype());
  return {where(column_index(n, n) <= row_index(n, n), l + zero_or_nan, zero_of(a))};
}

/// Eliminates a column a step: swaps the row with the largest element in it, the pivot, up, keeps
/// the factors in the place of the zeros that they make below, and takes them off on the right.
Tensors lu_default(const void*, TensorSpan x) {
  const Tensor a = x[0];
  const std::int64_t m = rows(a);
  const std::int64_t n = columns(a);
  const std::int64_t k = std::min(m, n);
  const Tensor pivots = zeros({DType::s32, {k}});
  const Tensor order = index(m);
  if (k == 0) return {a, pivots, order};
  auto step = [m, n, k](Tensor c, std::tuple<Tensor, Tensor, Tensor> carry) {
    auto [now, swaps, rows_now] = carry;
    const Tensor column = at_column(now, c);
    Tensor size;
    if (is_complex(now.dtype()))
      size = abs(real(column)) + abs(imag(column));
    else
      size = abs(column);
    const Tensor pivot_row = argmax(where(index(m) >= c, size, -1.0f));
    auto swapped_rows = [&](const Tensor& t, const Tensor& row) {
      const Tensor lower = where(row == pivot_row, as_row(at_row(t, c)), t);
      return where(row == c, as_row(at_row(t, pivot_row)), lower);
    };
    now = swapped_rows(now, row_index(m, n));
    rows_now = reshape(swapped_rows(reshape(rows_now, {m, 1}), row_index(m, 1)), {m});
    swaps = where(index(k) == c, pivot_row, swaps);
    const Tensor pivot = at_row(at_column(now, c), c);
    const Tensor divisor = where(pivot == zero_of(now), ones({now.dtype(), {}}), pivot);
    const Tensor factor = where(index(m) > c, at_column(now, c) / divisor, zero_of(now));
    const Tensor below = row_index(m, n) > c, right = column_index(m, n) > c;
    const Tensor with_factors = where(column_index(m, n) == c, as_column(factor), now);
    const Tensor updated = where(right, now - product(factor, at_row(now, c)), with_factors);
    return std::tuple{where(below, updated, now), swaps, rows_now};
  };
  const auto [lu, swaps, rows_now] = fori_loop(0, k, step, std::tuple{a, pivots, order});
  return {lu, swaps, rows_now};
}

/// Makes the elements below the diagonal zero, a column a step, by a reflection 1 - tau v v^H as in
/// LAPACK's geqrf: alpha becomes beta, of the other sign, so that the difference does not cancel.
/// Where there is nothing to do, none is `active`.
std::pair<Tensor, Tensor> householder(const Tensor& a) {
  const std::int64_t m = rows(a);
  const std::int64_t n = columns(a);
  const std::int64_t k = std::min(m, n);
  const Tensor q = identity(a.dtype(), m);
  if (k == 0) return {q, a};
  auto step = [m](Tensor c, std::tuple<Tensor, Tensor> carry) {
    auto [basis, now] = carry;
    const Tensor column = at_column(now, c);
    const Tensor alpha = at_row(column, c);
    const Tensor below = where(index(m) > c, column, zero_of(column));
    const Tensor sigma = sum(real(below * conj(below)));
    const Tensor norm = sqrt(real(alpha * conj(alpha)) + sigma);
    const Tensor beta = where(real(alpha) < 0, norm, -norm);
    Tensor active = sigma > 0;
    if (is_complex(now.dtype())) active = logical_or(active, imag(alpha) != 0.0f);
    const Tensor zero = zero_of(now);
    const Tensor one = ones({now.dtype(), {}});
    const Tensor new_alpha = convert(beta, now.dtype());
    const Tensor tau = where(active, (new_alpha - alpha) / where(active, new_alpha, one), zero);
    const Tensor v = where(index(m) == c, one, below / where(active, alpha - new_alpha, one));
    const Tensor conj_v = conj(v);
    now = now - conj(tau) * product(v, sum(now * as_column(conj_v), {.axes = Dims{0}}));
    basis = basis - tau * product(times(basis, v), conj_v);
    return std::tuple{basis, now};
  };
  const auto [basis, r] = fori_loop(0, k, step, std::tuple{q, a});
  return {basis, r};
}

Tensors qr_default(const void* config, TensorSpan x) {
  const Tensor& a = x[0];
  const std::int64_t m = rows(a);
  const std::int64_t n = columns(a);
  std::int64_t k = m;
  if (!config_of<linalg::Qr>(config).full) k = std::min(m, n);
  const Tensor scale = scale_of(a);
  const auto [q, r] = householder(a / scale);
  return {slice_axis(q, 1, 0, k), triu(slice_axis(r, 0, 0, k)) * scale};
}

/// Solves a row a step: of a lower matrix from the first on, of an upper one from the last. What is
/// not of the form a x = b is made so: x op(a) = b is op(a)^T x^T = b^T.
Tensors triangular_default(const void* config, TensorSpan x) {
  const auto& c = config_of<linalg::Triangular>(config);
  Tensor a = x[0], b = x[1];
  if (c.conjugate) a = conj(a);
  if (!c.left) b = swapped(b);
  const bool transposes = c.transpose == c.left;
  if (transposes) a = swapped(a);
  const bool lower = c.lower != transposes;
  const std::int64_t n = rows(a);
  if (n == 0 || b.size() == 0) return {x[1]};
  Tensor strict;
  if (lower)
    strict = tril(a, -1);
  else
    strict = triu(a, 1);
  const Tensor solved = fori_loop(
      0, n,
      [&](Tensor step, Tensor done) {
        Tensor i = step;
        if (!lower) i = static_cast<int>(n - 1) - step;
        Tensor row = at_row(b, i) - sum(as_column(at_row(strict, i)) * done, {.axes = Dims{0}});
        if (!c.unit_diagonal) row = row / at_row(at_row(a, i), i);
        return dynamic_update_slice(done, as_row(row), {i, zeros_like(i)});
      },
      zeros_like(b));
  if (c.left) return {solved};
  return {swapped(solved)};
}

}  // namespace postern::internal::linear_algebra
