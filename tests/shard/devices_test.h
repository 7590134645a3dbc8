// What the tests of several devices share. They need eight of them (POSTERN_CPU_DEVICES, as ctest
// sets it).
#pragma once
#include <fmt/format.h>

#include "support.h"

namespace postern::test {

using Floats = std::vector<float>;

inline const P rows("d"), none;

class EightDevices : public testing::Test {
 protected:
  void SetUp() override {
    if (devices().size() < 8) GTEST_SKIP() << "needs 8 devices, there are " << devices().size();
  }
};

inline Tensor counting(Dims dims) {
  const std::int64_t n = make_type(DType::f32, dims).size();
  return reshape(iota<float>(n), std::move(dims));
}

inline void expect_near(const Tensor& got, const Tensor& want, float tolerance = 1e-5f) {
  ASSERT_EQ(to_string(got.type()), to_string(want.type()));
  const auto a = got.to_vector<float>(), b = want.to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
}

}  // namespace postern::test
