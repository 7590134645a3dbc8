// The tables of linalg_test.cc.
#pragma once
#include <gtest/gtest.h>
#include <postern/postern.h>

#include <functional>
#include <string>
#include <vector>

namespace postern::linalg_test {

/// Numbers between -1 and 1 that depend on the seed only; f64 or c128.
Tensor random_matrix(const Dims& dims, DType dtype, std::uint64_t seed);
double max_abs(const Tensor& x);
bool close(const Tensor& a, const Tensor& b, double tolerance);
Tensor mh(const Tensor& a);
/// The Hermitian part, plus so many unit matrices.
Tensor hermitian(const Tensor& a, double shift = 0);

/// All linalg blocks take their defaults until the handles are removed.
std::vector<OverrideHandle> defaults_only();

struct Decomposition {
  std::string name;
  std::vector<Dims> shapes;
  std::function<Tensor(Tensor)> make;              // a fitting matrix from a random one
  std::function<Tensor(Tensor)> error;             // what its properties lack, in all elements zero
  std::function<std::vector<Tensor>(Tensor)> all;  // results without freedom of signs
};
const std::vector<Decomposition>& decompositions();
inline void PrintTo(const Decomposition& d, std::ostream* out) { *out << d.name; }

/// A scalar function by way of one decomposition.
struct Function {
  std::string name;
  Dims dims;
  std::function<Tensor(Tensor)> make;
  std::function<Tensor(Tensor)> of;
};
const std::vector<Function>& functions();
inline void PrintTo(const Function& f, std::ostream* out) { *out << f.name; }

}  // namespace postern::linalg_test
