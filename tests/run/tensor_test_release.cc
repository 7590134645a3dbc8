// Functions that release borrowed memory and throw, in a process of their own.
#include <cstdlib>

#include "support.h"

namespace postern {
namespace {

TEST(TensorReleaseDeathTest, WhatItThrowsIsLogged) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto act = [] {
    alignas(64) static const float memory[64] = {1, 2};
    for (int i = 0; i < 2; ++i) {
      const Tensor x = Tensor::borrow(type<float>({64 - i}), memory + i,
                                      [] { throw std::runtime_error("kept\nfor ever"); });
      if (i == 0 && jit([](Tensor v) { return v * 2.0f; })(x).to_vector<float>()[1] != 4)
        std::_Exit(1);
    }
    barrier();
    std::_Exit(0);
  };
  EXPECT_EXIT(act(), testing::ExitedWithCode(0), "Tensor::borrow: release threw.*kept");
}

}  // namespace
}  // namespace postern
