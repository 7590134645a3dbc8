// LAPACK kernels of the linear algebra blocks: one matrix after another. Views are row-major: to
// LAPACK they are the transposes, which svd and triangular_solve use as they are; the other
// routines are slower on those than a transposed copy costs.
#include <fmt/format.h>
#include <postern/library.h>
#include <postern/linalg.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "lapack.h"
#include "layout.h"
#include "library.h"
#include "small.h"

// Before a function of plain numbers: also in a version for wider vectors, chosen when the library
// is loaded, for which sanitizers come too late. Results are the same to the bit, since neither
// fuses multiplications and additions.
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LAPACK_VERSIONS [[gnu::target_clones("avx2", "default")]]
#else
#define LAPACK_VERSIONS
#endif

namespace postern_lapack {

using namespace postern;

namespace {

using lapack::finite;
using lapack::Int;
using lapack::Real;
using In = std::span<const AnyView>;
using Out = std::span<const AnyMutableView>;

template <class T>
const T* data(const AnyView& v) {
  return reinterpret_cast<const T*>(v.data());
}
template <class T>
T* data(const AnyMutableView& v) {
  return reinterpret_cast<T*>(v.data());
}
template <class V>
Int extent(const V& v, std::size_t from_end) {
  return static_cast<Int>(v.dims()[v.dims().size() - from_end]);
}
/// How many matrices.
std::int64_t count(const AnyView& a) {
  const auto dims = a.dims();
  return std::accumulate(dims.begin(), dims.end() - 2, std::int64_t{1}, std::multiplies<>());
}
/// Elements of one matrix (or, with `axes` 1, vector) of a view.
template <class V>
std::size_t step(const V& v, std::size_t axes = 2) {
  std::size_t n = 1;
  for (std::size_t i = 1; i <= axes; ++i) n *= size_of(extent(v, i));
  return n;
}

template <class T>
constexpr Real<T> nan_of() {
  return std::numeric_limits<Real<T>>::quiet_NaN();
}
template <class T>
void fill_nan(T* to, std::size_t n) {
  std::fill_n(to, n, T(nan_of<T>()));
}

[[noreturn]] void failed(const char* what, std::int64_t i, const char* why) {
  throw Error(ErrorCode::failed_precondition,
              fmt::format("{}: matrix {} of the batch {}", what, i, why));
}

/// Calls run.operator()<T>() for the element type.
template <class Run>
void by_dtype(DType dtype, Run run) {
  switch (dtype) {
    case DType::f32: return run.template operator()<float>();
    case DType::f64: return run.template operator()<double>();
    case DType::c64: return run.template operator()<std::complex<float>>();
    default: return run.template operator()<std::complex<double>>();
  }
}

/// Memory that is written before it is read.
template <class T>
std::unique_ptr<T[]> scratch(std::size_t n) {
  return std::make_unique_for_overwrite<T[]>(n);
}

/// Calls run(first, last) for parts of the batch, on all cores when it is worth their while: LAPACK
/// itself uses one for small matrices. The failure of the lowest part is thrown.
template <class Run>
void over_batch(std::int64_t count, std::size_t elements, Run run) {
  constexpr std::size_t worth = 16384;  // elements for each core
  const std::int64_t cores = std::min(count, core_count());
  if (cores < 2 || size_of(count) * elements < worth * size_of(cores)) return run(0, count);
  parallel_for(cores,
               [&](std::int64_t part) { run(count * part / cores, count * (part + 1) / cores); });
}

/// Row by row, for a matrix so small that calling LAPACK is most of the work. Whether it is
/// positive definite.
template <class T>
bool small_cholesky(const T* a, T* l, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      T rest = (a[i * n + j] + layout::conjugate(a[j * n + i])) * T(0.5f);
      for (std::size_t k = 0; k < j; ++k) rest -= l[i * n + k] * layout::conjugate(l[j * n + k]);
      if (i != j) {
        l[i * n + j] = rest / l[j * n + j];
      } else if (std::real(rest) > 0 && std::isfinite(std::real(rest))) {
        l[i * n + i] = std::sqrt(std::real(rest));
      } else {
        return false;
      }
    }
    std::fill(l + i * n + i + 1, l + (i + 1) * n, T(0));
  }
  return true;
}

template <class T>
void cholesky(const linalg::Cholesky& c, In in, Out out) {
  constexpr std::size_t small = 16;
  const Int n = extent(in[0], 1);
  const std::size_t size = step(in[0]), width = size_of(n);
  for (std::int64_t b = 0; b < count(in[0]) && n > 0; ++b) {
    T* l = data<T>(out[0]) + size_of(b) * size;
    const T* a = data<T>(in[0]) + size_of(b) * size;
    bool ok = false;
    if (width <= small) {
      ok = small_cholesky(a, l, width);
    } else {
      layout::hermitian_lower(a, l, width);
      ok = lapack::potrf('L', n, l) == 0;
      // Some LAPACKs take NaN for positive; what is not finite comes to the diagonal.
      for (std::size_t i = 0; i < width; ++i) ok = ok && std::isfinite(std::real(l[i * width + i]));
      if (ok) layout::make_row_major(l, width, true);
    }
    if (ok) continue;
    if (c.failure == linalg::Failure::error) failed("cholesky", b, "is not positive definite");
    fill_nan(l, size);
    layout::make_row_major(l, width, true);  // zeros above the diagonal
  }
}

/// getrf for a small row-major matrix, which needs no transposed copy. Pivots count from 1, as
/// LAPACK's.
template <class T>
[[gnu::always_inline]] inline void eliminate(T* a, std::size_t m, std::size_t n, Int* pivots) {
  auto magnitude = [&](std::size_t i, std::size_t j) {
    return std::abs(std::real(a[i * n + j])) + std::abs(std::imag(a[i * n + j]));
  };
  for (std::size_t c = 0; c < std::min(m, n); ++c) {
    T* const top = a + c * n;
    std::size_t p = c;
    for (std::size_t i = c + 1; i < m; ++i)
      if (magnitude(i, c) > magnitude(p, c)) p = i;
    pivots[c] = static_cast<Int>(p + 1);
    if (p != c) std::swap_ranges(top, top + n, a + p * n);
    if (top[c] == T(0)) continue;
    for (std::size_t i = c + 1; i < m; ++i) {
      T* const row = a + i * n;
      const T factor = row[c] /= top[c];
      for (std::size_t j = c + 1; j < n; ++j) row[j] -= factor * top[j];
    }
  }
}

template <class T>
void small_lu(T* a, std::size_t m, std::size_t n, Int* pivots) {
  eliminate(a, m, n, pivots);
}
LAPACK_VERSIONS void small_lu(float* a, std::size_t m, std::size_t n, Int* pivots) {
  eliminate(a, m, n, pivots);
}
LAPACK_VERSIONS void small_lu(double* a, std::size_t m, std::size_t n, Int* pivots) {
  eliminate(a, m, n, pivots);
}

template <class T>
void lu(In in, Out out) {
  constexpr std::size_t small = 64;
  const Int m = extent(in[0], 2), n = extent(in[0], 1), k = std::min(m, n);
  const auto rows = size_of(m), columns = size_of(n), size = rows * columns;
  const bool in_place = rows <= small && columns <= small;
  std::size_t work_size = size;
  if (in_place) work_size = 0;
  over_batch(count(in[0]), size, [&](std::int64_t first, std::int64_t last) {
    const auto work = scratch<T>(work_size);
    for (std::int64_t b = first; b < last; ++b) {
      const auto at = size_of(b);
      Int* pivots = data<Int>(out[1]) + at * size_of(k);
      Int* order = data<Int>(out[2]) + at * size_of(m);
      std::iota(order, order + m, 0);
      if (k == 0) continue;
      const T* a = data<T>(in[0]) + at * size;
      T* factors = data<T>(out[0]) + at * size;
      // A zero pivot is left in u.
      if (in_place) {
        small_lu(std::copy_n(a, size, factors) - size, rows, columns, pivots);
      } else {
        layout::transposed(a, work.get(), rows, columns, columns);
        lapack::getrf(m, n, work.get(), pivots);
        layout::transposed(work.get(), factors, columns, rows, rows);
      }
      for (Int i = 0; i < k; ++i) {
        pivots[i] = std::clamp<Int>(pivots[i] - 1, 0, m - 1);
        std::swap(order[i], order[pivots[i]]);
      }
    }
  });
}

template <class T>
void qr(const linalg::Qr& c, In in, Out out) {
  const Int m = extent(in[0], 2), n = extent(in[0], 1), k = std::min(m, n);
  Int width = k;
  if (c.full) width = m;
  const auto rows = size_of(m), columns = size_of(n), kept = size_of(width);
  const std::size_t size = step(in[0]), q_size = step(out[0]), r_size = step(out[1]);
  over_batch(count(in[0]), size, [&](std::int64_t first, std::int64_t last) {
    // Column-major: first a, then reflectors below r, then q.
    const auto work = scratch<T>(rows * std::max(columns, kept));
    const auto tau = scratch<T>(size_of(std::max<Int>(1, k)));
    for (std::int64_t b = first; b < last; ++b) {
      const auto at = size_of(b);
      T* r = data<T>(out[1]) + at * r_size;
      layout::transposed(data<T>(in[0]) + at * size, work.get(), rows, columns, columns);
      if (k > 0) lapack::geqrf(m, n, work.get(), tau.get());
      layout::transposed(work.get(), r, columns, kept, rows);
      for (std::size_t i = 0; i < kept; ++i)
        std::fill_n(r + i * columns, std::min(i, columns), T(0));
      if (width > 0) lapack::ungqr(m, width, k, work.get(), tau.get());
      layout::transposed(work.get(), data<T>(out[0]) + at * q_size, kept, rows, rows);
    }
  });
}

template <class T>
void eigh(const linalg::Eigh& c, In in, Out out) {
  const Int n = extent(in[0], 1);
  const std::size_t size = step(in[0]), width = size_of(n);
  if (n == 0) return;
  const bool small = n <= small::most_rows;
  std::size_t work_size = size;
  if (c.vectors || small) work_size = 0;
  char job = 'N';
  if (c.vectors) job = 'V';
  const auto matrices = [&](std::int64_t first, std::int64_t last) {
    const auto work = scratch<T>(work_size);
    for (std::int64_t b = first; b < last; ++b) {
      const auto at = size_of(b);
      const T* a = data<T>(in[0]) + at * size;
      Real<T>* w = data<Real<T>>(out[0]) + at * width;
      T* v = work.get();
      if (c.vectors) v = data<T>(out[1]) + at * size;
      bool ok = finite(a, size);
      if (ok && small) {
        ok = small::eigh(a, n, c.vectors, w, v);
      } else if (ok) {
        layout::hermitian_lower(a, v, width);
        ok = lapack::heevd<T>(job, 'L', n, v, w) == 0;
        if (ok && c.vectors) layout::make_row_major(v, width, false);
      }
      if (ok) continue;
      if (c.failure == linalg::Failure::error)
        failed("eigh", b, "has no decomposition: it did not converge, or is not finite");
      std::fill_n(w, width, nan_of<T>());
      if (c.vectors) fill_nan(v, size);
    }
  };
  // On several threads LAPACK's small ones wait for each other.
  if (small)
    over_batch(count(in[0]), size * width, matrices);
  else
    matrices(0, count(in[0]));
}

template <class T>
void svd(const linalg::Svd& c, In in, Out out) {
  const Int m = extent(in[0], 2), n = extent(in[0], 1), k = std::min(m, n);
  const std::size_t size = step(in[0]);
  // The results are s alone, or u, s and v's adjoint.
  const AnyMutableView& s_view = out[std::size_t{c.vectors}];
  const Int m_kept = c.full ? m : k, n_kept = c.full ? n : k;
  char job = 'N';
  if (c.vectors) job = c.full ? 'A' : 'S';
  const std::size_t u_size = size_of(m) * size_of(m_kept), v_size = size_of(n) * size_of(n_kept);
  auto unit = [](T* to, Int rows, Int columns) {
    for (Int i = 0; i < rows; ++i)
      for (Int j = 0; j < columns; ++j) to[i * columns + j] = T(i == j);
  };
  over_batch(count(in[0]), size, [&](std::int64_t first, std::int64_t last) {
    const auto work = scratch<T>(size);
    for (std::int64_t b = first; b < last; ++b) {
      const auto at = size_of(b);
      T *u = nullptr, *vh = nullptr;
      if (c.vectors) {
        u = data<T>(out[0]) + at * u_size;
        vh = data<T>(out[2]) + at * v_size;
      }
      if (k == 0) {
        if (c.vectors) {
          unit(u, m, m_kept);
          unit(vh, n_kept, n);
        }
        continue;
      }
      Real<T>* s = data<Real<T>>(s_view) + at * size_of(k);
      std::copy_n(data<T>(in[0]) + at * size, size, work.get());
      const bool ok = finite(work.get(), size) &&
                      lapack::gesdd<T>(job, n, m, work.get(), s, vh, n, u, m_kept) == 0;
      if (ok) continue;
      if (c.failure == linalg::Failure::error)
        failed("svd", b, "has no decomposition: it did not converge, or is not finite");
      std::fill_n(s, k, nan_of<T>());
      if (c.vectors) {
        fill_nan(u, u_size);
        fill_nan(vh, v_size);
      }
    }
  });
}

template <class T>
void triangular(const linalg::Triangular& c, In in, Out out) {
  const Int n = extent(in[0], 1), m = extent(in[1], 2), k = extent(in[1], 1);
  const std::size_t size = step(in[0]), b_size = step(in[1]);
  std::vector<T> conjugated;
  for (std::int64_t b = 0; b < count(in[1]); ++b) {
    const auto at = size_of(b);
    const T* a = data<T>(in[0]) + at * size;
    T* x = data<T>(out[0]) + at * b_size;
    std::copy_n(data<T>(in[1]) + at * b_size, b_size, x);
    if (n == 0 || b_size == 0) continue;
    CBLAS_TRANSPOSE op = CblasNoTrans;
    if (c.transpose) op = CblasTrans;
    if constexpr (lapack::complex_element<T>) {
      if (c.conjugate && c.transpose) op = CblasConjTrans;
      if (c.conjugate && !c.transpose) {
        conjugated.assign(a, a + size);
        for (T& e : conjugated) e = std::conj(e);
        a = conjugated.data();
      }
    }
    lapack::trsm(c.left, c.lower, op, c.unit_diagonal, m, k, a, n, x, k);
  }
}

template <class T>
void eigvals(In in, Out out) {
  const Int n = extent(in[0], 1);
  const std::size_t size = step(in[0]);
  std::vector<T> work(size);
  for (std::int64_t b = 0; b < count(in[0]) && n > 0; ++b) {
    const auto at = size_of(b);
    auto* w = data<std::complex<Real<T>>>(out[0]) + at * size_of(n);
    std::copy_n(data<T>(in[0]) + at * size, size, work.data());
    if (!finite(work.data(), size) || lapack::geev<T>(n, work.data(), w) != 0)
      fill_nan(w, size_of(n));
  }
}

/// A kernel that exists for f32, f64, c64 and c128, where the leading axes are its own loop: along
/// them it may be cut, unless it is to name the place in the batch of what fails.
template <class Config, class Kernel>
void add(const char* platform, std::function<const char*(const Config&)> rule, Kernel kernel) {
  override_block<Config>({.platform = platform,
                          .when =
                              [](const Config&, std::span<const Type> x) {
                                const DType d = x[0].dtype;
                                return d == DType::f32 || d == DType::f64 || d == DType::c64 ||
                                       d == DType::c128;
                              },
                          .kernel = BlockKernel<Config>(std::move(kernel), Place{}),
                          .batch = VmapMethod::broadcast_all,
                          .sharding =
                              [rule](const Config& c, std::span<const Type>) {
                                if constexpr (requires { c.failure; })
                                  if (c.failure == linalg::Failure::error) return "";
                                return rule(c);
                              }});
}

}  // namespace

void add_kernels() {
  add<linalg::Cholesky>(
      "cpu", [](auto&) { return "... _ _ -> ... _ _"; },
      [](const linalg::Cholesky& c, In in, Out out) {
        by_dtype(in[0].dtype(), [&]<class T>() { cholesky<T>(c, in, out); });
      });
  add<linalg::Lu>(
      "cpu", [](auto&) { return "... _ _ -> ... _ _, ... _, ... _"; },
      [](const linalg::Lu&, In in, Out out) {
        by_dtype(in[0].dtype(), [&]<class T>() { lu<T>(in, out); });
      });
  add<linalg::Qr>(
      "cpu", [](auto&) { return "... _ _ -> ... _ _, ... _ _"; },
      [](const linalg::Qr& c, In in, Out out) {
        by_dtype(in[0].dtype(), [&]<class T>() { qr<T>(c, in, out); });
      });
  add<linalg::Eigh>(
      "cpu", [](auto& c) { return c.vectors ? "... _ _ -> ... _, ... _ _" : "... _ _ -> ... _"; },
      [](const linalg::Eigh& c, In in, Out out) {
        by_dtype(in[0].dtype(), [&]<class T>() { eigh<T>(c, in, out); });
      });
  add<linalg::Svd>(
      "cpu",
      [](auto& c) { return c.vectors ? "... _ _ -> ... _ _, ... _, ... _ _" : "... _ _ -> ... _"; },
      [](const linalg::Svd& c, In in, Out out) {
        by_dtype(in[0].dtype(), [&]<class T>() { svd<T>(c, in, out); });
      });
  add<linalg::Triangular>(
      "cpu", [](auto&) { return "... _ _, ... _ _ -> ... _ _"; },
      [](const linalg::Triangular& c, In in, Out out) {
        by_dtype(in[0].dtype(), [&]<class T>() { triangular<T>(c, in, out); });
      });
  add<linalg::Eigvals>(
      "", [](auto&) { return "... _ _ -> ... _"; },
      [](const linalg::Eigvals&, In in, Out out) {  // on any
        by_dtype(in[0].dtype(), [&]<class T>() { eigvals<T>(in, out); });
      });
}

}  // namespace postern_lapack
