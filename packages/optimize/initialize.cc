// First weights of neural networks. Formulas as in jax.nn.initializers.
#include <postern/arrange.h>
#include <postern/initialize.h>
#include <postern/linalg.h>
#include <postern/random.h>

#include <cmath>

#include "spi.h"

namespace postern::initialize {
using namespace internal;

namespace {

/// Numbers of mean 0 and variance `scale` over a fan: that of the inputs, or the mean of both.
Tensor of_variance(const char* op, const Operand& key, const Type& type, FanAxes axes, double scale,
                   bool of_both, bool uniform) {
  PlaceScope scope(key.place());
  check(type.rank() >= 2, "{}: a type of rank 2 or more is needed, got {}", op, to_string(type));
  auto others = [&](std::int64_t axis) {
    const std::int64_t rank = type.rank(), in_front = axis < 0 ? axis + rank : axis;
    check(in_front >= 0 && in_front < rank, "{}: axis {} is out of range for rank {}", op, axis,
          rank);
    const auto extent = static_cast<double>(type.dims[size_of(in_front)]);
    if (extent == 0) return 0.0;
    return static_cast<double>(type.size()) / extent;
  };
  // A fan is the size without the other axis.
  const double fan_in = others(axes.out), fan_out = others(axes.in);
  double fan = fan_in;
  if (of_both) fan = (fan_in + fan_out) / 2;
  if (fan == 0) return zeros(type);
  const double deviation = std::sqrt(scale / fan);
  if (uniform) return random::uniform(key, type, -1.0f, 1.0f) * (std::sqrt(3.0) * deviation);
  constexpr double of_truncated = 0.87962566103423978;  // the deviation of what is left in (-2, 2)
  return truncated_normal(key, type, deviation / of_truncated);
}

}  // namespace

Tensor uniform(const Operand& key, const Type& type, double scale) {
  PlaceScope scope(key.place());
  return random::uniform(key, type) * scale;
}
Tensor normal(const Operand& key, const Type& type, double deviation) {
  PlaceScope scope(key.place());
  check(is_float(type.dtype), "normal: the dtype must be f16, bf16, f32 or f64, got {}",
        to_string(type.dtype));
  return random::normal(key, type) * deviation;
}
Tensor truncated_normal(const Operand& key, const Type& type, double deviation) {
  PlaceScope scope(key.place());
  return random::truncated_normal(key, type, -2.0f, 2.0f) * deviation;
}

Tensor glorot_uniform(const Operand& key, const Type& type, FanAxes axes) {
  return of_variance("glorot_uniform", key, type, axes, 1, true, true);
}
Tensor glorot_normal(const Operand& key, const Type& type, FanAxes axes) {
  return of_variance("glorot_normal", key, type, axes, 1, true, false);
}
Tensor he_uniform(const Operand& key, const Type& type, FanAxes axes) {
  return of_variance("he_uniform", key, type, axes, 2, false, true);
}
Tensor he_normal(const Operand& key, const Type& type, FanAxes axes) {
  return of_variance("he_normal", key, type, axes, 2, false, false);
}
Tensor lecun_uniform(const Operand& key, const Type& type, FanAxes axes) {
  return of_variance("lecun_uniform", key, type, axes, 1, false, true);
}
Tensor lecun_normal(const Operand& key, const Type& type, FanAxes axes) {
  return of_variance("lecun_normal", key, type, axes, 1, false, false);
}

Tensor orthogonal(const Operand& key, const Type& type, double scale) {
  PlaceScope scope(key.place());
  check(type.rank() >= 2 && is_float(type.dtype),
        "orthogonal: floats of rank 2 or more are needed, got {}", to_string(type));
  const std::int64_t size = type.size(), columns = type.dims.back();
  if (size == 0) return zeros(type);
  const std::int64_t rows = size / columns;
  const Dims tall{std::max(rows, columns), std::min(rows, columns)};
  const auto [q, r] = linalg::qr(random::normal(key, {type.dtype, tall}));
  Tensor matrix = q * sign(diagonal(r));  // else not uniformly distributed
  if (rows < columns) matrix = transpose(matrix);
  return scale * reshape(matrix, type.dims);
}

}  // namespace postern::initialize
