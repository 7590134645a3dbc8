// Fourier transforms, and reductions over sliding windows (pooling).
#pragma once
#include <postern/conv.h>
#include <postern/detail/api.h>

namespace postern {

// --- discrete Fourier transforms ---
// Unnormalised forward, divided by the number of elements backward, as numpy.fft.
/// Over the last `axes` axes (1 to 3); real input becomes complex. Too few axes, and axes without
/// elements, are a TypeError.
POSTERN_API Tensor fft(const Operand& x, std::int64_t axes = 1);
POSTERN_API Tensor ifft(const Operand& x, std::int64_t axes = 1);
/// Of real x (complex x is a TypeError), f64 or made f32: the last axis keeps n / 2 + 1 numbers.
POSTERN_API Tensor rfft(const Operand& x, std::int64_t axes = 1);
/// Back to real; `n` is the extent of the result's last axis, default 2 (m - 1).
POSTERN_API Tensor irfft(const Operand& x, std::int64_t axes = 1,
                         std::optional<std::int64_t> n = {});

// --- windows ---
enum class Monoid : std::uint8_t { add, multiply, min, max };
struct WindowOptions {
  Dims strides = {};          // by axis; empty: 1
  Dims window_dilation = {};  // steps between the elements of a window; empty: 1
  ConvPadding padding = {};   // by axis; what is outside does not count
};
/// One result for each position of a window with these extents, one for each axis of x.
POSTERN_API Tensor reduce_window(Monoid monoid, const Operand& x, const Dims& window,
                                 const WindowOptions& options = {});

/// Pooling of x[batch, features, space...] over windows of its spatial axes; strides default to the
/// window. Averages count padding not.
struct PoolOptions {
  Dims strides = {};
  ConvPadding padding = {};
};
POSTERN_API Tensor max_pool(const Operand& x, const Dims& window, const PoolOptions& options = {});
POSTERN_API Tensor avg_pool(const Operand& x, const Dims& window, const PoolOptions& options = {});

}  // namespace postern
