// Reading and writing at indices that the program computes.
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

}  // namespace postern
