// LAPACK and BLAS by element type. Column-major; `work` variants, which do not search for NaN.
#pragma once
#include <fmt/format.h>
#include <postern/error.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <cblas.h>
#include <lapacke.h>

namespace postern_lapack {

/// A count or a place that is not negative, as lists have it.
inline std::size_t size_of(std::int64_t n) { return static_cast<std::size_t>(n); }

namespace lapack {

using Int = lapack_int;
template <class T>
struct RealOf {
  using type = T;
};
template <class T>
struct RealOf<std::complex<T>> {
  using type = T;
};
template <class T>
using Real = typename RealOf<T>::type;
template <class T>
inline constexpr bool complex_element = !std::is_same_v<T, Real<T>>;

/// Returns whether none of n numbers is inf or nan, for which the routines do not search.
template <class T>
bool finite(const T* a, std::size_t n) {
  return std::all_of(a, a + n, [](const T& x) {
    return std::isfinite(std::real(x)) && std::isfinite(std::imag(x));
  });
}

/// The one of four functions that is for T.
template <class T, class S, class D, class C, class Z>
constexpr auto pick(S s, D d, C c, Z z) {
  if constexpr (std::is_same_v<T, float>)
    return s;
  else if constexpr (std::is_same_v<T, double>)
    return d;
  else if constexpr (std::is_same_v<T, std::complex<float>>)
    return c;
  else
    return z;
}

[[noreturn]] inline void refuse_length() {
  throw postern::Error(postern::ErrorCode::resource_exhausted,
                       "the matrix is too large: LAPACK cannot count the elements of the memory "
                       "that it needs for it");
}
/// Returns how long a workspace must be of which a routine says it as a floating-point number. Of a
/// large length that is a neighbour, perhaps the one below; of one that does not fit it is wrong.
template <class R>
constexpr std::size_t length_of(R best) {
  const double most =
      static_cast<double>(best) * (1 + static_cast<double>(std::numeric_limits<R>::epsilon()));
  if (!(most >= 0 && most < static_cast<double>(std::numeric_limits<Int>::max()))) refuse_length();
  return std::max<std::size_t>(1, static_cast<std::size_t>(most));
}
static_assert(length_of(0.0) == 1 && length_of(4096.0f) == 4096);
static_assert(length_of(33624096.0f) >= 33624098, "of cheevd with 4099 rows, as f32 has it");

/// Throws where a routine refused an argument: that is no matter of the matrix's numbers.
inline Int accepted(Int info) {
  if (info < 0)
    throw postern::Error(postern::ErrorCode::internal,
                         fmt::format("LAPACK has refused its argument {}", -info));
  return info;
}

/// Calls call(work, length) twice: to ask for the length, and to do it.
template <class T, class Call>
Int with_work(Call call) {
  T best{};
  if (const Int info = accepted(call(&best, -1)); info != 0) return info;
  std::vector<T> work(length_of(std::real(best)));
  return accepted(call(work.data(), static_cast<Int>(work.size())));
}

template <class T>
Int potrf(char uplo, Int n, T* a) {
  return pick<T>(LAPACKE_spotrf_work, LAPACKE_dpotrf_work, LAPACKE_cpotrf_work,
                 LAPACKE_zpotrf_work)(LAPACK_COL_MAJOR, uplo, n, a, std::max<Int>(1, n));
}
template <class T>
Int getrf(Int m, Int n, T* a, Int* pivots) {
  return pick<T>(LAPACKE_sgetrf_work, LAPACKE_dgetrf_work, LAPACKE_cgetrf_work,
                 LAPACKE_zgetrf_work)(LAPACK_COL_MAJOR, m, n, a, std::max<Int>(1, m), pivots);
}
template <class T>
Int geqrf(Int m, Int n, T* a, T* tau) {
  return with_work<T>([&](T* work, Int length) {
    return pick<T>(LAPACKE_sgeqrf_work, LAPACKE_dgeqrf_work, LAPACKE_cgeqrf_work,
                   LAPACKE_zgeqrf_work)(LAPACK_COL_MAJOR, m, n, a, std::max<Int>(1, m), tau, work,
                                        length);
  });
}
/// The first n columns of the unitary matrix of m rows that k reflectors make.
template <class T>
Int ungqr(Int m, Int n, Int k, T* a, const T* tau) {
  return with_work<T>([&](T* work, Int length) {
    return pick<T>(LAPACKE_sorgqr_work, LAPACKE_dorgqr_work, LAPACKE_cungqr_work,
                   LAPACKE_zungqr_work)(LAPACK_COL_MAJOR, m, n, k, a, std::max<Int>(1, m), tau,
                                        work, length);
  });
}

/// Room in real numbers for the routines that work on complex ones; the others want none.
template <class T>
std::vector<Real<T>> complex_work(std::size_t count) {
  if constexpr (complex_element<T>) return std::vector<Real<T>>(count);
  return {};
}
/// With columns in the order that makes r's diagonal fall; pivots count from 1, those that are not
/// 0 before come first.
template <class T>
Int geqp3(Int m, Int n, T* a, Int* pivots, T* tau) {
  [[maybe_unused]] auto rwork = complex_work<T>(2 * size_of(n));
  return with_work<T>([&](T* work, Int length) {
    if constexpr (complex_element<T>)
      return pick<T>(0, 0, LAPACKE_cgeqp3_work, LAPACKE_zgeqp3_work)(
          LAPACK_COL_MAJOR, m, n, a, std::max<Int>(1, m), pivots, tau, work, length, rwork.data());
    else
      return pick<T>(LAPACKE_sgeqp3_work, LAPACKE_dgeqp3_work, 0, 0)(
          LAPACK_COL_MAJOR, m, n, a, std::max<Int>(1, m), pivots, tau, work, length);
  });
}
/// c multiplied by the unitary matrix of k reflectors, or ('T', 'C') by its adjoint.
template <class T>
Int unmqr(char side, char op, Int m, Int n, Int k, const T* a, Int lda, const T* tau, T* c) {
  return with_work<T>([&](T* work, Int length) {
    return pick<T>(LAPACKE_sormqr_work, LAPACKE_dormqr_work, LAPACKE_cunmqr_work,
                   LAPACKE_zunmqr_work)(LAPACK_COL_MAJOR, side, op, m, n, k, a, lda, tau, c,
                                        std::max<Int>(1, m), work, length);
  });
}

/// Eigenvectors take the place of a.
template <class T>
Int heevd(char job, char uplo, Int n, T* a, Real<T>* w) {
  T work1{};
  Real<T> rwork1{};
  Int iwork1 = 0;
  auto call = [&](T* work, Int lwork, [[maybe_unused]] Real<T>* rwork, [[maybe_unused]] Int lrwork,
                  Int* iwork, Int liwork) {
    if constexpr (complex_element<T>)
      return pick<T>(0, 0, LAPACKE_cheevd_work, LAPACKE_zheevd_work)(
          LAPACK_COL_MAJOR, job, uplo, n, a, n, w, work, lwork, rwork, lrwork, iwork, liwork);
    else
      return pick<T>(LAPACKE_ssyevd_work, LAPACKE_dsyevd_work, 0, 0)(
          LAPACK_COL_MAJOR, job, uplo, n, a, n, w, work, lwork, iwork, liwork);
  };
  if (job == 'V') length_of(2.0 * n * n);  // beyond, its own count of them begins anew
  if (const Int info = accepted(call(&work1, -1, &rwork1, -1, &iwork1, -1)); info != 0) return info;
  std::vector<T> work(length_of(std::real(work1)) + 1);
  std::vector<Real<T>> rwork(length_of(rwork1) + 1);
  std::vector<Int> iwork(static_cast<std::size_t>(iwork1) + 1);
  return accepted(call(work.data(), static_cast<Int>(work.size()), rwork.data(),
                       static_cast<Int>(rwork.size()), iwork.data(),
                       static_cast<Int>(iwork.size())));
}

/// Destroys a.
template <class T>
Int gesdd(char job, Int m, Int n, T* a, Real<T>* s, T* u, Int ldu, T* vt, Int ldvt) {
  const auto small = size_of(std::min(m, n)), large = size_of(std::max(m, n));
  if (job != 'N')
    length_of(3.0 * static_cast<double>(small) * static_cast<double>(small));  // as above
  std::vector<Int> iwork(8 * small);
  [[maybe_unused]] auto rwork =
      complex_work<T>(small * std::max(5 * small + 7, 2 * large + 2 * small + 1) + 1);
  return with_work<T>([&](T* work, Int length) {
    if constexpr (complex_element<T>)
      return pick<T>(0, 0, LAPACKE_cgesdd_work, LAPACKE_zgesdd_work)(
          LAPACK_COL_MAJOR, job, m, n, a, m, s, u, ldu, vt, ldvt, work, length, rwork.data(),
          iwork.data());
    else
      return pick<T>(LAPACKE_sgesdd_work, LAPACKE_dgesdd_work, 0, 0)(
          LAPACK_COL_MAJOR, job, m, n, a, m, s, u, ldu, vt, ldvt, work, length, iwork.data());
  });
}

/// Destroys a.
template <class T>
Int gesvd(char job, Int m, Int n, T* a, Real<T>* s, T* u, Int ldu, T* vt, Int ldvt) {
  [[maybe_unused]] auto rwork = complex_work<T>(5 * size_of(std::min(m, n)));
  return with_work<T>([&](T* work, Int length) {
    if constexpr (complex_element<T>)
      return pick<T>(0, 0, LAPACKE_cgesvd_work, LAPACKE_zgesvd_work)(
          LAPACK_COL_MAJOR, job, job, m, n, a, m, s, u, ldu, vt, ldvt, work, length, rwork.data());
    else
      return pick<T>(LAPACKE_sgesvd_work, LAPACKE_dgesvd_work, 0, 0)(
          LAPACK_COL_MAJOR, job, job, m, n, a, m, s, u, ldu, vt, ldvt, work, length);
  });
}

/// Eigenvalues and, for 'V', eigenvectors of a general matrix, which is destroyed. Of a real one
/// the values' imaginary parts are apart.
template <class T>
Int geev_vectors(char left, char right, Int n, T* a, T* w, [[maybe_unused]] T* imaginary, T* vl,
                 T* vr) {
  [[maybe_unused]] auto rwork = complex_work<T>(2 * size_of(n));
  return with_work<T>([&](T* work, Int length) {
    if constexpr (complex_element<T>)
      return pick<T>(0, 0, LAPACKE_cgeev_work, LAPACKE_zgeev_work)(
          LAPACK_COL_MAJOR, left, right, n, a, n, w, vl, n, vr, n, work, length, rwork.data());
    else
      return pick<T>(LAPACKE_sgeev_work, LAPACKE_dgeev_work, 0, 0)(
          LAPACK_COL_MAJOR, left, right, n, a, n, w, imaginary, vl, n, vr, n, work, length);
  });
}
/// Eigenvalues alone.
template <class T>
Int geev(Int n, T* a, std::complex<Real<T>>* w) {
  if constexpr (complex_element<T>) {
    return geev_vectors<T>('N', 'N', n, a, w, nullptr, nullptr, nullptr);
  } else {
    const auto size = size_of(n);
    std::vector<T> parts(2 * size);
    const Int info =
        geev_vectors<T>('N', 'N', n, a, parts.data(), parts.data() + size, nullptr, nullptr);
    for (std::size_t i = 0; i < size; ++i) w[i] = {parts[i], parts[size + i]};
    return info;
  }
}

/// The Schur form takes the place of a.
template <class T>
Int gees(char job, Int n, T* a, T* w, [[maybe_unused]] T* imaginary, T* vectors) {
  [[maybe_unused]] auto rwork = complex_work<T>(size_of(n));
  Int selected = 0;
  return with_work<T>([&](T* work, Int length) {
    if constexpr (complex_element<T>)
      return pick<T>(0, 0, LAPACKE_cgees_work, LAPACKE_zgees_work)(
          LAPACK_COL_MAJOR, job, 'N', nullptr, n, a, n, &selected, w, vectors, n, work, length,
          rwork.data(), nullptr);
    else
      return pick<T>(LAPACKE_sgees_work, LAPACKE_dgees_work, 0, 0)(
          LAPACK_COL_MAJOR, job, 'N', nullptr, n, a, n, &selected, w, imaginary, vectors, n, work,
          length, nullptr);
  });
}

/// Hessenberg form and reflectors.
template <class T>
Int gehrd(Int n, Int low, Int high, T* a, T* tau) {
  return with_work<T>([&](T* work, Int length) {
    return pick<T>(LAPACKE_sgehrd_work, LAPACKE_dgehrd_work, LAPACKE_cgehrd_work,
                   LAPACKE_zgehrd_work)(LAPACK_COL_MAJOR, n, low, high, a, n, tau, work, length);
  });
}
/// Tridiagonal form of a Hermitian matrix, and reflectors.
template <class T>
Int hetrd(char uplo, Int n, T* a, Real<T>* d, Real<T>* e, T* tau) {
  return with_work<T>([&](T* work, Int length) {
    return pick<T>(LAPACKE_ssytrd_work, LAPACKE_dsytrd_work, LAPACKE_chetrd_work,
                   LAPACKE_zhetrd_work)(LAPACK_COL_MAJOR, uplo, n, a, n, d, e, tau, work, length);
  });
}
/// b becomes the solution of a tridiagonal system, whose diagonals are destroyed.
template <class T>
Int gtsv(Int n, Int columns, T* lower, T* diagonal, T* upper, T* b) {
  return pick<T>(LAPACKE_sgtsv_work, LAPACKE_dgtsv_work, LAPACKE_cgtsv_work, LAPACKE_zgtsv_work)(
      LAPACK_COL_MAJOR, n, columns, lower, diagonal, upper, b, n);
}

/// Row-major: b = op(a)^-1 b, or b op(a)^-1.
template <class T>
void trsm(bool left, bool lower, CBLAS_TRANSPOSE op, bool unit, Int m, Int n, const T* a, Int lda,
          T* b, Int ldb) {
  const auto side = left ? CblasLeft : CblasRight;
  const auto uplo = lower ? CblasLower : CblasUpper;
  const auto diag = unit ? CblasUnit : CblasNonUnit;
  if constexpr (std::is_same_v<T, float>)
    cblas_strsm(CblasRowMajor, side, uplo, op, diag, m, n, 1, a, lda, b, ldb);
  else if constexpr (std::is_same_v<T, double>)
    cblas_dtrsm(CblasRowMajor, side, uplo, op, diag, m, n, 1, a, lda, b, ldb);
  else {
    const T one = 1;
    if constexpr (std::is_same_v<T, std::complex<float>>)
      cblas_ctrsm(CblasRowMajor, side, uplo, op, diag, m, n, &one, a, lda, b, ldb);
    else
      cblas_ztrsm(CblasRowMajor, side, uplo, op, diag, m, n, &one, a, lda, b, ldb);
  }
}

}  // namespace lapack
}  // namespace postern_lapack
