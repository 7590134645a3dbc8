// cholesky, lu, qr and triangular_solve: public functions, and the formulas of their derivatives.
#include <postern/indexing.h>

#include "core/lists.h"
#include "linalg/linalg.h"

#include "ops/family.h"

namespace postern::internal::linear_algebra {

namespace {

using linalg::Triangular;

// --- triangular_solve ---

/// Returns what the block reads of a, or of its tangent: a triangle, with the diagonal or without.
Tensor part_read(const Triangular& c, const Tensor& a) {
  const std::int64_t first_diagonal = c.unit_diagonal;
  if (c.lower) return tril(a, -first_diagonal);
  return triu(a, first_diagonal);
}
/// Returns op(a), as the block has it: transposed, conjugated, both or neither.
Tensor applied(const Triangular& c, const Tensor& a) {
  Tensor t = a;
  if (c.transpose) t = swapped(t);
  if (c.conjugate) return conj(t);
  return t;
}

/// Solves with the same matrix: op(a) dy = db - op(da) y, or dy op(a) = db - y op(da).
Jvp triangular_jvp(const void* config, TensorSpan x, TensorSpan dx) {
  const auto& c = config_of<Triangular>(config);
  const Tensor y = triangular(x[0], x[1], c);
  Tensor right = dx[1];
  if (dx[0].has_value()) {
    const Tensor da = applied(c, part_read(c, dx[0]));
    right = add_any(right, -(c.left ? matmul(da, y) : matmul(y, da)));
  }
  return {{y}, {triangular(x[0], right, c)}};
}

Tensors triangular_transpose(const void* config, TensorSpan ct, TensorSpan x) {
  Triangular c = config_of<Triangular>(config);
  check(x[0].has_value(), "reverse mode: triangular_solve is not linear in its matrix");
  c.transpose = !c.transpose;
  return {Tensor(), triangular(x[0], ct[0], c)};
}

constexpr Rules triangular_rules{each_matrix<triangular_default>, triangular_jvp,
                                 triangular_transpose};

// --- cholesky ---

/// dl = l phi(l^-1 da l^-H), where phi takes the lower triangle and half the diagonal (Murray
/// 2016).
Jvp cholesky_jvp(const void* config, TensorSpan x, TensorSpan dx) {
  const Tensor l = bind_cholesky(config_of<linalg::Cholesky>(config), x[0]);
  const Tensor half =
      triangular(l, hermitian_part(dx[0]), {.left = false, .transpose = true, .conjugate = true});
  const Tensor both = triangular(l, half, {});
  const Tensor phi = tril(both) - diagonal_matrix(diagonal_of(both)) * 0.5f;
  return {{l}, {matmul(l, phi)}};
}
constexpr Rules cholesky_rules{each_matrix<cholesky_default>, cholesky_jvp};

// --- lu ---

Tensor pad_last(const Tensor& x, std::int64_t more_rows, std::int64_t more_columns) {
  Dims low(size_of(x.rank()), 0), high = low;
  high[high.size() - 2] = more_rows;
  high.back() = more_columns;
  return pad(x, zeros({x.dtype(), {}}), low, high);
}

/// Returns the rows of x in the order `permutation`.
Tensor permuted(const Tensor& x, const Tensor& permutation) {
  return take_along_axis(x, expand_dims(permutation, -1), -2, OutOfRange::clip);
}

/// With x = l^-1 p da u^-1: dl = l tril(x, -1), du = triu(x) u; l and u made square by unit
/// matrices (as lax.linalg.lu). As lu holds both, its tangent is their sum.
Jvp lu_jvp(const void*, TensorSpan x, TensorSpan dx) {
  const Tensors y = bind_lu(x[0]);
  const Tensor &lu = y[0], &permutation = y[2];
  const std::int64_t m = rows(x[0]);
  const std::int64_t n = columns(x[0]);
  const std::int64_t k = std::min(m, n);
  const DType dtype = x[0].dtype();
  const Tensor l = pad_last(tril(slice_axis(lu, -1, 0, k), -1), 0, m - k) + identity(dtype, m);
  const Tensor ones_below = where(iota({DType::s32, {n, n}}, 0) >= static_cast<int>(k),
                                  identity(dtype, n), zeros({dtype, {}}));
  const Tensor u = pad_last(triu(slice_axis(lu, -2, 0, k)), n - k, 0) + ones_below;
  const Tensor left = triangular(l, permuted(dx[0], permutation), {.unit_diagonal = true});
  const Tensor both = triangular(u, left, {.left = false, .lower = false});
  const Tensor dlu = matmul(l, tril(both, -1)) + matmul(triu(both), u);
  return {y, {dlu, Tensor(), Tensor()}};
}
constexpr Rules lu_rules{each_matrix<lu_default>, lu_jvp};

// --- qr ---

/// Returns dq and dr of square or tall a, reduced (Walter and Lehmann 2010). `inner` is q^H da
/// r^-1, `skew` the part of dq in the span of q, which has its lower triangle.
std::pair<Tensor, Tensor> tall_qr_tangents(const Tensor& q, const Tensor& r, const Tensor& da) {
  const Tensor over = triangular(r, da, {.left = false, .lower = false});
  const Tensor inner = matmul(adjoint(q), over);
  const Tensor lower = tril(inner, -1);
  Tensor skew = lower - adjoint(lower);
  if (is_complex(q.dtype())) {
    const Tensor diag = diagonal_of(inner);
    skew = skew + diagonal_matrix(diag - convert(real(diag), diag.dtype()));
  }
  return {matmul(q, skew - inner) + over, matmul(inner - skew, r)};
}

Jvp qr_jvp(const void* config, TensorSpan x, TensorSpan dx) {
  const auto& c = config_of<linalg::Qr>(config);
  const std::int64_t m = rows(x[0]);
  const std::int64_t n = columns(x[0]);
  check(!c.full || m <= n,
        "qr: the full form of a tall matrix has no derivative, its last columns are arbitrary; got "
        "{}",
        to_string(x[0].type()));
  const Tensors y = bind_qr(c, x[0]);
  if (m >= n) {
    const auto [dq, dr] = tall_qr_tangents(y[0], y[1], dx[0]);
    return {y, {dq, dr}};
  }
  // The left square gives q; the rest of r is q^H a.
  auto left = [m](const Tensor& t) { return slice_axis(t, -1, 0, m); };
  const auto [dq, dr] = tall_qr_tangents(y[0], left(y[1]), left(dx[0]));
  const Tensor right = matmul(adjoint(dq), slice_axis(x[0], -1, m, n)) +
                       matmul(adjoint(y[0]), slice_axis(dx[0], -1, m, n));
  return {y, {dq, concatenate({dr, right}, -1)}};
}
constexpr Rules qr_rules{each_matrix<qr_default>, qr_jvp};

}  // namespace

Tensor bind_cholesky(const linalg::Cholesky& c, const Tensor& a) {
  return bind_linalg(c, cholesky_rules, a)[0];
}
Tensors bind_lu(const Tensor& a) { return bind_linalg(linalg::Lu{}, lu_rules, a); }
Tensors bind_qr(const linalg::Qr& c, const Tensor& a) { return bind_linalg(c, qr_rules, a); }
Tensor triangular(const Tensor& a, const Tensor& b, const Triangular& c) {
  return bind_linalg(c, triangular_rules, a, b)[0];
}

Tensor lu_solve(const Tensor& lu, const Tensor& permutation, const Tensor& b) {
  const Tensor half = triangular(lu, permuted(b, permutation), {.unit_diagonal = true});
  return triangular(lu, half, {.lower = false});
}

}  // namespace postern::internal::linear_algebra

namespace postern::linalg {
using namespace internal;

using namespace linear_algebra;

Tensor cholesky(const Operand& a, Failure failure) {
  PlaceScope at(a.place());
  const Prepared p = prepared("cholesky", a, true);
  return p.restore(bind_cholesky({failure}, p.a));
}

LuResult lu(const Operand& a) {
  PlaceScope at(a.place());
  const Prepared p = prepared("lu", a, false);
  const Tensors y = bind_lu(p.a);
  return {p.restore(y[0]), y[1], y[2]};
}

std::tuple<Tensor, Tensor, Tensor> plu(const Operand& a) {
  PlaceScope at(a.place());
  const Prepared prep = prepared("plu", a, false);
  const Tensors y = bind_lu(prep.a);
  const Tensor &lu = y[0], &permutation = y[2];
  const std::int64_t m = rows(prep.a);
  const std::int64_t n = columns(prep.a);
  const std::int64_t k = std::min(m, n);
  const Tensor l = tril(slice_axis(lu, -1, 0, k), -1) + eye(prep.a.dtype(), m, k);
  const Tensor u = triu(slice_axis(lu, -2, 0, k));
  const Tensor row = expand_dims(iota({DType::s32, {m}}, 0), -1);
  const Tensor p = convert(expand_dims(permutation, -2) == row, prep.a.dtype());
  return {prep.restore(p), prep.restore(l), prep.restore(u)};
}

std::pair<Tensor, Tensor> qr(const Operand& a, bool full) {
  PlaceScope at(a.place());
  const Prepared p = prepared("qr", a, false);
  const Tensors y = bind_qr({full}, p.a);
  return {p.restore(y[0]), p.restore(y[1])};
}

Tensor triangular_solve(const Operand& a, const Operand& b, const Triangular& options) {
  PlaceScope at(a.place());
  const std::int64_t missing = options.left ? -1 : -2;  // the axis that makes it a matrix
  const auto [m, y] = matched_matrices("triangular_solve", a, as_matrix(b, missing), options.left);
  return as_given(b, m.restore(triangular(m.a, y, options)), missing);
}

}  // namespace postern::linalg
