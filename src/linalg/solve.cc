// Equations and functions of matrices, from the decompositions.
#include <postern/compare.h>
#include <postern/transforms.h>

#include <cmath>
#include <limits>

#include "linalg/linalg.h"
#include "ops/axes.h"
#include "ops/elementwise.h"
#include "ops/family.h"

namespace postern::internal::linear_algebra {

std::pair<Prepared, Tensor> matched_matrices(const char* op, const Operand& first,
                                             const Operand& second, bool left) {
  const Tensor x = as_float(first.tensor());
  const Tensor y = as_float(second.tensor());
  const DType common = promote(op, x.type(), y.type()).dtype;
  Prepared a = prepared(op, convert(x, common), true);
  const Tensor b = convert(y, a.a.dtype());
  check(b.rank() >= 2, "{}: the right side must be a matrix, or a batch of them, got {}", op,
        to_string(y.type()));
  const std::int64_t must_fit = left ? rows(b) : columns(b);
  check(must_fit == rows(a.a), "{}: {} and {} do not go together", op,
        to_string(first.tensor().type()), to_string(y.type()));
  const Dims lead = broadcast_dims(op, leading(a.a), leading(b));
  auto widened = [&](const Tensor& t) {
    return broadcast_to(t, joined(lead, {rows(t), columns(t)}));
  };
  a.a = widened(a.a);
  return {a, widened(b)};
}

Tensor as_matrix(const Operand& b, std::int64_t missing) {
  if (b.tensor().rank() == 1) return expand_dims(b, missing);
  return b.tensor();
}
Tensor as_given(const Operand& b, const Tensor& x, std::int64_t missing) {
  if (b.tensor().rank() == 1) return squeeze(x, {missing});
  return x;
}

namespace {

/// Returns the sum, or the product, of the numbers on the last axis.
Tensor sum_last(const Tensor& x) { return sum(x, {.axes = Dims{-1}}); }
/// Returns the trace of each matrix on the last two axes; matrix_trace is of the first two.
Tensor trace_of(const Tensor& a) { return sum_last(diagonal_of(a)); }
Tensor prod_last(const Tensor& x) { return prod(x, {.axes = Dims{-1}}); }

using OneTensor = std::tuple<Tensor>;  // arguments of a function with a rule of its own

Tensor solve_matrices(const Tensor& a, const Tensor& b);

Tensors solve_default(const void*, TensorSpan x) {
  const Tensors f = bind_lu(x[0]);
  return {lu_solve(f[0], f[2], x[1])};
}

/// dx = a^-1 (db - da x), by the same factors.
Jvp solve_jvp(const void*, TensorSpan x, TensorSpan dx) {
  const Tensors f = bind_lu(x[0]);
  const Tensor y = lu_solve(f[0], f[2], x[1]);
  Tensor right = dx[1];
  if (dx[0].has_value()) right = add_any(right, -matmul(dx[0], y));
  return {{y}, {lu_solve(f[0], f[2], right)}};
}
Tensors solve_transpose(const void*, TensorSpan ct, TensorSpan x) {
  check(x[0].has_value(), "reverse mode: solve is not linear in its matrix");
  return {Tensor(), solve_matrices(swapped(x[0]), ct[0])};
}
constexpr Rules solve_rules{each_matrix<solve_default>, solve_jvp, solve_transpose};

/// a x = b for matrices with the same leading axes.
Tensor solve_matrices(const Tensor& a, const Tensor& b) {
  return bind_linalg(linalg::Solve{}, solve_rules, a, b)[0];
}

Tensor identities_like(const Tensor& a) {
  return broadcast_to(identity(a.dtype(), rows(a)), a.dims());
}
Tensor inverse_of(const Tensor& a) { return solve_matrices(a, identities_like(a)); }

/// Returns the sign of the permutation: -1 for an odd number of pivots that swapped two rows.
Tensor parity(const Tensor& pivots) {
  const Tensor own_row = iota(pivots.type(), pivots.rank() - 1);
  const Tensor swaps = sum_last(convert(pivots != own_row, DType::s32));
  return 1 - 2 * remainder(swaps, 2);
}

Tensor det_value(const Tensor& a) {
  const Tensors lu = bind_lu(a);  // and its pivots
  return prod_last(diagonal_of(lu[0])) * convert(parity(lu[1]), a.dtype());
}

/// Returns the product of the signs of u's diagonal, with the permutation's, and the sum of the
/// logarithms of its sizes. A complex sign is a number of size 1; that of 0 is 0.
std::pair<Tensor, Tensor> slogdet_value(Tensor a) {
  const Tensors lu = bind_lu(a);  // and its pivots
  const Tensor d = diagonal_of(lu[0]);
  const Tensor size = abs(d);
  Tensor signs;
  if (is_complex(d.dtype()))
    signs = d / convert(where(size == 0.0f, 1.0f, size), d.dtype());
  else
    signs = sign(d);
  return {prod_last(signs) * convert(parity(lu[1]), d.dtype()), sum_last(log(size))};
}

Tensor per_matrix(const Tensor& t) { return expand_dims(expand_dims(t, -1), -1); }

/// Returns det(u v^H) m u^H for a = u s v^H: the adjugate for m = v adj(s).
Tensor from_vectors(const Tensors& svd, const Tensor& m) {
  const Tensor phase = det_value(matmul(svd[0], svd[2]));
  return per_matrix(phase) * matmul(m, adjoint(svd[0]));
}

Tensor adjugate_value(const Tensor& a) {
  const Tensors svd = bind_svd({}, a);
  const std::int64_t n = columns(a);
  const Tensor others = where(eye(DType::pred, n, n), 1.0f, expand_dims(svd[1], -2));
  const Tensor products = convert(prod_last(others), a.dtype());
  return from_vectors(svd, adjoint(svd[2]) * expand_dims(products, -2));
}

/// Returns the matrix of cofactors, transposed: det(a) a^-1 where that exists. With a = u s v^H:
/// det(u v^H) v diag(products of the other s) u^H. Singular vectors, which have no derivative where
/// values are equal, stay as they are in its own: with p = u^H da v and h_ij the product of all s
/// but the i-th and j-th the tangent of diag(...) is -h_ij p_ij, and on the diagonal the sum of
/// h_ij p_jj over the other j.
Tensor adjugate(const Tensor& a) {
  auto rule = [](const OneTensor& x, const OneTensor& dx) {
    const auto& [m] = x;
    const auto& [dm] = dx;
    const Tensors svd = bind_svd({}, m);
    const Tensor v = adjoint(svd[2]);
    const Tensor p = matmul(matmul(adjoint(svd[0]), dm), v);
    const Tensor same = eye(DType::pred, columns(m), columns(m));
    const Tensor left_out = expand_dims(same, 0) | expand_dims(same, 1);
    const Tensor kept = where(left_out, 1.0f, expand_dims(expand_dims(svd[1], -2), -2));
    const Tensor products = where(same, 0.0f, prod_last(kept));
    const Tensor h = convert(products, m.dtype());
    const Tensor on_diagonal = sum_last(h * expand_dims(diagonal_of(p), -2));
    const Tensor middle = where(same, expand_dims(on_diagonal, -1), -h * p);
    return std::pair{adjugate(m), from_vectors(svd, matmul(v, middle))};
  };
  return custom_jvp([](Tensor m) { return adjugate_value(m); }, rule)(a);
}

/// Returns the share of the largest singular value up to which others count as zero.
double cutoff(const Tensor& a, double rcond) {
  if (rcond >= 0) return rcond;
  return epsilon(a.dtype()) * static_cast<double>(std::max(rows(a), columns(a)));
}

Tensor pinv_value(const Tensor& a, double rcond) {
  const Tensors svd = bind_svd({}, a);
  const Tensor &u = svd[0], &s = svd[1], &vh = svd[2];
  if (s.dims().back() == 0) return swapped(a);
  const Tensor inverse = inverse_or_zero(s, s <= largest(s) * rcond);
  return matmul(adjoint(vh) * convert(expand_dims(inverse, -2), a.dtype()), adjoint(u));
}

/// dp = p p^H dm^H (1 - m p) + (1 - p m) dm^H p^H p - p dm p (Golub and Pereyra 1973).
Tensor pinv_matrices(const Tensor& a, double rcond) {
  auto rule = [rcond](const OneTensor& x, const OneTensor& dx) {
    const auto& [m] = x;
    const auto& [dm] = dx;
    const Tensor p = pinv_matrices(m, rcond);
    const Tensor ph = adjoint(p);
    const Tensor dmh = adjoint(dm);
    const Tensor left = matmul(matmul(p, ph), dmh - matmul(matmul(dmh, m), p));
    const Tensor right = matmul(matmul(dmh - matmul(p, matmul(m, dmh)), ph), p);
    return std::pair{p, left + right - matmul(matmul(p, dm), p)};
  };
  return custom_jvp([rcond](Tensor m) { return pinv_value(m, rcond); }, rule)(a);
}

}  // namespace
}  // namespace postern::internal::linear_algebra

namespace postern::linalg {
using namespace internal;

using namespace linear_algebra;

Tensor solve(const Operand& a, const Operand& b) {
  PlaceScope at(a.place());
  const auto [m, right] = matched_matrices("solve", a, as_matrix(b), true);
  return as_given(b, m.restore(solve_matrices(m.a, right)));
}

Tensor inv(const Operand& a) {
  PlaceScope at(a.place());
  const Prepared p = prepared("inv", a, true);
  return p.restore(bind_composed(
      linalg::Inv{}, [](TensorSpan x) { return Tensors{inverse_of(x[0])}; }, p.a)[0]);
}

Tensor det(const Operand& a) {
  PlaceScope at(a.place());
  const Prepared p = prepared("det", a, true);
  auto rule = [](const OneTensor& x, const OneTensor& dx) {
    const auto& [m] = x;
    const auto& [dm] = dx;
    return std::pair{det_value(m), trace_of(matmul(adjugate(m), dm))};
  };
  const auto by_default = [&](TensorSpan x) {
    return Tensors{custom_jvp([](Tensor m) { return det_value(m); }, rule)(x[0])};
  };
  return p.restore(bind_composed(linalg::Det{}, by_default, p.a)[0]);
}

std::pair<Tensor, Tensor> slogdet(const Operand& a) {
  PlaceScope at(a.place());
  const Prepared p = prepared("slogdet", a, true);
  auto rule = [](const OneTensor& x, const OneTensor& dx) {
    const auto& [m] = x;
    const auto& [dm] = dx;
    const auto y = slogdet_value(m);
    // Of log(det): the real part moves the logarithm of the size, the imaginary one turns the sign.
    const Tensor dlog = trace_of(solve_matrices(m, dm));
    Tensor dsign = zeros_like(y.first);
    if (is_complex(dlog.dtype())) dsign = y.first * (dlog - convert(real(dlog), dlog.dtype()));
    return std::pair{y, std::pair{dsign, real(dlog)}};
  };
  const auto by_default = [&](TensorSpan x) {
    const auto [sign, size] = custom_jvp(slogdet_value, rule)(x[0]);
    return Tensors{sign, size};
  };
  const Tensors y = bind_composed(linalg::Slogdet{}, by_default, p.a);
  return {p.restore(y[0]), p.restore(y[1])};
}

Tensor pinv(const Operand& a, double rcond) {
  PlaceScope at(a.place());
  const Prepared p = prepared("pinv", a, false);
  const auto by_default = [&](TensorSpan x) {
    return Tensors{pinv_matrices(x[0], cutoff(x[0], rcond))};
  };
  return p.restore(bind_composed(linalg::Pinv{rcond}, by_default, p.a)[0]);
}

Tensor lstsq(const Operand& a, const Operand& b, double rcond) {
  PlaceScope at(a.place());
  const Tensor right = as_matrix(b);
  const DType common = promote("lstsq", as_float(a.tensor()).type(), as_float(right).type()).dtype;
  const Prepared p = prepared("lstsq", convert(a, common), false);
  check(right.rank() >= 2 && rows(right) == rows(p.a), "lstsq: {} and {} do not go together",
        to_string(a.tensor().type()), to_string(b.tensor().type()));
  const auto by_default = [&](TensorSpan x) {
    return Tensors{matmul(pinv_matrices(x[0], cutoff(x[0], rcond)), x[1])};
  };
  return as_given(b, p.restore(bind_composed(linalg::Lstsq{rcond}, by_default, p.a,
                                             convert(right, p.a.dtype()))[0]));
}

Tensor matrix_rank(const Operand& a, double tolerance) {
  PlaceScope at(a.place());
  const Prepared p = prepared("matrix_rank", a, false);
  const auto by_default = [&](TensorSpan x) {
    const Tensor s = bind_svd({.vectors = false}, x[0])[0];
    if (s.dims().back() == 0) return Tensors{zeros({DType::s32, leading(x[0])})};
    const Tensor limit = largest(s) * cutoff(x[0], tolerance);
    return Tensors{sum_last(convert(s > limit, DType::s32))};
  };
  return bind_composed(linalg::MatrixRank{tolerance}, by_default, p.a)[0];
}

Tensor matrix_power(const Operand& a, std::int64_t n) {
  PlaceScope at(a.place());
  const Prepared p = prepared("matrix_power", a, true);
  const auto by_default = [n](TensorSpan x) {
    Tensor base = x[0], out;
    auto bits = static_cast<std::uint64_t>(n);
    if (n < 0) {
      base = inverse_of(base);
      bits = 0 - bits;
    }
    for (; bits; bits >>= 1) {
      if (bits & 1) out = out.has_value() ? matmul(out, base) : base;
      if (bits > 1) base = matmul(base, base);
    }
    if (!out.has_value()) out = identities_like(x[0]);
    return Tensors{out};
  };
  return p.restore(bind_composed(linalg::MatrixPower{n}, by_default, p.a)[0]);
}

namespace {

/// Returns p(a) and q(a) of the Pade approximant of degree 13: exp(a) = (q - p)^-1 (q + p), with p
/// odd and q even.
std::pair<Tensor, Tensor> pade13(const Tensor& a) {
  constexpr double b[] = {64764752532480000.,
                          32382376266240000.,
                          7771770303897600.,
                          1187353796428800.,
                          129060195264000.,
                          10559470521600.,
                          670442572800.,
                          33522128640.,
                          1323241920.,
                          40840800.,
                          960960.,
                          16380.,
                          182.,
                          1.};
  const Tensor one = identity(a.dtype(), rows(a));
  const Tensor a2 = matmul(a, a);
  const Tensor a4 = matmul(a2, a2);
  const Tensor a6 = matmul(a4, a2);
  const Tensor p = matmul(a, matmul(a6, a6 * b[13] + a4 * b[11] + a2 * b[9]) + a6 * b[7] +
                                 a4 * b[5] + a2 * b[3] + one * b[1]);
  const Tensor q = matmul(a6, a6 * b[12] + a4 * b[10] + a2 * b[8]) + a6 * b[6] + a4 * b[4] +
                   a2 * b[2] + one * b[0];
  return {p, q};
}

/// Halves the matrix until its norm is at most `theta`, up to which the approximant is exact, and
/// squares the result as often. Of norms above 2^18, where most overflow, it is NaN, as in JAX.
Tensor expm_value(const Tensor& a) {
  constexpr int most = 16;
  const bool wide = real_dtype(a.dtype()) == DType::f64;
  const double theta = wide ? 5.371920351148152 : 3.925724783138660;
  const Tensor norm = max(sum(abs(a), {.axes = Dims{-2}}), {.axes = Dims{-1}});
  const Tensor needed = ceil(log(maximum(norm, theta) / theta) / std::log(2.0));
  const Tensor squarings = stop_gradient(clip(needed, 0.0f, static_cast<float>(most)));
  const auto [odd, even] =
      pade13(a * convert(per_matrix(exp(squarings * -std::log(2.0))), a.dtype()));
  Tensor r = solve_matrices(even - odd, even + odd);
  for (int i = 0; i < most; ++i)
    r = where(per_matrix(squarings > static_cast<float>(i)), matmul(r, r), r);
  const Tensor enough = per_matrix(needed <= static_cast<float>(most));
  return where(enough, r, std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

Tensor expm(const Operand& a) {
  PlaceScope at(a.place());
  const Prepared p = prepared("expm", a, true);
  if (rows(p.a) == 0) return p.restore(p.a);
  return p.restore(bind_composed(
      linalg::Expm{}, [](TensorSpan x) { return Tensors{expm_value(x[0])}; }, p.a)[0]);
}

}  // namespace postern::linalg
