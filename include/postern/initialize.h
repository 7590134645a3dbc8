// First weights of neural networks: functions of a key and a type, with the values of
// jax.nn.initializers. Every function throws TypeError for a key that is not u32[2], and for a
// dtype that is neither f16, bf16, f32 nor f64; those with a fan also for a rank below 2.
//
//   const pn::Tensor keys = pn::random::split(pn::random::key(0));
//   const pn::Tensor w = pn::initialize::he_normal(keys[0], pn::type<float>({784, 128}));
//   const pn::Tensor kernel = pn::initialize::he_normal(  // of conv: [out, in, height, width]
//       keys[1], pn::type<float>({16, 3, 5, 5}), {.in = 1, .out = 0});
#pragma once
#include <postern/detail/api.h>
#include <postern/tensor.h>

namespace postern::initialize {

/// Draws one of that type: uniform in [0, scale); normal with that standard deviation; the same
/// with what is more than two of them from 0 drawn again.
[[nodiscard]] POSTERN_API Tensor uniform(const Operand& key, const Type& type, double scale = 0.01);
[[nodiscard]] POSTERN_API Tensor normal(const Operand& key, const Type& type,
                                        double deviation = 0.01);
[[nodiscard]] POSTERN_API Tensor truncated_normal(const Operand& key, const Type& type,
                                                  double deviation = 0.01);

/// The axes of a layer's inputs and outputs, negative ones from the end. The fan is the extent of
/// such an axis times those of all others but the two.
struct FanAxes {
  std::int64_t in = -2, out = -1;
};

/// Draws one of that type, of mean 0: with variance 2 over the sum of both fans, after Glorot (also
/// called Xavier's); 2 over the fan of the inputs, after He (Kaiming); 1 over that, after LeCun.
/// The normal ones are truncated.
[[nodiscard]] POSTERN_API Tensor glorot_uniform(const Operand& key, const Type& type,
                                                FanAxes axes = {});
[[nodiscard]] POSTERN_API Tensor glorot_normal(const Operand& key, const Type& type,
                                               FanAxes axes = {});
[[nodiscard]] POSTERN_API Tensor he_uniform(const Operand& key, const Type& type,
                                            FanAxes axes = {});
[[nodiscard]] POSTERN_API Tensor he_normal(const Operand& key, const Type& type, FanAxes axes = {});
[[nodiscard]] POSTERN_API Tensor lecun_uniform(const Operand& key, const Type& type,
                                               FanAxes axes = {});
[[nodiscard]] POSTERN_API Tensor lecun_normal(const Operand& key, const Type& type,
                                              FanAxes axes = {});

/// Draws one of that type, a matrix with orthonormal columns, or rows where these are fewer, times
/// `scale`; axes before the last are rows. Throws TypeError for a rank below 2. It opens the
/// package with LAPACK, as linalg::qr does.
[[nodiscard]] POSTERN_API Tensor orthogonal(const Operand& key, const Type& type,
                                            double scale = 1.0);

}  // namespace postern::initialize
