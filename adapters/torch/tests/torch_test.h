// What the tests of derivatives share: points at which they are taken, numbers compared.
#pragma once
#include <gtest/gtest.h>
#include <postern/postern.h>

#include <complex>
#include <optional>
#include <vector>

namespace torch_test {

inline const postern::Tensor point = postern::tensor<double>({0.3, 0.7, 1.1});
inline const postern::Tensor direction = postern::tensor<double>({1.0, -2.0, 0.5});
inline const postern::Tensor rows = postern::tensor<double>({{0.3, 0.7, 1.1}, {-0.4, 0.2, 1.9}});
/// None is torch's own.
inline const std::optional<postern::VmapMethod> methods[] = {{},
                                                             postern::VmapMethod::sequential,
                                                             postern::VmapMethod::parallel,
                                                             postern::VmapMethod::expand_dims,
                                                             postern::VmapMethod::broadcast_all};

inline std::vector<double> values(const postern::Tensor& x) { return x.to_vector<double>(); }

inline void expect_close(const std::vector<double>& a, const std::vector<double>& b,
                         double limit = 1e-9) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], limit) << i;
}
template <class T>
void expect_close(const std::vector<std::complex<T>>& a, const std::vector<std::complex<T>>& b,
                  double limit = 1e-5) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_LE(std::abs(a[i] - b[i]), limit) << i;
}
inline void expect_close(const postern::Tensor& a, const postern::Tensor& b) {
  expect_close(values(a), values(b));
}

}  // namespace torch_test
