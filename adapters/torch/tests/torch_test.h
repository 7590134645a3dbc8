// What the tests of derivatives share: numbers of tensors, compared.
#pragma once
#include <gtest/gtest.h>
#include <postern/postern.h>

#include <cmath>
#include <vector>

namespace torch_test {

template <class T>
void expect_close(const std::vector<T>& a, const std::vector<T>& b, double limit = 1e-5) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(std::abs(a[i] - b[i]), limit) << i << ": " << a[i] << " and " << b[i];
}
inline std::vector<double> values(const postern::Tensor& x) { return x.to_vector<double>(); }

}  // namespace torch_test
