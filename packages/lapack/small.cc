// By Eigen, in matrices on the stack.
#include "small.h"

#include <Eigen/Eigenvalues>

namespace postern_lapack::small {

namespace {

template <class T>
using Matrix =
    Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor, most_rows, most_rows>;

}  // namespace

template <class T>
bool eigh(const T* a, lapack::Int n, bool vectors, lapack::Real<T>* w, T* v) {
  // In f64: half the code to compile, and Eigen reads a c64 as one number of 8 bytes, which may be
  // aligned to 4 only.
  using Work = std::conditional_t<std::is_same_v<T, lapack::Real<T>>, double, std::complex<double>>;
  using Vector = Eigen::Matrix<lapack::Real<T>, Eigen::Dynamic, 1, 0, most_rows, 1>;
  const Matrix<Work> given = Eigen::Map<const Matrix<T>>(a, n, n).template cast<Work>();
  const Matrix<Work> hermitian = (given + given.adjoint()) * Work(0.5);
  const Eigen::SelfAdjointEigenSolver<Matrix<Work>> solver(
      hermitian, vectors ? Eigen::ComputeEigenvectors : Eigen::EigenvaluesOnly);
  if (solver.info() != Eigen::Success) return false;
  Eigen::Map<Vector>(w, n) = solver.eigenvalues().template cast<lapack::Real<T>>();
  if (vectors) Eigen::Map<Matrix<T>>(v, n, n) = solver.eigenvectors().template cast<T>();
  return true;
}

template bool eigh(const float*, lapack::Int, bool, float*, float*);
template bool eigh(const double*, lapack::Int, bool, double*, double*);
template bool eigh(const std::complex<float>*, lapack::Int, bool, float*, std::complex<float>*);
template bool eigh(const std::complex<double>*, lapack::Int, bool, double*, std::complex<double>*);

}  // namespace postern_lapack::small
