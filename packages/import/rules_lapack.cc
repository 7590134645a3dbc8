// What linear algebra is here: StableHLO's own operations, and LAPACK's functions as JAX calls
// them, by the names of their FFI handlers, with letters for options. What they leave in the rest
// of a matrix that they overwrite is left there; numbers that say whether all went well are zero,
// or count a failure.
#include <postern/linalg.h>

#include "interpreter.h"

namespace postern::internal::imported {

namespace {

/// An option's letter: `uplo = 76 : ui8`.
char letter(const Step& s, std::string_view name) {
  if (const Dims found = s.part(name); found.size() == 1) return static_cast<char>(found[0]);
  throw TypeError(fmt::format("{}: an option {} is missing", s.node.symbol, name));
}

Tensor zeros_for(const Step& s, std::size_t i) { return zeros(s.result(i)); }
/// How many matrices have something that is no number.
Tensor failure(const Step& s, std::size_t i, const Tensor& x) {
  return convert(any(not_equal(x, x), {.axes = {-2, -1}}), s.dtype(i));
}

/// A matrix of which only one triangle counts.
Tensor mirrored(const Tensor& x, bool lower) {
  const Tensor half = lower ? tril(x, -1) : triu(x, 1);
  return half + move_axis(conj(half), -1, -2) + tril(triu(x));
}

Values cholesky_rule(const Step& s) {
  const bool lower = s.node.attribute("lower") == "true";
  const Tensor l = linalg::cholesky(mirrored(s[0], lower));
  return {lower ? l : move_axis(conj(l), -1, -2)};
}

Values triangular_solve_rule(const Step& s) {
  const auto yes = [&](std::string_view key) { return s.node.attribute(key) == "true"; };
  const std::string_view transposed = s.node.attribute("transpose_a");
  const bool adjoint = transposed.find("ADJOINT") != transposed.npos;
  return {linalg::triangular_solve(
      s[0], s[1],
      {.left = yes("left_side"),
       .lower = yes("lower"),
       .transpose = adjoint || (transposed.find("TRANSPOSE") != transposed.npos &&
                                transposed.find("NO_TRANSPOSE") == transposed.npos),
       .conjugate = adjoint,
       .unit_diagonal = yes("unit_diagonal")})};
}

Values potrf(const Step& s) {
  const bool lower = letter(s, "uplo") == 'L';
  const Tensor l = linalg::cholesky(mirrored(s[0], lower));
  const Tensor factor =
      lower ? tril(l) + triu(s[0], 1) : triu(move_axis(conj(l), -1, -2)) + tril(s[0], -1);
  return {factor, failure(s, 1, l)};
}

Values getrf(const Step& s) {
  const linalg::LuResult all = linalg::lu(s[0]);
  return {all.lu, convert(all.pivots, s.dtype(1)) + 1, zeros_for(s, 2)};
}

Values trsm(const Step& s) {
  const char trans = letter(s, "trans_x");
  return {linalg::triangular_solve(s[0], s[1],
                                   {.left = letter(s, "side") == 'L',
                                    .lower = letter(s, "uplo") == 'L',
                                    .transpose = trans != 'N',
                                    .conjugate = trans == 'C',
                                    .unit_diagonal = letter(s, "diag") == 'U'})};
}

Values syevd(const Step& s) {
  const Tensor a = mirrored(s[0], letter(s, "uplo") == 'L');
  if (letter(s, "mode") == 'N') return {s[0], linalg::eigvalsh(a), zeros_for(s, 2)};
  const auto [w, v] = linalg::eigh(a);
  return {v, w, failure(s, 2, v)};
}

Values gesdd(const Step& s) {
  const char mode = letter(s, "mode");
  if (mode == 'N')
    return {s[0], linalg::svdvals(s[0]), zeros_for(s, 2), zeros_for(s, 3), zeros_for(s, 4)};
  const auto [u, w, vh] = linalg::svd(s[0], mode == 'A');
  return {s[0], w, u, vh, failure(s, 4, u)};
}

/// Reflectors, of which no derivative is known, below the triangle r, which has one.
Values geqrf(const Step& s) {
  if (s[0].dims().at(s[0].dims().size() - 2) < s[0].dims().back()) return {};
  const Values packed = as_written(s, {.handlers = {s.node.symbol}, .constant = true});
  const Tensor r = linalg::qr(s[0]).second;
  const std::int64_t rows =
      s[0].dims().at(s[0].dims().size() - 2) - r.dims().at(r.dims().size() - 2);
  Dims low(r.dims().size(), 0), high = low;
  high.at(high.size() - 2) = rows;
  return {pad(triu(r), zeros(Type{r.dtype(), {}}), low, high) + tril(packed.at(0), -1),
          packed.at(1)};
}
/// The orthogonal factor of what geqrf was given.
Values orgqr(const Step& s) {
  const Node* const made = s.frame.maker(s.node.operands.at(0));
  if (!made || made->symbol.find("geqrf") == std::string::npos) return {};
  const Tensor& a = s.frame.value(made->operands.at(0));
  const Tensor q = linalg::qr(a).first;
  if (q.dims() != s.result().dims) return {};
  return {q};
}

}  // namespace

const Rules& lapack_rules() {
  static const Rules* const rules = new Rules{
      {"cholesky", cholesky_rule},  {"triangular_solve", triangular_solve_rule},
      {"lapack_spotrf_ffi", potrf}, {"lapack_dpotrf_ffi", potrf},
      {"lapack_cpotrf_ffi", potrf}, {"lapack_zpotrf_ffi", potrf},
      {"lapack_sgetrf_ffi", getrf}, {"lapack_dgetrf_ffi", getrf},
      {"lapack_cgetrf_ffi", getrf}, {"lapack_zgetrf_ffi", getrf},
      {"lapack_strsm_ffi", trsm},   {"lapack_dtrsm_ffi", trsm},
      {"lapack_ctrsm_ffi", trsm},   {"lapack_ztrsm_ffi", trsm},
      {"lapack_ssyevd_ffi", syevd}, {"lapack_dsyevd_ffi", syevd},
      {"lapack_cheevd_ffi", syevd}, {"lapack_zheevd_ffi", syevd},
      {"lapack_sgesdd_ffi", gesdd}, {"lapack_dgesdd_ffi", gesdd},
      {"lapack_cgesdd_ffi", gesdd}, {"lapack_zgesdd_ffi", gesdd},
      {"lapack_sgeqrf_ffi", geqrf}, {"lapack_dgeqrf_ffi", geqrf},
      {"lapack_cgeqrf_ffi", geqrf}, {"lapack_zgeqrf_ffi", geqrf},
      {"lapack_sorgqr_ffi", orgqr}, {"lapack_dorgqr_ffi", orgqr},
      {"lapack_cungqr_ffi", orgqr}, {"lapack_zungqr_ffi", orgqr},
  };
  return *rules;
}

}  // namespace postern::internal::imported
