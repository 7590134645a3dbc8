// Reductions beyond those of ops.h: cumulative ones, by a function of your own, statistics.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace postern {

/// Accumulates along an axis, from its end when `reverse`: of x's shape, with dtypes as `sum`,
/// `prod`, `max`, `min` and `logsumexp` have them, but no logarithms of complex x. An axis that
/// there is not is a TypeError, and so is a dtype that these do not take.
[[nodiscard]] POSTERN_API Tensor cumsum(const Operand& x, std::int64_t axis = 0,
                                        bool reverse = false);  // of pred: s32
[[nodiscard]] POSTERN_API Tensor cumprod(const Operand& x, std::int64_t axis = 0,
                                         bool reverse = false);
[[nodiscard]] POSTERN_API Tensor cummax(const Operand& x, std::int64_t axis = 0,
                                        bool reverse = false);
[[nodiscard]] POSTERN_API Tensor cummin(const Operand& x, std::int64_t axis = 0,
                                        bool reverse = false);
[[nodiscard]] POSTERN_API Tensor cumlogsumexp(const Operand& x, std::int64_t axis = 0,
                                              bool reverse = false);
/// The block that they are (see block.h): x to an array of its type.
struct Cumulative {
  static constexpr std::string_view name = "cumulative";
  std::string kind = "sum";  // or product, max, min, logsumexp
  std::int64_t axis = -1;    // from the end: -1 is the last
  bool reverse = false;
};

/// Returns a reduction by a function of two scalars, which must be associative, keep the dtype, use
/// its arguments and plain numbers only, and be free of calls and taps: TypeError otherwise.
/// `initial` is a scalar whose dtype promotes to x's, and may enter any number of times. The result
/// is of x's dtype, without the axes. A derivative is a TypeError.
///
///   auto larger = [](pn::Tensor a, pn::Tensor b) { return pn::where(a < b, b, a); };
///   const pn::Tensor x = pn::tensor<float>({{1, 5}, {4, 2}});
///   const pn::Tensor y = pn::reduce(larger, x, 0, {.axes = pn::Dims{0}});  // [4 5]
[[nodiscard]] POSTERN_API Tensor reduce(const std::function<Tensor(Tensor, Tensor)>& function,
                                        const Operand& x, const Operand& initial,
                                        const ReduceOptions& options = {});
/// The same for several tensors of one shape at once: `function` takes and returns as many. Throws
/// TypeError as that does, and for numbers of tensors that differ.
using CombineFunction =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& a, const std::vector<Tensor>& b)>;
[[nodiscard]] POSTERN_API std::vector<Tensor> reduce(const CombineFunction& function,
                                                     const std::vector<Tensor>& x,
                                                     const std::vector<Operand>& initial,
                                                     const ReduceOptions& options = {},
                                                     Place place = Place::current());
/// Returns Cumulative results of an associative elementwise `function`, in logarithmically many
/// steps: as many tensors as x has, of their types. Throws TypeError for no tensors, for extents
/// along `axis` that differ, and for what `function` throws.
///
///   const pn::CombineFunction compose = [](const auto& f, const auto& g) {  // of x -> a x + b
///     return std::vector{f[0] * g[0], g[0] * f[1] + g[1]};
///   };
///   const std::vector<pn::Tensor> steps = {pn::tensor<float>({2, 3}), pn::tensor<float>({1, 1})};
///   const pn::Tensor sums = pn::associative_scan(compose, steps)[1];  // [1 4]
[[nodiscard]] POSTERN_API std::vector<Tensor> associative_scan(const CombineFunction& function,
                                                               const std::vector<Tensor>& x,
                                                               std::int64_t axis = 0,
                                                               bool reverse = false,
                                                               Place place = Place::current());

/// Returns Mean squared distance from the mean, over the count less `ddof`; its root. Real, also of
/// complex x; integers become f32. NaN where `ddof` leaves no elements. Throws TypeError for axes
/// that there are not.
[[nodiscard]] POSTERN_API Tensor variance(const Operand& x, const ReduceOptions& options = {},
                                          std::int64_t ddof = 0);
[[nodiscard]] POSTERN_API Tensor standard_deviation(const Operand& x,
                                                    const ReduceOptions& options = {},
                                                    std::int64_t ddof = 0);
/// Reduces over one axis, which disappears: as NumPy's `var(x, axis)`. Throws TypeError for an axis
/// that there is not.
[[nodiscard]] inline Tensor variance(const Operand& x, std::integral auto axis,
                                     std::int64_t ddof = 0) {
  return variance(x, ReduceOptions{.axes = axis}, ddof);
}
[[nodiscard]] inline Tensor standard_deviation(const Operand& x, std::integral auto axis,
                                               std::int64_t ddof = 0) {
  return standard_deviation(x, ReduceOptions{.axes = axis}, ddof);
}
/// Returns the last axis of real x brought to mean 0 and variance 1, times `scale` plus `bias`,
/// which broadcast to x; of x's shape. Integers become f32; f16 and bf16 are computed in f32.
/// Throws TypeError for complex x, for scalars, and where `scale` or `bias` do not broadcast so.
[[nodiscard]] POSTERN_API Tensor layer_norm(const Operand& x, const Operand& scale,
                                            const Operand& bias, double epsilon = 1e-5);

}  // namespace postern
