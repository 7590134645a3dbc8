// Reading and writing at indices that the program computes.
//
// Every function throws TypeError, before anything runs, for indices that are no integers, for axes
// that there are not, and for shapes and dtypes other than said. An index out of range is no error:
// what it does is said beside each function. f16, bf16 and smaller floats are added and multiplied
// in f32, where an element may be updated twice.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <cstdint>
#include <vector>

namespace postern {

/// What an index out of range does. `fill`: reads give NaN (smallest signed, largest unsigned
/// integer, true; 0 of f4e2m1fn), writes do nothing. `clip`: the nearest index in range. `promise`:
/// there is none; what happens otherwise is not said.
enum class OutOfRange : std::uint8_t { fill, clip, promise };

/// Returns x[..., indices[..., i, ...], ...] along `axis`, of x's dtype; off that axis both shapes,
/// which are of one rank, broadcast, as numpy.take_along_axis. Negative indices count from the end.
///
///   const pn::Tensor x = pn::tensor<float>({{3, 1, 2}, {4, 6, 5}});
///   const pn::Tensor sorted = pn::take_along_axis(x, pn::argsort(x));  // [[1 2 3] [4 5 6]]
[[nodiscard]] POSTERN_API Tensor take_along_axis(const Operand& x, const Operand& indices,
                                                 std::int64_t axis = -1,
                                                 OutOfRange mode = OutOfRange::fill);
/// Returns x with its rows along `axis` at `indices` replaced by, added to, multiplied with ...
/// `updates`, which broadcast to the shape of take(x, indices, axis). Negative indices count from
/// the end, those out of range are left out. An index that comes twice: sums, products and extrema
/// take all its updates; which one `index_set` keeps is not said. The result has x's type, to whose
/// dtype the updates must promote.
///
///   const pn::Tensor x = pn::zeros(pn::type<float>({4})), at = pn::tensor<int>({1, 1, -1});
///   const pn::Tensor y = pn::index_add(x, at, pn::tensor<float>({5, 6, 7}));  // [0 11 0 7]
[[nodiscard]] POSTERN_API Tensor index_set(const Operand& x, const Operand& indices,
                                           const Operand& updates, std::int64_t axis = 0);
[[nodiscard]] POSTERN_API Tensor index_add(const Operand& x, const Operand& indices,
                                           const Operand& updates, std::int64_t axis = 0);
[[nodiscard]] POSTERN_API Tensor index_multiply(const Operand& x, const Operand& indices,
                                                const Operand& updates, std::int64_t axis = 0);
[[nodiscard]] POSTERN_API Tensor index_min(const Operand& x, const Operand& indices,
                                           const Operand& updates, std::int64_t axis = 0);
[[nodiscard]] POSTERN_API Tensor index_max(const Operand& x, const Operand& indices,
                                           const Operand& updates, std::int64_t axis = 0);

/// Returns the part of x of these sizes that begins at `starts` (integer scalars, one for each
/// axis, negative: from the end), of x's dtype. A start too large for the part to fit is lowered.
/// Sizes are 0 to the extents.
///
///   auto window = pn::jit([](pn::Tensor x, pn::Tensor i) {
///     return pn::dynamic_slice(x, {i}, {3});
///   });
///   const pn::Tensor y = window(pn::iota<float>(8), 2);  // [2 3 4]
[[nodiscard]] POSTERN_API Tensor dynamic_slice(const Operand& x, const std::vector<Operand>& starts,
                                               const Dims& sizes);
/// Returns x with the part that begins at `starts` replaced by `update`, of x's rank and no extent
/// larger, whose dtype promotes to x's.
[[nodiscard]] POSTERN_API Tensor dynamic_update_slice(const Operand& x, const Operand& update,
                                                      const std::vector<Operand>& starts);
/// Returns x[..., index, ...] on one axis, which disappears; `index` is an integer scalar, brought
/// into range as by dynamic_slice.
[[nodiscard]] POSTERN_API Tensor dynamic_index(const Operand& x, const Operand& index,
                                               std::int64_t axis = 0);

/// Axes of gather and scatter, StableHLO's dimension numbers. The last axis of the indices is the
/// index vector.
struct IndexAxes {
  Dims window;                  // axes of the result (of the updates) that run inside a slice of x
  Dims dropped;                 // axes of x that slices have extent 1 on and results lack
  Dims indexed;                 // the axis of x that each number of an index vector is for
  Dims batch_x, batch_indices;  // pairs of axes that go together
};
/// Slices of x of these sizes (one for each axis of x), one for each index vector, of x's dtype.
/// The result has the axes of the indices but the last, and among them, at `axes.window`, those of
/// a slice that are not dropped.
///
///   const pn::Tensor x = pn::reshape(pn::iota<float>(12), {3, 4});
///   const pn::Tensor at = pn::tensor<int>({{0, 1}, {2, 3}});  // two index vectors: rows, columns
///   const pn::Tensor y =
///       pn::gather(x, at, {.dropped = {0, 1}, .indexed = {0, 1}}, {1, 1});  // [1 11]
[[nodiscard]] POSTERN_API Tensor gather(const Operand& x, const Operand& indices,
                                        const IndexAxes& axes, const Dims& sizes,
                                        OutOfRange mode = OutOfRange::fill);

enum class Update : std::uint8_t { set, add, multiply, min, max };
struct ScatterOptions {
  OutOfRange mode = OutOfRange::fill;
  bool unique = false;  // promised: no element is updated twice
  bool sorted = false;  // promised: the index vectors come in order
};
/// Returns x with slices updated, one for each index vector, of x's type. The updates, whose dtype
/// promotes to x's, have the shape that `gather` of these slices has. What is updated twice takes
/// all its updates, but which one Update::set keeps is not said. The derivative of a product by its
/// updates needs ScatterOptions::unique, and is else a TypeError.
///
///   const pn::Tensor x = pn::zeros(pn::type<float>({2, 3})), at = pn::tensor<int>({{1}, {1}});
///   const pn::Tensor rows = pn::ones(pn::type<float>({2, 3}));
///   const pn::Tensor y = pn::scatter(pn::Update::add, x, at, rows,
///                                    {.window = {1}, .dropped = {0}, .indexed = {0}});
[[nodiscard]] POSTERN_API Tensor scatter(Update how, const Operand& x, const Operand& indices,
                                         const Operand& updates, const IndexAxes& axes,
                                         const ScatterOptions& options = {});

}  // namespace postern
