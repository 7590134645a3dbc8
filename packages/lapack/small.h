// Decompositions of matrices so small that entering LAPACK is most of the work.
#pragma once
#include "lapack.h"

namespace postern_lapack::small {

inline constexpr lapack::Int most_rows = 16;

/// Eigenvalues of a Hermitian matrix, ascending, and, unless `vectors` is false, row-major
/// eigenvectors as columns. Both triangles of `a` are there. False when it does not converge.
template <class T>
bool eigh(const T* a, lapack::Int n, bool vectors, lapack::Real<T>* w, T* v);

}  // namespace postern_lapack::small
