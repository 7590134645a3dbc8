// Blocks that the libraries of library_test.cc bring kernels for.
#pragma once
#include <postern/postern.h>

struct LibraryScale {
  static constexpr std::string_view name = "test.library_scale";
  double factor = 1;
};
inline postern::Tensor library_scale(const postern::Tensor& x, double factor) {
  return postern::block(
      LibraryScale{factor}, [](const LibraryScale& s, postern::Tensor v) { return v * s.factor; },
      x);
}
