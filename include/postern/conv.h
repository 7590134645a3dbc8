// Convolutions, as in neural networks. Every function throws TypeError for operands of two dtypes
// or ranks, and for extents, features, groups, options and layouts that do not fit.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace postern {

/// Padding of a convolution, by spatial axis: pairs (low, high), none ("VALID"), or what keeps the
/// extent over the stride ("SAME").
struct ConvPadding {
  enum class Kind : std::uint8_t { valid, same, pairs };
  ConvPadding() = default;
  /// Takes padding by name: "VALID" or "SAME"; others are a TypeError. Or pairs.
  POSTERN_API ConvPadding(std::string_view name, Place place = Place::current());
  ConvPadding(const char* name, Place place = Place::current())
      : ConvPadding(std::string_view(name), place) {}
  ConvPadding(std::vector<std::pair<std::int64_t, std::int64_t>> low_high)
      : kind(Kind::pairs), pairs(std::move(low_high)) {}
  ConvPadding(std::initializer_list<std::pair<std::int64_t, std::int64_t>> low_high)
      : kind(Kind::pairs), pairs(low_high) {}
  Kind kind = Kind::valid;
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
};
struct ConvOptions {
  Dims strides = {};  // by spatial axis; empty: 1
  ConvPadding padding = {};
  Dims input_dilation = {},
       kernel_dilation =
           {};              // elements between those of x (a transposed convolution), of the kernel
  std::int64_t groups = 1;  // of features, each with its part of the kernel
  std::int64_t batch_groups = 1;  // of the batch; not together with `groups`
  Precision precision = Precision::usual;
};
/// Returns convolution (as in neural networks: the kernel is not reversed) of x[batch, features,
/// space...] with kernel[out, features / groups, space...] into [batch, out, space...], over one to
/// three (or more) spatial axes. Of numbers of any dtype, which are promoted.
///
///   const pn::Tensor x = pn::tensor<float>({{{1, 2, 4, 8}}});    // [1, 1, 4]
///   const pn::Tensor kernel = pn::tensor<float>({{{1, -1}}});    // [1, 1, 2]
///   const pn::Tensor y = pn::conv(x, kernel, {.strides = {2}});  // [[[-1 -4]]]
[[nodiscard]] POSTERN_API Tensor conv(const Operand& x, const Operand& kernel,
                                      const ConvOptions& options = {});
/// The order of axes: N batch, C features, O and I the kernel's, any other letters space.
struct ConvLayout {
  std::string x = "NHWC", kernel = "HWIO", result = "NHWC";
};
/// Computes the same with axes in another order.
///
///   const pn::Tensor images = pn::ones(pn::type<float>({8, 28, 28, 3}));
///   const pn::Tensor kernel = pn::ones(pn::type<float>({5, 5, 3, 16}));
///   const pn::Tensor y = pn::conv_general(images, kernel, {}, {.padding = "SAME"});
[[nodiscard]] POSTERN_API Tensor conv_general(const Operand& x, const Operand& kernel,
                                              const ConvLayout& layout,
                                              const ConvOptions& options = {});

}  // namespace postern
