// Indexing along one axis: take, take_along_axis, updates at indices, one_hot.
#include "ops/index.h"

#include <postern/indexing.h>

#include "ops/axes.h"
#include "ops/family.h"
#include "ops/index_axes.h"
#include "ops/shape.h"

namespace postern::internal {

Tensor wide_indices(const char* op, const Tensor& indices, std::int64_t extent) {
  check(is_integer(indices.dtype()), "{}: indices must be integers, got {}", op,
        to_string(indices.type()));
  const bool long_axis = extent > std::numeric_limits<std::int32_t>::max();
  if (long_axis && indices.dtype() != DType::u64) return fit(indices, {DType::s64, indices.dims()});
  if (byte_width(indices.dtype()) < 4) return fit(indices, {DType::s32, indices.dims()});
  return indices;  // 4 bytes or more hold what s32 does; u64 holds any extent
}

}  // namespace postern::internal

namespace postern {
using namespace internal;

namespace {

/// Returns indices of an axis of that extent as index vectors of one number, negative ones counted
/// from the end.
Tensor index_vectors(const char* op, const Tensor& indices, std::int64_t extent) {
  Tensor wide = wide_indices(op, indices, extent);
  if (is_signed(wide.dtype())) wide = where(wide < 0, wide + extent, wide);
  return expand_dims(wide, -1);
}

/// Returns how x's rows along `axis` are gathered or scattered: in the result the axes of the
/// indices take its place, and x's other axes run in front and behind.
IndexAxes rows(std::int64_t rank, std::int64_t axis, std::int64_t index_rank) {
  const Dims in_front = range(0, axis), behind = range(axis + index_rank, rank - 1 + index_rank);
  IndexAxes axes = single_elements(axis);
  axes.window = joined(in_front, behind);
  return axes;
}

/// Returns the extents of the rows at the indices: x[a, n, b] at indices[i, j] has [a, i, j, b].
Dims row_dims(const Tensor& x, const Tensor& indices, std::int64_t axis) {
  Dims dims = x.dims();
  dims.erase(dims.begin() + axis);
  dims.insert(dims.begin() + axis, indices.dims().begin(), indices.dims().end());
  return dims;
}

Tensor index_update(const char* op, Update how, const Operand& operand, const Operand& indices,
                    const Operand& updates, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis = normal_axis(op, axis, x.rank());
  const Dims dims = row_dims(x, indices.tensor(), axis);
  const Tensor& given = updates.tensor();
  check(broadcast_dims(op, given.dims(), dims) == dims, "{}: updates {} do not stretch to {}", op,
        to_string(given.type()), dims_to_string(dims));
  if (at(x.dims(), axis) == 0) return x;  // every index is out of range
  const Tensor vectors = index_vectors(op, indices.tensor(), at(x.dims(), axis));
  return scatter(how, operand, vectors, fit_within(op, "updates", given, {x.dtype(), dims}),
                 rows(x.rank(), axis, indices.tensor().rank()));
}

}  // namespace

Tensor take(const Operand& operand, const Operand& indices, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis = normal_axis("take", axis, x.rank());
  const std::int64_t extent = at(x.dims(), axis);
  check(extent > 0 || indices.tensor().size() == 0, "take: {} has nothing to take on axis {}",
        to_string(x.type()), axis);
  if (extent == 0) return zeros({x.dtype(), row_dims(x, indices.tensor(), axis)});
  return gather(operand, index_vectors("take", indices.tensor(), extent),
                rows(x.rank(), axis, indices.tensor().rank()), kept_dims(x.dims(), {axis}));
}

Tensor Tensor::operator[](const Index& index) const {
  PlaceScope scope(index.place_);
  check(rank() > 0, "x[]: {} is a scalar and has no rows", to_string(type()));
  const std::int64_t extent = dims()[0];
  if (index.rows_.has_value()) return take(*this, index.rows_, 0);  // by a tensor of indices
  const std::int64_t first = from_front(index.begin_, extent);
  if (!index.range_) {
    check(0 <= first && first < extent, "x[{}]: {} has rows 0 to {}", index.begin_,
          to_string(type()), extent - 1);
    return squeeze(slice_axis(*this, 0, first, first + 1), {0});
  }
  check(index.step_ > 0, "x[]: a step must be 1 or more, got {}; see flip for the other way",
        index.step_);
  const std::int64_t begin = std::clamp<std::int64_t>(first, 0, extent),
                     end = std::clamp<std::int64_t>(from_front(index.end_, extent), begin, extent);
  const std::int64_t longest_step = std::max<std::int64_t>(extent, 1);  // longer take one row, too
  return slice_axis(*this, 0, begin, end, std::min(index.step_, longest_step));
}

Tensor take_along_axis(const Operand& operand, const Operand& given, std::int64_t axis,
                       OutOfRange mode) {
  PlaceScope scope(operand.place());
  Tensor x = operand.tensor(), indices = given.tensor();
  check(x.rank() == indices.rank(),
        "take_along_axis: x and the indices must have one rank, got {} and {}", to_string(x.type()),
        to_string(indices.type()));
  axis = normal_axis("take_along_axis", axis, x.rank());
  const std::int64_t extent = at(x.dims(), axis), count = at(indices.dims(), axis);
  const Dims off_axis = broadcast_dims("take_along_axis", kept_dims(x.dims(), {axis}),
                                       kept_dims(indices.dims(), {axis}));
  Dims x_dims = off_axis, index_dims = off_axis;
  at(x_dims, axis) = extent;
  at(index_dims, axis) = count;
  x = broadcast_to_dims(x, x_dims);
  indices = broadcast_to_dims(indices, index_dims);
  if (indices.size() == 0) return zeros({x.dtype(), index_dims});
  check(extent > 0, "take_along_axis: {} has nothing to take on axis {}", to_string(x.type()),
        axis);
  Tensor vectors;
  if (mode == OutOfRange::promise)
    vectors = expand_dims(indices, -1);  // none is negative
  else
    vectors = index_vectors("take_along_axis", indices, extent);
  const IndexAxes axes = single_elements(axis, other_axes(x.rank(), {axis}));
  return gather(x, vectors, axes, Dims(x.dims().size(), 1), mode);
}

Tensor index_set(const Operand& x, const Operand& indices, const Operand& updates,
                 std::int64_t axis) {
  return index_update("index_set", Update::set, x, indices, updates, axis);
}
Tensor index_add(const Operand& x, const Operand& indices, const Operand& updates,
                 std::int64_t axis) {
  return index_update("index_add", Update::add, x, indices, updates, axis);
}
Tensor index_multiply(const Operand& x, const Operand& indices, const Operand& updates,
                      std::int64_t axis) {
  return index_update("index_multiply", Update::multiply, x, indices, updates, axis);
}
Tensor index_min(const Operand& x, const Operand& indices, const Operand& updates,
                 std::int64_t axis) {
  return index_update("index_min", Update::min, x, indices, updates, axis);
}
Tensor index_max(const Operand& x, const Operand& indices, const Operand& updates,
                 std::int64_t axis) {
  return index_update("index_max", Update::max, x, indices, updates, axis);
}

Tensor one_hot(const Operand& operand, std::int64_t classes, DType dtype) {
  PlaceScope scope(operand.place());
  // So wide that each class has a number of the indices' dtype, for the comparison with iota.
  const Tensor indices = wide_indices("one_hot", operand.tensor(), classes);
  check(classes >= 0, "one_hot: the number of classes must be 0 or more, got {}", classes);
  return convert_to(equal(expand_dims(indices, -1), iota({indices.dtype(), {classes}}, 0)), dtype);
}

}  // namespace postern
