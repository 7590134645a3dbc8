// Linear algebra on the last two axes; axes before them are a batch, one matrix after another. Each
// function is a block (but for eigvals): LAPACK on CPU, ordinary operations elsewhere, and
// `override_block` can bring another. Results have a's dtype, but where it is said; integers become
// f32; f16 and bf16 are computed in f32. What is real of a complex a has the dtype of its parts.
//
// What LAPACK computes is in a library of its own, libpostern_lapack. It is opened when such a
// program is first compiled or run for a CPU, or `eigvals` is first called; a PluginError says
// where it was looked for if it, or LAPACK, is missing. `keep_default` does without.
//
// Every function throws TypeError for operands of rank below 2, of a dtype that is neither an
// integer, f16, bf16, f32, f64, c64 nor c128, not square where [n,n] is said, and for two that do
// not go together. A matrix that cannot be decomposed is no TypeError: see Failure.
//
// Derivatives are formulas, in both modes and of any order, so that no loop is differentiated;
// where eigenvalues or singular values are equal only the first one may be right, see eigh and det.
// Of what is not unique the factors' derivatives have conventions, stated below; they never are NaN
// where the factors are finite, except where a division by a singular matrix is meant.
#pragma once
#include <postern/block.h>
#include <postern/detail/api.h>
#include <postern/ops.h>

namespace postern::linalg {

/// What a matrix that cannot be decomposed does: results of NaN for it (others of its batch are
/// fine), or a CallbackError that names its place in the batch. Only kernels can fail with an
/// error; the defaults give NaN.
enum class Failure : std::uint8_t { nan, error };

// Configs of the blocks, for override_block. Operands and results have any number of leading axes,
// the same for all.
struct Cholesky {  // a -> l with l l^H = (a + a^H) / 2
  static constexpr std::string_view name = "linalg.cholesky";
  Failure failure = Failure::nan;
};
struct Lu {  // a[m,n] -> lu[m,n], pivots s32[k], permutation s32[m]
  static constexpr std::string_view name = "linalg.lu";
};
struct Qr {  // a[m,n] -> q, r
  static constexpr std::string_view name = "linalg.qr";
  bool full = false;
};
struct Eigh {  // a -> w, v (w alone without vectors) of (a + a^H) / 2
  static constexpr std::string_view name = "linalg.eigh";
  bool vectors = true;
  Failure failure = Failure::nan;
};
struct Svd {  // a[m,n] -> u, s, vh (s alone without vectors)
  static constexpr std::string_view name = "linalg.svd";
  bool vectors = true, full = false;
  Failure failure = Failure::nan;
};
struct Triangular {  // a[n,n], b -> x with op(a) x = b, or x op(a) = b; only the triangle named is
                     // read
  static constexpr std::string_view name = "linalg.triangular_solve";
  bool left = true, lower = true, transpose = false, conjugate = false, unit_diagonal = false;
};

struct Eigvals {  // a[n,n] -> w[n], complex; not a block, but a kernel of it is what `eigvals`
                  // calls
  static constexpr std::string_view name = "linalg.eigvals";
};

// The defaults of those that follow are made of the blocks above, so that on CPU they are LAPACK's
// too.
struct Solve {  // a[n,n], b[n,k] -> x with a x = b
  static constexpr std::string_view name = "linalg.solve";
};
struct Inv {  // a[n,n] -> its inverse
  static constexpr std::string_view name = "linalg.inv";
};
struct Det {  // a[n,n] -> det, one for each matrix
  static constexpr std::string_view name = "linalg.det";
};
struct Slogdet {  // a[n,n] -> sign, log|det|
  static constexpr std::string_view name = "linalg.slogdet";
};
struct Lstsq {  // a[m,n], b[m,k] -> x[n,k]
  static constexpr std::string_view name = "linalg.lstsq";
  double rcond = -1;
};
struct Pinv {  // a[m,n] -> p[n,m]
  static constexpr std::string_view name = "linalg.pinv";
  double rcond = -1;
};
struct MatrixRank {  // a[m,n] -> s32, one for each matrix
  static constexpr std::string_view name = "linalg.matrix_rank";
  double tolerance = -1;
};
struct MatrixPower {  // a[n,n] -> its `exponent`-th power
  static constexpr std::string_view name = "linalg.matrix_power";
  std::int64_t exponent = 1;
};
struct Expm {  // a[n,n] -> exp(a)
  static constexpr std::string_view name = "linalg.expm";
};

// --- decompositions ---

/// Returns a[n,n] to the lower l[n,n] with l l^H = (a + a^H) / 2. Derivative: Murray 2016,
/// arXiv:1602.07527.
[[nodiscard]] POSTERN_API Tensor cholesky(const Operand& a, Failure failure = Failure::nan);

/// Partial pivoting, as LAPACK's getrf: unit lower l below the diagonal and u on and above it; row
/// i was swapped with row pivots[i]; a with its rows in the order `permutation` is l u. Of a[m,n]
/// they are lu[m,n], pivots s32[k], with k the lesser extent, and permutation s32[m]. Derivative:
/// as in JAX (lax.linalg.lu).
struct LuResult {
  Tensor lu, pivots, permutation;
};
[[nodiscard]] POSTERN_API LuResult lu(const Operand& a);
/// Returns p[m,m], l[m,k], u[k,n] with a = p l u.
///
///   const pn::Tensor a = pn::tensor<float>({{0, 2}, {1, 3}});
///   const auto [p, l, u] = pn::linalg::plu(a);
///   const pn::Tensor again = pn::matmul(p, pn::matmul(l, u));  // [[0 2] [1 3]]
[[nodiscard]] POSTERN_API std::tuple<Tensor, Tensor, Tensor> plu(const Operand& a);

/// Decomposes by Householder, as LAPACK's geqrf. Reduced: q[m,k] r[k,n] with k the lesser extent;
/// full: q[m,m] r[m,n]. Derivative: Walter and Lehmann 2010; of the full form of a tall matrix
/// there is none (TypeError), nor for a wide matrix whose left square is singular.
[[nodiscard]] POSTERN_API std::pair<Tensor, Tensor> qr(const Operand& a, bool full = false);

/// Returns eigenvalues w[n], ascending and real, and eigenvectors in the columns of v[n,n], of (a +
/// a^H) / 2 of a[n,n]. Derivative: Giles 2008. Eigenvectors of eigenvalues that are equal to within
/// rounding are not differentiable: their mutual derivatives are taken as zero. The first
/// derivative of a function of the eigenvalues alone, or of the span of those vectors, is right all
/// the same. Wrong there are second and higher derivatives, of `eigvalsh` too, and the first one of
/// a function that uses such vectors one by one, as v f(w) v^H does: at the unit matrix the
/// gradient of sum(c * (v w^2 v^T)) lacks what c has beside its diagonal.
[[nodiscard]] POSTERN_API std::pair<Tensor, Tensor> eigh(const Operand& a,
                                                         Failure failure = Failure::nan);
[[nodiscard]] POSTERN_API Tensor eigvalsh(const Operand& a, Failure failure = Failure::nan);

/// Returns u[m,k], s[k] descending and real, vh[k,n] with a = u diag(s) vh, k the lesser extent of
/// a[m,n]; full: u[m,m], vh[n,n]. `svdvals` gives s. Derivative: Townsend 2016; equal singular
/// values as in eigh, those that are zero likewise, of `svdvals` too; of the full form of a matrix
/// that is not square there is none (TypeError).
[[nodiscard]] POSTERN_API std::tuple<Tensor, Tensor, Tensor> svd(const Operand& a,
                                                                 bool full = false,
                                                                 Failure failure = Failure::nan);
[[nodiscard]] POSTERN_API Tensor svdvals(const Operand& a, Failure failure = Failure::nan);

/// Returns eigenvalues [n] of a general square a[n,n], complex, in no order. Computed by a host
/// call on any device; a derivative is a TypeError.
[[nodiscard]] POSTERN_API Tensor eigvals(const Operand& a);

// --- equations ---

/// Returns x, like b, with a x = b for a[n,n]. Derivative: Giles 2008. b is a vector [n], also for
/// each of several a, or a matrix [n,k]; leading axes broadcast, dtypes are promoted. A singular a
/// gives Inf or NaN.
[[nodiscard]] POSTERN_API Tensor solve(const Operand& a, const Operand& b);

/// Returns x, like b, with op(a) x = b, or x op(a) = b where not `left`, for a[n,n] and a vector
/// b[n] or a matrix b[n,k], or b[k,n]; op transposes and conjugates as asked, leading axes
/// broadcast, dtypes are promoted. Derivative: Giles 2008, of the triangle read.
///
///   const pn::Tensor a = pn::tensor<float>({{2, 0}, {1, 4}}), b = pn::tensor<float>({{2}, {9}});
///   const pn::Tensor x = pn::linalg::triangular_solve(a, b);                       // [[1] [2]]
///   const pn::Tensor y = pn::linalg::triangular_solve(a, b, {.transpose = true});  // a^T y = b
[[nodiscard]] POSTERN_API Tensor triangular_solve(const Operand& a, const Operand& b,
                                                  const Triangular& options = {});

/// Returns the inverse of a[n,n], of its type; Inf or NaN where a is singular. Derivative: Giles
/// 2008.
[[nodiscard]] POSTERN_API Tensor inv(const Operand& a);
/// Returns the determinant of a[n,n], a scalar for each matrix; zero for singular ones. Derivative:
/// Jacobi's formula, with the adjugate from the singular value decomposition (Stewart 1998), so
/// that it is right for singular matrices too, and so is the second one. Third and higher ones may
/// be wrong where singular values are equal or zero.
[[nodiscard]] POSTERN_API Tensor det(const Operand& a);
/// Returns sign and log|det| of a[n,n], scalars for each matrix, the latter real; 0 and -Inf for
/// singular ones. Derivative: Giles 2008.
[[nodiscard]] POSTERN_API std::pair<Tensor, Tensor> slogdet(const Operand& a);

/// Returns of all x that minimise |a x - b| the shortest: a[m,n], b[m,k] or [m] to x[n,k] or [n].
/// Singular values below `rcond` times the largest count as zero; negative: machine epsilon times
/// the larger extent. Derivative: Golub and Pereyra 1973, at constant rank.
[[nodiscard]] POSTERN_API Tensor lstsq(const Operand& a, const Operand& b, double rcond = -1);
/// Returns the pseudoinverse (Moore and Penrose) of a[m,n], which is [n,m]; rcond and derivative as
/// above.
[[nodiscard]] POSTERN_API Tensor pinv(const Operand& a, double rcond = -1);
/// Returns s32, one for each matrix: how many singular values exceed `tolerance` times the largest
/// (negative: as above).
[[nodiscard]] POSTERN_API Tensor matrix_rank(const Operand& a, double tolerance = -1);

/// Returns the n-th power of a square a, of its type, by repeated squaring; n negative: of the
/// inverse. Derivative: of the products.
[[nodiscard]] POSTERN_API Tensor matrix_power(const Operand& a, std::int64_t n);
/// Returns the exponential of a[n,n], of its type: Pade approximation with scaling and squaring
/// (Higham 2005). Derivative: of the approximation itself (Al-Mohy and Higham 2009). NaN where the
/// norm of a is beyond about 2^18.
[[nodiscard]] POSTERN_API Tensor expm(const Operand& a);

}  // namespace postern::linalg
