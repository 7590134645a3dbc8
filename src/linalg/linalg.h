// What the linear algebra blocks share.
#pragma once
#include <postern/arrange.h>
#include <postern/linalg.h>

#include <limits>

#include "block/block.h"
#include "core/check.h"

// Not `internal::linalg`, which would hide the public postern::linalg from the library's own code.
namespace postern::internal::linear_algebra {

using blocks::bind_cached;
using blocks::config_of;
using blocks::Rules;
using Default = Tensors (*)(const void* config, TensorSpan x);

/// Applies the default for one element to all elements of the leading axes, as one batch.
Tensors over_leading(const detail::BlockConfig& config, Default matrices, TensorSpan x);
template <Default matrices>
Tensors each_matrix(const detail::BlockConfig& config, TensorSpan x) {
  return over_leading(config, matrices, x);
}

/// Binds the block for operands with any leading axes, the same for all.
template <class Config, class... X>
Tensors bind_linalg(const Config& config, const Rules& rules, const X&... x) {
  const Tensor operands[] = {x...};
  return bind_cached(detail::erase_config(config), rules, operands);
}

/// Binds a function of matrices with any leading axes, made of other blocks, as a block of its own:
/// its derivatives are its default's.
template <class Config, class... X>
Tensors bind_composed(const Config& config, const TensorFunction& by_default, const X&... x) {
  const Tensor operands[] = {x...};
  return bind_cached(detail::erase_config(config), nullptr, by_default, operands);
}

inline std::int64_t rows(const Tensor& a) { return a.dims()[a.dims().size() - 2]; }
inline std::int64_t columns(const Tensor& a) { return a.dims().back(); }
inline Dims leading(const Tensor& a) { return Dims(a.dims().begin(), a.dims().end() - 2); }

/// Returns the distance of 1 to the next number in the precision that matrices of `dtype` are
/// worked on in.
inline double epsilon(DType dtype) {
  if (real_dtype(dtype) == DType::f64) return std::numeric_limits<double>::epsilon();
  return static_cast<double>(std::numeric_limits<float>::epsilon());
}

/// Returns the power of two of the largest element: divided by it, matrices have squares that are
/// neither too large nor too small. 1 where there is none. A scalar of a's dtype.
Tensor scale_of(const Tensor& a);

/// Returns the largest of the numbers on the last axis, which stays, of extent 1.
inline Tensor largest(const Tensor& s) { return max(s, {.axes = Dims{-1}, .keep_dims = true}); }
/// Returns 1 / x, and 0 where x counts as zero.
inline Tensor inverse_or_zero(const Tensor& x, const Tensor& is_zero) {
  return where(is_zero, 0.0f, 1.0f / where(is_zero, 1.0f, x));
}

/// Returns the diagonals of the matrices on the last two axes.
inline Tensor diagonal_of(const Tensor& a) { return diagonal(a, 0, -2, -1); }
/// Swaps the last two axes; and conjugates.
Tensor swapped(const Tensor& a);
Tensor adjoint(const Tensor& a);
Tensor hermitian_part(const Tensor& a);
/// Puts [n] on the diagonal of [n,n].
Tensor diagonal_matrix(const Tensor& d);
Tensor identity(DType dtype, std::int64_t n);

/// a as float or complex of at least 32 bits, checked; `restore` brings results back to f16 or
/// bf16.
struct Prepared {
  Tensor a;
  DType dtype;  // of the results
  Tensor restore(const Tensor& y) const {
    if (a.dtype() == dtype) return y;
    return convert(y, dtype);
  }
};
Prepared prepared(const char* op, const Operand& a, bool square);

/// Brings together matrices a (square) and b, in one dtype, with the same leading axes. `left`: a
/// stands in front of the unknown matrix, so that b has as many rows as a; else as many columns.
std::pair<Prepared, Tensor> matched_matrices(const char* op, const Operand& a, const Operand& b,
                                             bool left);
/// Makes a vector a matrix, whose axis `missing` is of extent one; others as they are.
Tensor as_matrix(const Operand& b, std::int64_t missing = -1);
/// Takes that axis away again from a solution x, where `b` is a vector.
Tensor as_given(const Operand& b, const Tensor& x, std::int64_t missing = -1);

/// Binds the blocks, with their rules.
Tensor bind_cholesky(const linalg::Cholesky& config, const Tensor& a);
Tensors bind_lu(const Tensor& a);
Tensors bind_qr(const linalg::Qr& config, const Tensor& a);
Tensors bind_eigh(const linalg::Eigh& config, const Tensor& a);
Tensors bind_svd(const linalg::Svd& config, const Tensor& a);
Tensor triangular(const Tensor& a, const Tensor& b, const linalg::Triangular& config);

/// Returns x with a x = b from the factors of a.
Tensor lu_solve(const Tensor& lu, const Tensor& permutation, const Tensor& b);

// Computes the defaults for one matrix; defined in defaults.cc and jacobi.cc.
Tensors cholesky_default(const void* config, TensorSpan x);
Tensors lu_default(const void* config, TensorSpan x);
Tensors qr_default(const void* config, TensorSpan x);
Tensors eigh_default(const void* config, TensorSpan x);
Tensors svd_default(const void* config, TensorSpan x);
Tensors triangular_default(const void* config, TensorSpan x);
/// Returns q[m,m] and the m by n matrix that it makes triangular.
std::pair<Tensor, Tensor> householder(const Tensor& a);

}  // namespace postern::internal::linear_algebra
