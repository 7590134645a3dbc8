// jaxlib's LAPACK targets: operands, results and attributes are theirs. Matrices lie column after
// column, leading axes are batches. Such calls come from files, so each buffer is checked before it
// is touched.
#include <postern/library.h>

#include <algorithm>
#include <array>

#include "call.h"
#include "library.h"

namespace postern_lapack {

using namespace postern;

namespace {

using lapack::Call;
using lapack::each;
using lapack::finite;
using lapack::Int;
using lapack::Real;

template <class T>
void potrf(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 2, 2);
  const Int n = call.square();
  const char uplo = call.letter("uplo", "LU");
  T* a = call.updated<T>(0, 0, {n, n});
  Int* info = call.result<Int>(1, {});
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (n > 0) info[i] = lapack::potrf(uplo, n, a + i * size_of(n) * size_of(n));
  });
}

CBLAS_TRANSPOSE cblas_transpose(char letter) {
  switch (letter) {
    case 'N': return CblasNoTrans;
    case 'T': return CblasTrans;
    default: return CblasConjTrans;
  }
}

template <class T>
void trsm(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 2, 1, 2);
  const Int n = call.square(), rows = call.extent(1, 2), columns = call.extent(1, 1);
  const bool left = call.letter("side", "LR") == 'L', lower = call.letter("uplo", "LU") == 'L',
             unit = call.letter("diag", "NU") == 'U';
  const char transposed = call.letter("trans_x", "NTC");
  const T* a = call.operand<T>(0, {n, n});
  T* b = call.updated<T>(0, 1, {rows, columns});
  Int fits = columns;
  if (left) fits = rows;
  Call::require(fits == n, [&] {
    return fmt::format("a triangle of {} rows does not fit a matrix of {} by {}", n, rows, columns);
  });
  if (n == 0 || rows == 0 || columns == 0) return;
  const CBLAS_TRANSPOSE op = cblas_transpose(transposed);
  // Rows of what lies by columns: everything is transposed, so the sides and triangles change
  // places.
  each(call, [&](std::size_t i) {
    lapack::trsm(!left, !lower, op, unit, columns, rows, a + i * size_of(n) * size_of(n), n,
                 b + i * size_of(rows) * size_of(columns), rows);
  });
}

template <class T>
void getrf(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 3, 2);
  const Int m = call.extent(0, 2), n = call.extent(0, 1), k = std::min(m, n);
  T* a = call.updated<T>(0, 0, {m, n});
  Int *pivots = call.result<Int>(1, {k}), *info = call.result<Int>(2, {});
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (k == 0) return;
    T* const matrix = a + i * size_of(m) * size_of(n);
    info[i] = lapack::getrf(m, n, matrix, pivots + i * size_of(k));
  });
}

template <class T>
void geqrf(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 2, 2);
  const Int m = call.extent(0, 2), n = call.extent(0, 1), k = std::min(m, n);
  T *a = call.updated<T>(0, 0, {m, n}), *tau = call.result<T>(1, {k});
  each(call, [&](std::size_t i) {
    if (k) lapack::geqrf(m, n, a + i * size_of(m) * size_of(n), tau + i * size_of(k));
  });
}

template <class T>
void geqp3(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 2, 3, 2);
  const Int m = call.extent(0, 2), n = call.extent(0, 1), k = std::min(m, n);
  T* a = call.updated<T>(0, 0, {m, n});
  Int* pivots = call.updated<Int>(1, 1, {n});
  T* tau = call.result<T>(2, {k});
  each(call, [&](std::size_t i) {
    if (k)
      lapack::geqp3(m, n, a + i * size_of(m) * size_of(n), pivots + i * size_of(n),
                    tau + i * size_of(k));
  });
}

template <class T>
void ungqr(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 2, 1, 2);
  const Int m = call.extent(0, 2), n = call.extent(0, 1), k = call.extent(1, 1);
  T* a = call.updated<T>(0, 0, {m, n});
  const T* tau = call.operand<T>(1, {k});
  Call::require(k <= n && n <= m, [&] {
    return fmt::format("{} reflectors do not make {} columns of {} rows", k, n, m);
  });
  each(call, [&](std::size_t i) {
    if (n) lapack::ungqr(m, n, k, a + i * size_of(m) * size_of(n), tau + i * size_of(k));
  });
}

template <class T>
void unmqr(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 3, 1, 2);
  const Int rows = call.extent(0, 2), width = call.extent(0, 1), k = call.extent(1, 1),
            m = call.extent(2, 2), n = call.extent(2, 1);
  const bool left = call.number("left") != 0, transposed = call.number("transpose") != 0;
  const T *a = call.operand<T>(0, {rows, width}), *tau = call.operand<T>(1, {k});
  T* c = call.updated<T>(0, 2, {m, n});
  Int reflected = n;
  if (left) reflected = m;
  Call::require(k <= width && k <= rows && rows == reflected, [&] {
    return fmt::format("{} reflectors of {} rows do not go with a matrix of {} by {}", k, rows, m,
                       n);
  });
  if (m == 0 || n == 0 || k == 0) return;
  char side = 'R', op = 'N';
  if (left) side = 'L';
  if (transposed) op = 'T';
  if (transposed && lapack::complex_element<T>) op = 'C';
  each(call, [&](std::size_t i) {
    const T* const reflectors = a + i * size_of(rows) * size_of(width);
    lapack::unmqr(side, op, m, n, k, reflectors, rows, tau + i * size_of(k),
                  c + i * size_of(m) * size_of(n));
  });
}

template <class T, bool divide_and_conquer>
void svd(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 5, 2);
  const Int m = call.extent(0, 2), n = call.extent(0, 1), k = std::min(m, n);
  const char mode = call.letter("mode", "ASN");
  // Without vectors there is room for them all the same, as much as all or as the first would take.
  const auto u_dims = ffi::dims_of(ffi::results(frame)[2]);
  const bool all = mode == 'A' || (mode == 'N' && !u_dims.empty() && u_dims.back() == m);
  Int u_columns = k, v_rows = k;
  if (all) {
    u_columns = m;
    v_rows = n;
  }
  T* a = call.updated<T>(0, 0, {m, n});
  Real<T>* s = call.result<Real<T>>(1, {k});
  T *u = call.result<T>(2, {m, u_columns}), *v = call.result<T>(3, {v_rows, n});
  Int* info = call.result<Int>(4, {});
  const std::size_t size = size_of(m) * size_of(n), u_size = size_of(m) * size_of(u_columns),
                    v_size = size_of(v_rows) * size_of(n);
  std::fill_n(s, size_of(call.count) * size_of(k), Real<T>(0));
  std::fill_n(u, size_of(call.count) * u_size, T(0));
  std::fill_n(v, size_of(call.count) * v_size, T(0));
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (k == 0) return;
    T* const matrix = a + i * size;
    if (!finite(matrix, size)) return static_cast<void>(info[i] = -4);
    auto* const run = divide_and_conquer ? lapack::gesdd<T> : lapack::gesvd<T>;
    info[i] = run(mode, m, n, matrix, s + i * size_of(k), u + i * u_size, m, v + i * v_size,
                  std::max<Int>(1, v_rows));
  });
}
template <class T>
void gesdd(const XLA_FFI_CallFrame* frame) {
  svd<T, true>(frame);
}
template <class T>
void gesvd(const XLA_FFI_CallFrame* frame) {
  svd<T, false>(frame);
}

template <class T>
void heevd(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 3, 2);
  const Int n = call.square();
  const char mode = call.letter("mode", "VN"), uplo = call.letter("uplo", "LU");
  T* a = call.updated<T>(0, 0, {n, n});
  Real<T>* w = call.result<Real<T>>(1, {n});
  Int* info = call.result<Int>(2, {});
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (n == 0) return;
    T* const matrix = a + i * size_of(n) * size_of(n);
    std::fill_n(w + i * size_of(n), size_of(n), Real<T>(0));
    info[i] = n;
    if (finite(matrix, size_of(n) * size_of(n)))
      info[i] = lapack::heevd<T>(mode, uplo, n, matrix, w + i * size_of(n));
  });
}

/// As LAPACK packs eigenvectors of real matrices: pairs of conjugates lie as real and imaginary
/// parts.
template <class T>
void unpack(Int n, const T* imaginary, const T* packed, std::complex<T>* out) {
  const std::size_t rows = size_of(n);
  for (std::size_t j = 0; j < rows; ++j) {
    const bool pair = imaginary[j] != T(0) && j + 1 < rows;
    for (std::size_t i = 0; i < rows; ++i) {
      const T real = packed[j * rows + i], rest = pair ? packed[(j + 1) * rows + i] : T(0);
      out[j * rows + i] = {real, rest};
      if (pair) out[(j + 1) * rows + i] = {real, -rest};
    }
    j += pair;
  }
}

template <class T>
void geev(const XLA_FFI_CallFrame* frame) {
  constexpr bool complex = lapack::complex_element<T>;
  constexpr std::size_t values = 1 + !complex;  // the two parts of a real matrix's
  using Complex = std::complex<Real<T>>;
  const Call call(frame, 1, values + 3, 2);
  const Int n = call.square();
  const std::size_t rows = size_of(n), size = rows * rows;
  const char left = call.letter("compute_left", "VN"), right = call.letter("compute_right", "VN");
  const T* a = call.operand<T>(0, {n, n});
  T* w = call.result<T>(0, {n});
  T* w_imaginary = nullptr;
  if constexpr (!complex) w_imaginary = call.result<T>(values - 1, {n});
  Complex *vl = call.result<Complex>(values, {n, n}),
          *vr = call.result<Complex>(values + 1, {n, n});
  Int* info = call.result<Int>(values + 2, {});
  std::vector<T> matrix(size), packed;
  if constexpr (!complex) packed.resize(2 * size);
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (n == 0) return;
    std::fill_n(vl + i * size, size, Complex(0));
    std::fill_n(vr + i * size, size, Complex(0));
    std::fill_n(w + i * rows, rows, T(0));
    if constexpr (!complex) std::fill_n(w_imaginary + i * rows, rows, T(0));
    std::copy_n(a + i * size, size, matrix.data());
    if (!finite(matrix.data(), size)) return static_cast<void>(info[i] = -4);
    if constexpr (complex) {
      info[i] = lapack::geev_vectors<T>(left, right, n, matrix.data(), w + i * rows, nullptr,
                                        vl + i * size, vr + i * size);
    } else {
      T* const imaginary = w_imaginary + i * rows;
      info[i] = lapack::geev_vectors<T>(left, right, n, matrix.data(), w + i * rows, imaginary,
                                        packed.data(), packed.data() + size);
      if (info[i] != 0) return;
      if (left == 'V') unpack(n, imaginary, packed.data(), vl + i * size);
      if (right == 'V') unpack(n, imaginary, packed.data() + size, vr + i * size);
    }
  });
}

template <class T>
void gees(const XLA_FFI_CallFrame* frame) {
  constexpr bool complex = lapack::complex_element<T>;
  constexpr std::size_t values = 1 + !complex;  // the two parts of a real matrix's
  const Call call(frame, 1, values + 4, 2);
  const Int n = call.square();
  const std::size_t rows = size_of(n), size = rows * rows;
  const char mode = call.letter("mode", "VN");
  static_cast<void>(call.letter("sort", "N"));  // no file can say by which function
  T *a = call.updated<T>(0, 0, {n, n}), *vectors = call.result<T>(1, {n, n}),
    *w = call.result<T>(2, {n});
  T* w_imaginary = nullptr;
  if constexpr (!complex) w_imaginary = call.result<T>(values + 1, {n});
  Int *selected = call.result<Int>(values + 2, {}), *info = call.result<Int>(values + 3, {});
  each(call, [&](std::size_t i) {
    info[i] = selected[i] = 0;
    if (n == 0) return;
    std::fill_n(vectors + i * size, size, T(0));
    std::fill_n(w + i * rows, rows, T(0));
    T* imaginary = nullptr;
    if constexpr (!complex) {
      imaginary = w_imaginary + i * rows;
      std::fill_n(imaginary, rows, T(0));
    }
    T* const matrix = a + i * size;
    if (!finite(matrix, size)) return static_cast<void>(info[i] = -4);
    info[i] = lapack::gees<T>(mode, n, matrix, w + i * rows, imaginary, vectors + i * size);
  });
}

template <class T>
void gehrd(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 3, 2);
  const Int n = call.square(), k = std::max<Int>(n - 1, 0);
  const std::int64_t low = call.number("low"), high = call.number("high");
  T *a = call.updated<T>(0, 0, {n, n}), *tau = call.result<T>(1, {k});
  Int* info = call.result<Int>(2, {});
  Call::require(n == 0 || (1 <= low && low <= high && high <= n), [&] {
    return fmt::format("rows {} to {} are not among the {} of its matrices", low, high, n);
  });
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (k == 0) return;
    T* const matrix = a + i * size_of(n) * size_of(n);
    info[i] = lapack::gehrd(n, static_cast<Int>(low), static_cast<Int>(high), matrix,
                            tau + i * size_of(k));
  });
}

template <class T>
void hetrd(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 1, 5, 2);
  const Int n = call.square(), k = std::max<Int>(n - 1, 0);
  const char uplo = call.letter("uplo", "LU");
  T* a = call.updated<T>(0, 0, {n, n});
  Real<T>*d = call.result<Real<T>>(1, {n}), *e = call.result<Real<T>>(2, {k});
  T* tau = call.result<T>(3, {k});
  Int* info = call.result<Int>(4, {});
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (n == 0) return;
    T* const matrix = a + i * size_of(n) * size_of(n);
    info[i] = lapack::hetrd(uplo, n, matrix, d + i * size_of(n), e + i * size_of(k),
                            tau + i * size_of(k));
  });
}

template <class T>
void gtsv(const XLA_FFI_CallFrame* frame) {
  const Call call(frame, 4, 5, 1);
  const Int n = call.extent(0, 1), columns = call.extent(3, 1);
  T *lower = call.updated<T>(0, 0, {n}), *diagonal = call.updated<T>(1, 1, {n}),
    *upper = call.updated<T>(2, 2, {n});
  T* b = call.updated<T>(3, 3, {n, columns});
  Int* info = call.result<Int>(4, {});
  each(call, [&](std::size_t i) {
    info[i] = 0;
    if (n == 0) return;
    const std::size_t at = i * size_of(n);
    // Below the diagonal the first row has nothing.
    info[i] = lapack::gtsv(n, columns, lower + at + 1, diagonal + at, upper + at,
                           b + at * size_of(columns));
  });
}

template <void (*target)(const XLA_FFI_CallFrame*)>
XLA_FFI_Error* enter(XLA_FFI_CallFrame* frame) noexcept {
  if (frame->extension_start && ffi::answer_metadata(frame)) return nullptr;
  try {
    target(frame);
    return nullptr;
  } catch (const Error& e) {
    return ffi::make_error(frame, e.code(), e.what());
  } catch (const std::bad_alloc&) {
    return ffi::make_error(frame, ErrorCode::resource_exhausted,
                           "LAPACK's work does not fit into memory");
  } catch (const std::exception& e) {
    return ffi::make_error(frame, ErrorCode::internal, e.what());
  }
}

}  // namespace

void add_targets() {
  const auto add = [](const char* real, const char* complex,
                      const std::array<FfiHandler*, 4>& handlers) {
    for (std::size_t i = 0; i < 4; ++i)
      register_ffi_handler(fmt::format("lapack_{}{}_ffi", "sdcz"[i], i < 2 ? real : complex),
                           handlers[i]);
  };
  using C = std::complex<float>;
  using Z = std::complex<double>;
  add("potrf", "potrf",
      {enter<potrf<float>>, enter<potrf<double>>, enter<potrf<C>>, enter<potrf<Z>>});
  add("trsm", "trsm", {enter<trsm<float>>, enter<trsm<double>>, enter<trsm<C>>, enter<trsm<Z>>});
  add("getrf", "getrf",
      {enter<getrf<float>>, enter<getrf<double>>, enter<getrf<C>>, enter<getrf<Z>>});
  add("geqrf", "geqrf",
      {enter<geqrf<float>>, enter<geqrf<double>>, enter<geqrf<C>>, enter<geqrf<Z>>});
  add("geqp3", "geqp3",
      {enter<geqp3<float>>, enter<geqp3<double>>, enter<geqp3<C>>, enter<geqp3<Z>>});
  add("orgqr", "ungqr",
      {enter<ungqr<float>>, enter<ungqr<double>>, enter<ungqr<C>>, enter<ungqr<Z>>});
  add("ormqr", "unmqr",
      {enter<unmqr<float>>, enter<unmqr<double>>, enter<unmqr<C>>, enter<unmqr<Z>>});
  add("gesdd", "gesdd",
      {enter<gesdd<float>>, enter<gesdd<double>>, enter<gesdd<C>>, enter<gesdd<Z>>});
  add("gesvd", "gesvd",
      {enter<gesvd<float>>, enter<gesvd<double>>, enter<gesvd<C>>, enter<gesvd<Z>>});
  add("syevd", "heevd",
      {enter<heevd<float>>, enter<heevd<double>>, enter<heevd<C>>, enter<heevd<Z>>});
  add("geev", "geev", {enter<geev<float>>, enter<geev<double>>, enter<geev<C>>, enter<geev<Z>>});
  add("gees", "gees", {enter<gees<float>>, enter<gees<double>>, enter<gees<C>>, enter<gees<Z>>});
  add("gehrd", "gehrd",
      {enter<gehrd<float>>, enter<gehrd<double>>, enter<gehrd<C>>, enter<gehrd<Z>>});
  add("sytrd", "hetrd",
      {enter<hetrd<float>>, enter<hetrd<double>>, enter<hetrd<C>>, enter<hetrd<Z>>});
  add("gtsv", "gtsv", {enter<gtsv<float>>, enter<gtsv<double>>, enter<gtsv<C>>, enter<gtsv<Z>>});
}

}  // namespace postern_lapack
