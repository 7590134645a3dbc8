// Reductions beyond those of ops.h: cumulative ones, by a function of your own, statistics.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace postern {

/// Cumulative along an axis, from its end when `reverse`: of x's shape, with dtypes as `sum`,
/// `prod`, `max`, `min` and `logsumexp` have them, but no logarithms of complex x. An axis that
/// there is not is a TypeError.
POSTERN_API Tensor cumsum(const Operand& x, std::int64_t axis = 0,
                          bool reverse = false);  // of pred: s32
POSTERN_API Tensor cumprod(const Operand& x, std::int64_t axis = 0, bool reverse = false);
POSTERN_API Tensor cummax(const Operand& x, std::int64_t axis = 0, bool reverse = false);
POSTERN_API Tensor cummin(const Operand& x, std::int64_t axis = 0, bool reverse = false);
POSTERN_API Tensor cumlogsumexp(const Operand& x, std::int64_t axis = 0, bool reverse = false);
/// The block that they are (see block.h): x to an array of its type.
struct Cumulative {
  static constexpr std::string_view name = "cumulative";
  std::string kind = "sum";  // or product, max, min, logsumexp
  std::int64_t axis = -1;    // from the end: -1 is the last
  bool reverse = false;
};

/// A reduction by a function of two scalars, which must be associative, keep the dtype, use its
/// arguments and plain numbers only, and be free of calls and taps. `initial` may enter any number
/// of times. It has no derivative.
POSTERN_API Tensor reduce(const std::function<Tensor(Tensor, Tensor)>& function, const Operand& x,
                          const Operand& initial, const ReduceOptions& options = {});
/// The same for several tensors of one shape at once: `function` takes and returns as many.
using CombineFunction =
    std::function<std::vector<Tensor>(const std::vector<Tensor>& a, const std::vector<Tensor>& b)>;
POSTERN_API std::vector<Tensor> reduce(const CombineFunction& function,
                                       const std::vector<Tensor>& x,
                                       const std::vector<Operand>& initial,
                                       const ReduceOptions& options = {},
                                       Place place = Place::current());
/// Cumulative results of an associative elementwise `function`, in logarithmically many steps.
POSTERN_API std::vector<Tensor> associative_scan(const CombineFunction& function,
                                                 const std::vector<Tensor>& x,
                                                 std::int64_t axis = 0, bool reverse = false,
                                                 Place place = Place::current());

/// Mean squared distance from the mean, over the count less `ddof`; its root. Real, also of complex
/// x; integers become f32. NaN where `ddof` leaves no elements.
POSTERN_API Tensor variance(const Operand& x, const ReduceOptions& options = {},
                            std::int64_t ddof = 0);
POSTERN_API Tensor standard_deviation(const Operand& x, const ReduceOptions& options = {},
                                      std::int64_t ddof = 0);
/// The last axis of real x brought to mean 0 and variance 1, times `scale` plus `bias`, which
/// broadcast to x. Integers become f32; f16 and bf16 are computed in f32.
POSTERN_API Tensor layer_norm(const Operand& x, const Operand& scale, const Operand& bias,
                              double epsilon = 1e-5);

}  // namespace postern
