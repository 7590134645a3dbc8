// Operations beyond the common ones of ops.h: cumulative and user-written reductions, products,
// convolution, indices, sorting, arranging.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <cmath>
#include <functional>
#include <string>
#include <string_view>

namespace postern {

// --- cumulative operations along an axis, from its end when `reverse`
// -----------------------------------------------------------------
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

// --- products
// -------------------------------------------------------------------------------------------------
/// Padding of a convolution, by spatial axis: pairs (low, high), none ("VALID"), or what keeps the
/// extent over the stride ("SAME").
struct ConvPadding {
  enum class Kind : std::uint8_t { valid, same, pairs };
  ConvPadding() = default;
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
};
/// Convolution (as in neural networks: the kernel is not reversed) of x[batch, features, space...]
/// with kernel[out, features / groups, space...] into [batch, out, space...], over one to three (or
/// more) spatial axes.
POSTERN_API Tensor conv(const Operand& x, const Operand& kernel, const ConvOptions& options = {});
/// The same with axes in another order: N batch, C features, O and I the kernel's, any other
/// letters space.
struct ConvLayout {
  std::string x = "NHWC", kernel = "HWIO", result = "NHWC";
};
POSTERN_API Tensor conv_general(const Operand& x, const Operand& kernel, const ConvLayout& layout,
                                const ConvOptions& options = {});

/// Einstein's sums: "ij,jk->ik". Letters name axes, one that the result lacks is summed over, one
/// that an operand has twice is a diagonal,
/// "..." stands for axes that broadcast; without "->" the result has the letters that come once, in
/// alphabetical order.
POSTERN_API Tensor einsum(std::string_view spec, std::span<const Tensor> operands,
                          Place place = Place::current());
inline Tensor einsum(std::string_view spec, std::initializer_list<Tensor> operands,
                     Place place = Place::current()) {
  return einsum(spec, std::span(operands.begin(), operands.size()), place);
}
/// As numpy's: the last axis of x with the next to last (or only) one of y; scalars multiply.
POSTERN_API Tensor dot(const Operand& x, const Operand& y);
POSTERN_API Tensor outer(const Operand& x, const Operand& y);
/// The last `axes` axes of x with the first ones of y, or the axes named.
POSTERN_API Tensor tensordot(const Operand& x, const Operand& y, std::int64_t axes = 2);
POSTERN_API Tensor tensordot(const Operand& x, const Operand& y, const Dims& axes_x,
                             const Dims& axes_y);

// --- indices
// -------------------------------------------------------------------------------------------------
/// What an index out of range does. `fill`: reads give NaN (smallest signed, largest unsigned
/// integer, true), writes do nothing. `clip`: the nearest index in range. `promise`: there is none;
/// what happens otherwise is not said.
enum class OutOfRange : std::uint8_t { fill, clip, promise };

/// x[..., indices[..., i, ...], ...] along `axis`; off that axis both shapes broadcast, as
/// numpy.take_along_axis. Negative indices count from the end.
POSTERN_API Tensor take_along_axis(const Operand& x, const Operand& indices, std::int64_t axis = -1,
                                   OutOfRange mode = OutOfRange::fill);
/// x with its rows along `axis` at `indices` replaced by, added to, multiplied with ... `updates`,
/// which broadcast to the shape of take(x, indices, axis). Negative indices count from the end,
/// those out of range are left out. An index that comes twice: sums, products and extrema take all
/// its updates; which one `index_set` keeps is not said.
POSTERN_API Tensor index_set(const Operand& x, const Operand& indices, const Operand& updates,
                             std::int64_t axis = 0);
POSTERN_API Tensor index_add(const Operand& x, const Operand& indices, const Operand& updates,
                             std::int64_t axis = 0);
POSTERN_API Tensor index_multiply(const Operand& x, const Operand& indices, const Operand& updates,
                                  std::int64_t axis = 0);
POSTERN_API Tensor index_min(const Operand& x, const Operand& indices, const Operand& updates,
                             std::int64_t axis = 0);
POSTERN_API Tensor index_max(const Operand& x, const Operand& indices, const Operand& updates,
                             std::int64_t axis = 0);

/// The part of x of these sizes that begins at `starts` (integer scalars, one for each axis,
/// negative: from the end). A start too large for the part to fit is lowered.
POSTERN_API Tensor dynamic_slice(const Operand& x, const std::vector<Operand>& starts,
                                 const Dims& sizes);
/// x with the part that begins at `starts` replaced by `update`.
POSTERN_API Tensor dynamic_update_slice(const Operand& x, const Operand& update,
                                        const std::vector<Operand>& starts);
/// x[..., index, ...] on one axis, which disappears.
POSTERN_API Tensor dynamic_index(const Operand& x, const Operand& index, std::int64_t axis = 0);

/// Axes of gather and scatter, StableHLO's dimension numbers. The last axis of the indices is the
/// index vector.
struct IndexAxes {
  Dims window;                  // axes of the result (of the updates) that run inside a slice of x
  Dims dropped;                 // axes of x that slices have extent 1 on and results lack
  Dims indexed;                 // the axis of x that each number of an index vector is for
  Dims batch_x, batch_indices;  // pairs of axes that go together
};
/// Slices of x of these sizes, one for each index vector.
POSTERN_API Tensor gather(const Operand& x, const Operand& indices, const IndexAxes& axes,
                          const Dims& sizes, OutOfRange mode = OutOfRange::fill);

enum class Update : std::uint8_t { set, add, multiply, min, max };
struct ScatterOptions {
  OutOfRange mode = OutOfRange::fill;
  bool unique = false;  // promised: no element is updated twice
  bool sorted = false;  // promised: the index vectors come in order
};
/// x with slices updated, one for each index vector.
POSTERN_API Tensor scatter(Update how, const Operand& x, const Operand& indices,
                           const Operand& updates, const IndexAxes& axes,
                           const ScatterOptions& options = {});

// --- order
// -------------------------------------------------------------------------------------------------
/// Tensors of one shape sorted together along `axis` by the first `keys` of them, the first one
/// foremost; stable, NaN last, -0 equal to 0.
POSTERN_API std::vector<Tensor> sort_by(const std::vector<Tensor>& operands, int keys = 1,
                                        std::int64_t axis = -1, Place place = Place::current());
/// The k largest elements along the last axis, largest first, and their indices (s32); of equal
/// ones the first. NaN counts as the largest, -0 as smaller than 0.
POSTERN_API std::pair<Tensor, Tensor> top_k(const Operand& x, std::int64_t k);
/// Where `values` would go into `sorted` (rank 1) to keep its order (s32): before its equals, or
/// after them when `right`.
POSTERN_API Tensor searchsorted(const Operand& sorted, const Operand& values, bool right = false);

// --- arranging
// -------------------------------------------------------------------------------------------------
/// Tensors of one shape along a new axis.
POSTERN_API Tensor stack(std::span<const Tensor> parts, std::int64_t axis = 0,
                         Place place = Place::current());
inline Tensor stack(std::initializer_list<Tensor> parts, std::int64_t axis = 0,
                    Place place = Place::current()) {
  return stack(std::span(parts.begin(), parts.size()), axis, place);
}
/// `count` equal parts, or the parts between `places`.
POSTERN_API std::vector<Tensor> split(const Operand& x, std::int64_t count, std::int64_t axis = 0);
POSTERN_API std::vector<Tensor> split_at(const Operand& x, const Dims& places,
                                         std::int64_t axis = 0);
/// All of x so many times along each axis; each element `count` times in a row.
POSTERN_API Tensor tile(const Operand& x, const Dims& counts);
POSTERN_API Tensor repeat(const Operand& x, std::int64_t count, std::int64_t axis);
/// Shifted by `shift` toward the end, in a circle.
POSTERN_API Tensor roll(const Operand& x, std::int64_t shift, std::int64_t axis);
POSTERN_API Tensor flip(const Operand& x, std::int64_t axis);
POSTERN_API Tensor move_axis(const Operand& x, std::int64_t from, std::int64_t to);
/// The lower or upper triangle of the last two axes with the k-th diagonal (above the main one when
/// positive), zeros elsewhere.
POSTERN_API Tensor tril(const Operand& x, std::int64_t k = 0);
POSTERN_API Tensor triu(const Operand& x, std::int64_t k = 0);
/// The k-th diagonal of two axes, as the last axis of the result; its sum.
POSTERN_API Tensor diagonal(const Operand& x, std::int64_t k = 0, std::int64_t axis1 = 0,
                            std::int64_t axis2 = 1);
POSTERN_API Tensor matrix_trace(const Operand& x, std::int64_t k = 0);

/// `count` numbers from `start` to `stop`, which is the last one when `endpoint`.
POSTERN_API Tensor linspace(DType dtype, const Operand& start, const Operand& stop,
                            std::int64_t count, bool endpoint = true);
template <Element T>
Tensor linspace(const Operand& start, const Operand& stop, std::int64_t count,
                bool endpoint = true) {
  return linspace(dtype_v<T>, start, stop, count, endpoint);
}
/// start, start + step, ...: as many as `type` (of rank 1) says, or all before `stop`.
POSTERN_API Tensor arange(const Type& type, const Operand& start, const Operand& step);
template <Element T>
requires std::is_arithmetic_v<T> Tensor arange(T start, T stop, T step = 1,
                                               Place place = Place::current()) {
  const double count = std::ceil((static_cast<double>(stop) - static_cast<double>(start)) /
                                 static_cast<double>(step));
  return arange(type<T>({count > 0 ? static_cast<std::int64_t>(count) : 0}), Operand(start, place),
                step);
}

// --- statistics and the like
// -------------------------------------------------------------------------------------------------
/// Mean squared distance from the mean, over the count less `ddof`; its root.
POSTERN_API Tensor variance(const Operand& x, const ReduceOptions& options = {},
                            std::int64_t ddof = 0);
POSTERN_API Tensor standard_deviation(const Operand& x, const ReduceOptions& options = {},
                                      std::int64_t ddof = 0);
/// The last axis brought to mean 0 and variance 1, times `scale` plus `bias`.
POSTERN_API Tensor layer_norm(const Operand& x, const Operand& scale, const Operand& bias,
                              double epsilon = 1e-5);
/// Numbers below `low` become `low`, those above `high` `high`.
POSTERN_API Tensor clip(const Operand& x, const Operand& low, const Operand& high);
/// |x - y| <= absolute + relative |y|, elementwise and for all.
POSTERN_API Tensor isclose(const Operand& x, const Operand& y, double relative = 1e-5,
                           double absolute = 1e-8, bool equal_nan = false);
POSTERN_API Tensor allclose(const Operand& x, const Operand& y, double relative = 1e-5,
                            double absolute = 1e-8, bool equal_nan = false);

}  // namespace postern
