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

Tensors cholesky_default(const void*, TensorSpan x) {
  const Tensor a = hermitian_part(x[0]);
  const std::int64_t n = rows(a);
  if (n == 0) return {a};
  const Tensor l = fori_loop(
      0, n,
      [a, n](Tensor j, Tensor done) {
        const Tensor s = at_column(a, j) - times(done, conj_of(at_row(done, j)));
        const Tensor d = convert(sqrt(real_of(at_row(s, j))), a.dtype());
        const Tensor column = where(index(n) > j, s / d, where(index(n) == j, d, zero_of(a)));
        return where(column_index(n, n) == j, as_column(column), done);
      },
      zeros_like(a));
  // A matrix that is not positive definite has no factor at all, not half of one.
  const Tensor whole = sum(real_of(l) * 0.0f);
  return {where(column_index(n, n) <= row_index(n, n), l + convert(whole, a.dtype()), zero_of(a))};
}

Tensors lu_default(const void*, TensorSpan x) {
  const Tensor a = x[0];
  const std::int64_t m = rows(a), n = columns(a), k = std::min(m, n);
  const Tensor pivots = zeros({DType::s32, {k}}), order = index(m);
  if (k == 0) return {a, pivots, order};
  auto step = [m, n, k](Tensor c, std::tuple<Tensor, Tensor, Tensor> carry) {
    auto [now, swaps, rows_now] = carry;
    const Tensor column = at_column(now, c);
    Tensor size;
    if (is_complex(now.dtype()))
      size = abs(real(column)) + abs(imag(column));
    else
      size = abs(column);
    const Tensor p = argmax(where(index(m) >= c, size, -1.0f));
    auto exchange = [&](const Tensor& t, const Tensor& i) {
      return where(i == c, as_row(at_row(t, p)), where(i == p, as_row(at_row(t, c)), t));
    };
    now = exchange(now, row_index(m, n));
    rows_now = reshape(exchange(reshape(rows_now, {m, 1}), row_index(m, 1)), {m});
    swaps = where(index(k) == c, p, swaps);
    const Tensor pivot = at_row(at_column(now, c), c);
    const Tensor safe = where(pivot == zero_of(now), ones({now.dtype(), {}}), pivot);
    const Tensor factor = where(index(m) > c, at_column(now, c) / safe, zero_of(now));
    const Tensor below = row_index(m, n) > c, right = column_index(m, n) > c;
    const Tensor updated = where(right, now - product(factor, at_row(now, c)),
                                 where(column_index(m, n) == c, as_column(factor), now));
    return std::tuple{where(below, updated, now), swaps, rows_now};
  };
  const auto [lu, swaps, rows_now] = fori_loop(0, k, step, std::tuple{a, pivots, order});
  return {lu, swaps, rows_now};
}

std::pair<Tensor, Tensor> householder(const Tensor& a) {
  const std::int64_t m = rows(a), n = columns(a), k = std::min(m, n);
  const Tensor q = identity(a.dtype(), m);
  if (k == 0) return {q, a};
  auto step = [m](Tensor c, std::tuple<Tensor, Tensor> carry) {
    auto [basis, now] = carry;
    const Tensor column = at_column(now, c);
    const Tensor alpha = at_row(column, c);
    const Tensor below = where(index(m) > c, column, zero_of(column));
    const Tensor sigma = sum(real_of(below * conj_of(below)));
    const Tensor norm = sqrt(real_of(alpha * conj_of(alpha)) + sigma);
    const Tensor beta = where(real_of(alpha) < 0, norm, -norm);
    Tensor active = sigma > 0;
    if (is_complex(now.dtype())) active = logical_or(active, imag(alpha) != 0.0f);
    const Tensor zero = zero_of(now), one = ones({now.dtype(), {}});
    const Tensor to = convert(beta, now.dtype());
    const Tensor tau = where(active, (to - alpha) / where(active, to, one), zero);
    const Tensor v = where(index(m) == c, one, below / where(active, alpha - to, one));
    const Tensor vc = conj_of(v);
    now = now - conj_of(tau) * product(v, sum(now * as_column(vc), {.axes = Dims{0}}));
    basis = basis - tau * product(times(basis, v), vc);
    return std::tuple{basis, now};
  };
  const auto [basis, r] = fori_loop(0, k, step, std::tuple{q, a});
  return {basis, r};
}

Tensors qr_default(const void* config, TensorSpan x) {
  const Tensor& a = x[0];
  const std::int64_t m = rows(a), n = columns(a);
  std::int64_t k = m;
  if (!config_of<linalg::Qr>(config).full) k = std::min(m, n);
  const auto [q, r] = householder(a);
  return {slice_axis(q, 1, 0, k), triu(slice_axis(r, 0, 0, k))};
}

Tensors triangular_default(const void* config, TensorSpan x) {
  const auto& c = config_of<linalg::Triangular>(config);
  Tensor a = x[0], b = x[1];
  if (c.conjugate) a = conj_of(a);
  if (!c.left) b = swapped(b);
  // x op(a) = b is op(a)^T x^T = b^T.
  const bool flip = c.transpose != !c.left;
  if (flip) a = swapped(a);
  const bool lower = c.lower != flip;
  const std::int64_t n = rows(a);
  if (n == 0 || b.size() == 0) return {x[1]};
  Tensor strict;
  if (lower)
    strict = tril(a, -1);
  else
    strict = triu(a, 1);
  const Tensor solved = fori_loop(
      0, n,
      [&](Tensor i, Tensor done) {
        Tensor at = i;
        if (!lower) at = static_cast<int>(n - 1) - i;
        Tensor row = at_row(b, at) - sum(as_column(at_row(strict, at)) * done, {.axes = Dims{0}});
        if (!c.unit_diagonal) row = row / at_row(at_row(a, at), at);
        return dynamic_update_slice(done, as_row(row), {at, zeros_like(at)});
      },
      zeros_like(b));
  if (c.left) return {solved};
  return {swapped(solved)};
}

}  // namespace postern::internal::linear_algebra
