// Fourier transforms, and reductions over sliding windows (pooling). Every function throws
// TypeError for dtypes, axes, extents and options other than said.
#pragma once
#include <postern/conv.h>
#include <postern/detail/api.h>

namespace postern {

// --- discrete Fourier transforms ---
// Unnormalised forward, divided by the number of elements backward, as numpy.fft.

/// Transforms over the last `axes` axes (1 to 3), of x's shape; real input becomes complex: f64
/// c128, all else c64. Too few axes, and axes without elements, are a TypeError.
[[nodiscard]] POSTERN_API Tensor fft(const Operand& x, std::int64_t axes = 1);
[[nodiscard]] POSTERN_API Tensor ifft(const Operand& x, std::int64_t axes = 1);
/// Transforms real x (complex x is a TypeError), f64 or made f32: the last axis keeps n / 2 + 1
/// numbers.
[[nodiscard]] POSTERN_API Tensor rfft(const Operand& x, std::int64_t axes = 1);
/// Transforms back to real, c64 to f32, c128 to f64; `n` is the extent of the result's last axis,
/// default 2 (m - 1) of m numbers there.
[[nodiscard]] POSTERN_API Tensor irfft(const Operand& x, std::int64_t axes = 1,
                                       std::optional<std::int64_t> n = {});

// --- windows ---

enum class Monoid : std::uint8_t { add, multiply, min, max };
struct WindowOptions {
  Dims strides = {};          // by axis; empty: 1
  Dims window_dilation = {};  // steps between the elements of a window; empty: 1
  ConvPadding padding = {};   // by axis; what is outside does not count
};
/// Returns one result for each position of a window with these extents, one for each axis of x; of
/// x's dtype, which is a number's. f16, bf16 and smaller floats are added and multiplied in f32.
/// With padding n, window w and stride s an axis of extent m has (m + n - w) / s + 1, rounded down.
///
///   const pn::Tensor x = pn::tensor<float>({1, 3, 2, 5});
///   const pn::Tensor y = pn::reduce_window(pn::Monoid::max, x, {2}, {.strides = {2}});  // [3 5]
[[nodiscard]] POSTERN_API Tensor reduce_window(Monoid monoid, const Operand& x, const Dims& window,
                                               const WindowOptions& options = {});

/// By spatial axis; strides default to the window.
struct PoolOptions {
  Dims strides = {};
  ConvPadding padding = {};
};
/// Returns x[batch, features, space...] pooled over windows of its spatial axes. Averages do not
/// count padding.
[[nodiscard]] POSTERN_API Tensor max_pool(const Operand& x, const Dims& window,
                                          const PoolOptions& options = {});
[[nodiscard]] POSTERN_API Tensor avg_pool(const Operand& x, const Dims& window,
                                          const PoolOptions& options = {});

}  // namespace postern
