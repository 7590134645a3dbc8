// A library as it should be: handlers and overrides, for a block of its own and for one that comes
// with Postern.
#include <postern/library.h>
#include <xla/ffi/api/ffi.h>

#include <cmath>

#include "blocks.h"

namespace {

namespace ffi = xla::ffi;
using Floats = ffi::Buffer<ffi::F32>;

ffi::Error scale(Floats in, ffi::Result<Floats> out, double factor) {
  for (std::size_t i = 0; i < in.element_count(); ++i)
    out->typed_data()[i] = in.typed_data()[i] * static_cast<float>(factor);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER(scale_handler, scale,
                       ffi::Ffi::Bind().Arg<Floats>().Ret<Floats>().Attr<double>("factor"));

/// Row by row, for one matrix.
ffi::Error cholesky(Floats in, ffi::Result<Floats> out, std::int64_t) {
  const auto n = static_cast<std::size_t>(in.dimensions().back());
  const float* a = in.typed_data();
  float* l = out->typed_data();
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      float rest = (a[i * n + j] + a[j * n + i]) / 2;
      for (std::size_t k = 0; k < j && j <= i; ++k) rest -= l[i * n + k] * l[j * n + k];
      if (j > i)
        l[i * n + j] = 0;
      else
        l[i * n + j] = i == j ? std::sqrt(rest) : rest / l[j * n + j];
    }
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER(cholesky_handler, cholesky,
                       ffi::Ffi::Bind().Arg<Floats>().Ret<Floats>().Attr<std::int64_t>("failure"));

void load() {
  using postern::Type;
  postern::register_ffi_handler("test_library_scale", scale_handler);
  postern::register_ffi_handler("test_library_cholesky", cholesky_handler);
  auto floats = [](const auto&, std::span<const Type> x) {
    return x[0].dtype == postern::DType::f32;
  };
  postern::override_block<LibraryScale>({.platform = "cpu",
                                         .when = floats,
                                         .target = "test_library_scale",
                                         .batch = postern::VmapMethod::broadcast_all});
  // Of an extent that no other test has.
  postern::override_block<postern::linalg::Cholesky>(
      {.platform = "cpu",
       .when =
           [](const auto&, std::span<const Type> x) {
             return x[0].dtype == postern::DType::f32 && x[0].dims == postern::Dims{7, 7};
           },
       .target = "test_library_cholesky"});
}

}  // namespace

POSTERN_LIBRARY("good", "1.2", load)
