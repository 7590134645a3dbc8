// Decompositions of matrices so small that entering LAPACK is most of the work.
#pragma once
#include "linalg/lapack.h"

namespace postern::internal::linear_algebra::small {

inline constexpr lapack::Int most_rows = 16;

/// Eigenvalues of a Hermitian matrix, ascending, and, unless `vectors` is false, row-major
/// eigenvectors as columns. Both triangles of `a` are there. False when it does not converge.
template <class T>
bool eigh(const T* a, lapack::Int n, bool vectors, lapack::Real<T>* w, T* v);

}  // namespace postern::internal::linear_algebra::small
