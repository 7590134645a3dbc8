// eigh, svd and eigvals: public functions, and the formulas of their derivatives.
#include "linalg/linalg.h"

#include "ops/family.h"

namespace postern::internal::linear_algebra {

namespace {

/// 1 / (w_j - w_i) at (i, j), zero where both are equal to within rounding of the largest.
Tensor inverse_gaps(const Tensor& w) {
  const Tensor gap = expand_dims(w, -2) - expand_dims(w, -1);
  const Tensor scale = largest(abs(w));
  const Tensor limit =
      expand_dims(scale * (epsilon(w.dtype()) * static_cast<double>(w.dims().back())), -1);
  return inverse_or_zero(gap, abs(gap) <= limit);
}

// --- eigh ---

/// dw = diag(v^H da v), dv = v (f o v^H da v) with f the inverse gaps (Giles 2008).
Jvp eigh_jvp(const void* config, TensorSpan x, TensorSpan dx) {
  linalg::Eigh c = config_of<linalg::Eigh>(config);
  const bool vectors = c.vectors;
  c.vectors = true;
  const Tensors y = bind_eigh(c, x[0]);
  const Tensor &w = y[0], &v = y[1];
  const Tensor inner = matmul(matmul(adjoint(v), hermitian_part(dx[0])), v);
  const Tensor dw = real(diagonal_of(inner));
  if (!vectors) return {{w}, {dw}};
  const Tensor dv = matmul(v, convert(inverse_gaps(w), inner.dtype()) * inner);
  return {y, {dw, dv}};
}
constexpr Rules eigh_rules{each_matrix<eigh_default>, eigh_jvp};

// --- svd ---

/// Returns (t - u (u^H t)) / s: the part of a tangent outside of the span of u.
Tensor outside(const Tensor& u, const Tensor& t, const Tensor& s_inverse) {
  return (t - matmul(u, matmul(adjoint(u), t))) * convert(expand_dims(s_inverse, -2), t.dtype());
}

/// With p = u^H da v, `inner`: ds = the real diagonal of p, du = u (f o (p s + s p^H)) and
/// dv = v (f o (s p + p^H s)), with f_ij = 1 / (s_j^2 - s_i^2). Beside that the phases of complex
/// vectors turn, by the imaginary diagonal of p, and vectors of a matrix that is not square leave
/// their span (Townsend 2016, "Differentiating the singular value decomposition").
Jvp svd_jvp(const void* config, TensorSpan x, TensorSpan dx) {
  linalg::Svd c = config_of<linalg::Svd>(config);
  const std::int64_t m = rows(x[0]);
  const std::int64_t n = columns(x[0]);
  const bool vectors = c.vectors;
  check(!vectors || !c.full || m == n,
        "svd: the full form of a matrix that is not square has no derivative, its last vectors are "
        "arbitrary; got {}",
        to_string(x[0].type()));
  c.vectors = true;
  c.full = false;
  const Tensors y = bind_svd(c, x[0]);
  const Tensor &u = y[0], &s = y[1], v = adjoint(y[2]);
  const Tensor inner = matmul(matmul(adjoint(u), dx[0]), v);
  const Tensor ds = real(diagonal_of(inner));
  if (!vectors) return {{s}, {ds}};
  const DType dtype = inner.dtype();
  // f in two factors, 1 / (s_j - s_i) and 1 / (s_j + s_i): the squares of small values are equal
  // sooner than the values.
  const Tensor gaps = convert(inverse_gaps(s), dtype);
  const Tensor row = expand_dims(s, -2);
  const Tensor column = expand_dims(s, -1);
  const Tensor total = row + column;
  const Tensor divisor = where(equal(total, 0), 1.0f, total);
  const Tensor limit = largest(s) * (epsilon(s.dtype()) * static_cast<double>(std::max(m, n)));
  const Tensor s_inverse = inverse_or_zero(s, s <= limit);
  const Tensor by_row = inner * convert(row / divisor, dtype),
               by_column = inner * convert(column / divisor, dtype);
  Tensor left = gaps * (by_row + adjoint(by_row));
  const Tensor right = gaps * (by_column + adjoint(by_column));
  if (is_complex(dtype))
    left = left + (inner - adjoint(inner)) * diagonal_matrix(convert(s_inverse, dtype)) * 0.5f;
  Tensor du = matmul(u, left), dv = matmul(v, right);
  if (m > n) du = du + outside(u, matmul(dx[0], v), s_inverse);
  if (n > m) dv = dv + outside(v, matmul(adjoint(dx[0]), u), s_inverse);
  return {y, {du, ds, adjoint(dv)}};
}
constexpr Rules svd_rules{each_matrix<svd_default>, svd_jvp};

}  // namespace

Tensors bind_eigh(const linalg::Eigh& c, const Tensor& a) { return bind_linalg(c, eigh_rules, a); }
Tensors bind_svd(const linalg::Svd& c, const Tensor& a) { return bind_linalg(c, svd_rules, a); }

}  // namespace postern::internal::linear_algebra

namespace postern::linalg {
using namespace internal;

using namespace linear_algebra;

std::pair<Tensor, Tensor> eigh(const Operand& a, Failure failure) {
  PlaceScope at(a.place());
  const Prepared p = prepared("eigh", a, true);
  const Tensors y = bind_eigh({true, failure}, p.a);
  return {p.restore(y[0]), p.restore(y[1])};
}

Tensor eigvalsh(const Operand& a, Failure failure) {
  PlaceScope at(a.place());
  const Prepared p = prepared("eigvalsh", a, true);
  return p.restore(bind_eigh({false, failure}, p.a)[0]);
}

std::tuple<Tensor, Tensor, Tensor> svd(const Operand& a, bool full, Failure failure) {
  PlaceScope at(a.place());
  const Prepared p = prepared("svd", a, false);
  const Tensors y = bind_svd({true, full, failure}, p.a);
  return {p.restore(y[0]), p.restore(y[1]), p.restore(y[2])};
}

Tensor svdvals(const Operand& a, Failure failure) {
  PlaceScope at(a.place());
  const Prepared p = prepared("svdvals", a, false);
  return p.restore(bind_svd({false, false, failure}, p.a)[0]);
}

Tensor eigvals(const Operand& operand) {
  PlaceScope at(operand.place());
  const Tensor& t = operand.tensor();
  DType dtype = DType::f32;
  if (is_complex(t.dtype()) || t.dtype() == DType::f64) dtype = t.dtype();
  const Tensor a = convert(t, dtype);
  check(a.rank() >= 2 && rows(a) == columns(a), "eigvals: square matrices are needed, got {}",
        to_string(t.type()));
  const Type out{complex_dtype(real_dtype(dtype)), Dims(a.dims().begin(), a.dims().end() - 1)};
  const detail::BlockConfig config = detail::erase_config(Eigvals{});
  const blocks::OverridePtr kernel = blocks::choose({.config = config,
                                                     .operands = {&a.type(), 1},
                                                     .results = {},
                                                     .platform = &platforms::current(),
                                                     .called = true});
  if (!kernel || !kernel->kernel)
    throw Error(ErrorCode::unimplemented,
                "eigvals: a kernel for linalg::Eigvals is needed, there is none: Postern was built "
                "with POSTERN_LAPACK=OFF");
  return call(CallOptions{.name = "linalg.eigvals", .vmap = VmapMethod::broadcast_all}, out,
              kernel->kernel(config.object), a);
}

}  // namespace postern::linalg
