// Defaults of eigh and svd for one matrix: Jacobi's rotations (Golub and Van Loan, Matrix
// Computations, 8.5 and 8.6), accurate and short.
#include <postern/control.h>
#include <postern/indexing.h>

#include "linalg/linalg.h"

namespace postern::internal::linear_algebra {

namespace {

// Convergence is quadratic; LAPACK's Jacobi stops at 30, in practice by 10.
constexpr std::int64_t sweeps = 12;

using Pair = std::tuple<Tensor, Tensor>;  // the matrix as it is now, the rotations so far

struct Rotation {
  Tensor cosine, sine;  // the sine times the direction of apq, a complex number of size 1
};
/// Returns the rotation that makes [[app, apq], [conj(apq), aqq]] diagonal; none where `skip`.
Rotation rotation(const Tensor& app, const Tensor& apq, const Tensor& aqq, const Tensor& skip) {
  const DType dtype = apq.dtype();
  const Tensor size = abs(apq);
  const Tensor safe = where(skip, ones_like(size), size);
  const Tensor tau = (aqq - app) / (2.0f * safe);
  const Tensor tangent = where(tau < 0, -1.0f, 1.0f) / (abs(tau) + sqrt(1.0f + tau * tau));
  const Tensor cosine = rsqrt(1.0f + tangent * tangent);
  const Tensor direction = apq / convert(safe, dtype);
  return {where(skip, ones_like(cosine), cosine),
          where(skip, zeros({dtype, {}}), convert(tangent * cosine, dtype) * direction)};
}

/// Returns `a` with its columns p and q rotated.
Tensor rotated_columns(const Tensor& a, const Tensor& p, const Tensor& q, const Rotation& r) {
  const Tensor x = dynamic_index(a, p, 1);
  const Tensor y = dynamic_index(a, q, 1);
  const Tensor cosine = convert(r.cosine, a.dtype());
  const Tensor zero = zeros_like(p);
  const Tensor once =
      dynamic_update_slice(a, expand_dims(cosine * x - conj(r.sine) * y, 1), {zero, p});
  return dynamic_update_slice(once, expand_dims(r.sine * x + cosine * y, 1), {zero, q});
}

/// Calls step(p, q, idle, carry) for each pair of columns, in all sweeps; `idle` where it is no
/// pair.
template <class Step, class Carry>
Carry over_pairs(std::int64_t n, Step step, const Carry& init) {
  return fori_loop(
      0, sweeps * n * n,
      [&](Tensor t, Carry carry) {
        const Tensor p = remainder(t / n, n);
        const Tensor q = remainder(t, n);
        return step(convert(p, DType::s32), convert(q, DType::s32), q <= p, carry);
      },
      init);
}

}  // namespace

/// Rotates rows and columns p and q of a, r^H a r, until it is diagonal; the basis gathers r.
Tensors eigh_default(const void* config, TensorSpan x) {
  const bool vectors = config_of<linalg::Eigh>(config).vectors;
  const std::int64_t n = rows(x[0]);
  const Tensor a = hermitian_part(x[0]);
  if (n == 0) {
    const Tensor none = real(diagonal(a));
    if (vectors) return {none, a};
    return {none};
  }
  const auto [d, v] = over_pairs(
      n,
      [](Tensor p, Tensor q, Tensor idle, Pair carry) {
        auto [now, basis] = carry;
        const Tensor column = dynamic_index(now, q, 1);
        const Tensor apq = dynamic_index(column, p, 0);
        const Tensor app = real(dynamic_index(dynamic_index(now, p, 1), p, 0)),
                     aqq = real(dynamic_index(column, q, 0));
        const Rotation r = rotation(app, apq, aqq, logical_or(idle, abs(apq) == 0.0f));
        now = rotated_columns(now, p, q, r);
        now = adjoint(rotated_columns(adjoint(now), p, q, r));
        return Pair{now, rotated_columns(basis, p, q, r)};
      },
      Pair{a, identity(a.dtype(), n)});
  const Tensor w = real(diagonal(d));
  const Tensor order = argsort(w);
  if (!vectors) return {take(w, order)};
  return {take(w, order), take(v, order, 1)};
}

/// Returns u[m,m or n], s[n], v[n,n] of a with m >= n: rotates pairs of columns until all are
/// orthogonal, which makes a v = u s, whose columns have the singular values for lengths.
static Tensors tall_svd(const Tensor& a, bool full) {
  const std::int64_t m = rows(a);
  const std::int64_t n = columns(a);
  const float small = static_cast<float>(epsilon(a.dtype()));
  const auto [scaled, v] = over_pairs(
      n,
      [small](Tensor p, Tensor q, Tensor idle, Pair carry) {
        auto [now, basis] = carry;
        const Tensor x = dynamic_index(now, p, 1);
        const Tensor y = dynamic_index(now, q, 1);
        const Tensor xx = sum(real(x * conj(x))), yy = sum(real(y * conj(y))),
                     xy = sum(conj(x) * y);
        const Rotation r =
            rotation(xx, xy, yy, logical_or(idle, abs(xy) <= small * sqrt(xx) * sqrt(yy)));
        return Pair{rotated_columns(now, p, q, r), rotated_columns(basis, p, q, r)};
      },
      Pair{a, identity(a.dtype(), n)});
  const Tensor norms = sqrt(sum(real(scaled * conj(scaled)), {.axes = Dims{0}}));
  const Tensor order = argsort(-norms);
  const Tensor s = take(norms, order);
  // Columns that belong to singular values of zero have no direction: those that complete the
  // others take their place.
  const Tensor directed = s > max(s) * (epsilon(a.dtype()) * static_cast<double>(m));
  const Tensor length = convert(expand_dims(where(directed, s, 1.0f), 0), a.dtype());
  const Tensor u =
      where(expand_dims(directed, 0), take(scaled, order, 1) / length, zeros({a.dtype(), {}}));
  const Tensor q = householder(u).first;
  Tensor left = where(expand_dims(directed, 0), u, slice_axis(q, 1, 0, n));
  if (full && m > n) left = concatenate({left, slice_axis(q, 1, n, m)}, 1);
  return {left, s, take(v, order, 1)};
}

Tensors svd_default(const void* config, TensorSpan x) {
  const auto& c = config_of<linalg::Svd>(config);
  const Tensor& a = x[0];
  const std::int64_t m = rows(a);
  const std::int64_t n = columns(a);
  const std::int64_t k = std::min(m, n);
  if (k == 0) {
    const Tensor s = zeros({real_dtype(a.dtype()), {0}});
    if (!c.vectors) return {s};
    const auto basis = [&](std::int64_t rows, std::int64_t axis) {
      std::int64_t kept = 0;
      if (c.full) kept = rows;
      return slice_axis(identity(a.dtype(), rows), axis, 0, kept);
    };
    return {basis(m, 1), s, basis(n, 0)};
  }
  // Of a wide matrix the adjoint is tall: a^H = u s v^H makes a = v s u^H.
  const bool tall = m >= n;
  const Tensor scale = scale_of(a);
  const Tensor scaled = a / scale;
  const Tensors factors = tall_svd(tall ? scaled : adjoint(scaled), c.full);
  const Tensor &u = factors[0], s = factors[1] * real(scale), &v = factors[2];
  if (!c.vectors) return {s};
  if (tall) return {u, s, adjoint(v)};
  return {v, s, adjoint(u)};
}

}  // namespace postern::internal::linear_algebra
