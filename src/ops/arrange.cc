// Arranging and making: joining, repeating, rolling, triangles, diagonals, ranges of numbers.
#include <postern/arrange.h>

#include <cmath>
#include <limits>

#include "ops/axes.h"
#include "ops/extents.h"
#include "ops/family.h"
#include "ops/shape.h"

namespace postern {
using namespace internal;

namespace {

/// Keeps x at and below (`lower`) or above the k-th diagonal, where column - row = k, of the last
/// two axes; zero elsewhere.
Tensor triangle(const char* op, const Operand& operand, std::int64_t k, bool lower) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  check(x.rank() >= 2, "{}: rank 2 or more is needed, got {}", op, to_string(x.type()));
  const std::int64_t rows = at(x.dims(), x.rank() - 2);
  const std::int64_t columns = at(x.dims(), x.rank() - 1);
  k = std::clamp(k, -rows - 1, columns + 1);  // so that it fits s32; beyond are all of them or none
  const Type index{DType::s32, {rows, columns}};
  const Tensor row = iota(index, 0);
  const Tensor column = iota(index, 1);
  const Tensor diagonal_of = column - row;
  const Tensor stays = lower ? diagonal_of <= k : diagonal_of >= k;
  return where(stays, x, zeros_of({x.dtype(), {}}));
}

void require_step(bool ok) { check(ok, "arange: the step must not be 0"); }
void require_countable(bool ok) { check(ok, "arange: more numbers than 2^63 are asked for"); }

/// Counts start, start + step, ... before stop. In unsigned numbers: signed ones do not hold the
/// distance from the lowest to the highest. Unsigned steps do not go down.
template <class Integer>
std::int64_t integers_before(Integer start, Integer stop, Integer step, Place place) {
  PlaceScope scope(place);
  require_step(step != 0);
  const bool down = step < 0;
  if (down) std::swap(start, stop);
  if (start >= stop) return 0;
  const std::uint64_t distance =
      static_cast<std::uint64_t>(stop) - static_cast<std::uint64_t>(start);
  std::uint64_t stride = static_cast<std::uint64_t>(step);
  if (down) stride = 0 - stride;
  const std::uint64_t last = (distance - 1) / stride;
  require_countable(last < static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  return static_cast<std::int64_t>(last) + 1;
}

}  // namespace

std::int64_t detail::count_before(std::int64_t start, std::int64_t stop, std::int64_t step,
                                  Place place) {
  return integers_before(start, stop, step, place);
}
std::int64_t detail::count_before(std::uint64_t start, std::uint64_t stop, std::uint64_t step,
                                  Place place) {
  return integers_before(start, stop, step, place);
}
std::int64_t detail::count_before(double start, double stop, double step, Place place) {
  PlaceScope scope(place);
  require_step(step != 0);
  const double count = std::ceil((stop - start) / step);
  require_countable(!(count >= 0x1p63));
  if (!(count > 0)) return 0;  // or it is NaN
  return static_cast<std::int64_t>(count);
}

Tensor stack(TensorSpan parts, std::int64_t axis, Place place) {
  PlaceScope scope(place);
  check(!parts.empty(), "stack: at least one tensor is needed");
  std::vector<Tensor> expanded;
  for (const Tensor& t : parts) {
    check(t.dims() == parts[0].dims(), "stack: tensors must have one shape, got {} and {}",
          to_string(parts[0].type()), to_string(t.type()));
    expanded.push_back(expand_dims(t, axis));
  }
  return concatenate(expanded, axis);
}

std::vector<Tensor> split_at(const Operand& operand, const Dims& places, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const std::int64_t extent =
      at(operand.tensor().dims(), normal_axis("split_at", axis, operand.tensor().rank()));
  std::vector<Tensor> parts;
  std::int64_t start = 0;
  for (std::size_t i = 0; i <= places.size(); ++i) {
    std::int64_t stop = extent;
    if (i < places.size()) stop = places[i];
    check(start <= stop && stop <= extent, "split_at: places {} must rise from 0 to {}",
          dims_to_string(places), extent);
    parts.push_back(slice_axis(operand, axis, start, stop));
    start = stop;
  }
  return parts;
}

std::vector<Tensor> split(const Operand& operand, std::int64_t count, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const std::int64_t extent =
      at(operand.tensor().dims(), normal_axis("split", axis, operand.tensor().rank()));
  check(count > 0 && extent % count == 0,
        "split: axis {} of {} does not divide into {} equal parts", axis,
        to_string(operand.tensor().type()), count);
  Dims places;
  for (std::int64_t i = 1; i < count; ++i) places.push_back(i * (extent / count));
  return split_at(operand, places, axis);
}

Tensor tile(const Operand& operand, const Dims& given) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  const std::size_t rank = std::max(given.size(), x.dims().size());
  check_rank(given);
  const Dims counts = joined(Dims(rank - given.size(), 1), given),
             dims = joined(Dims(rank - x.dims().size(), 1), x.dims());
  // Each axis gets another in front, along which it repeats: [3, 4] -> [2, 3, 5, 4] -> [6, 20].
  Dims stretched, own_axes, result;
  for (std::size_t i = 0; i < rank; ++i) {
    check(counts[i] >= 0, "tile: counts must be 0 or more, got {}", dims_to_string(given));
    stretched.insert(stretched.end(), {counts[i], dims[i]});
    own_axes.push_back(static_cast<std::int64_t>(2 * i + 1));
    result.push_back(extent_product(counts[i], dims[i]));
  }
  return reshape(broadcast_in_dim(reshape(x, dims), stretched, own_axes), result);
}

Tensor repeat(const Operand& operand, std::int64_t count, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis = normal_axis("repeat", axis, x.rank());
  check(count >= 0, "repeat: the count must be 0 or more, got {}", count);
  Dims stretched = x.dims(), result = x.dims();  // [n] -> [n, count] -> [n * count]
  stretched.insert(stretched.begin() + axis + 1, count);
  at(result, axis) = extent_product(at(result, axis), count);
  return reshape(broadcast_in_dim(x, stretched, other_axes(x.rank() + 1, {axis + 1})), result);
}

Tensor roll(const Operand& operand, std::int64_t shift, std::int64_t axis) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis = normal_axis("roll", axis, x.rank());
  const std::int64_t extent = at(x.dims(), axis);
  if (extent == 0 || shift % extent == 0) return x;
  const std::int64_t places = from_front(shift % extent, extent);
  const std::int64_t cut = extent - places;  // what is behind goes first
  return concatenate({slice_axis(x, axis, cut, extent), slice_axis(x, axis, 0, cut)}, axis);
}

Tensor flip(const Operand& x, std::int64_t axis) {
  PlaceScope scope(x.place());
  return reverse(x, {axis});
}

Tensor move_axis(const Operand& operand, std::int64_t from, std::int64_t to) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  from = normal_axis("move_axis", from, x.rank());
  Dims order = other_axes(x.rank(), {from});
  order.insert(order.begin() + normal_axis("move_axis", to, x.rank()), from);
  return transpose(x, order);
}

Tensor tril(const Operand& x, std::int64_t k) { return triangle("tril", x, k, true); }
Tensor triu(const Operand& x, std::int64_t k) { return triangle("triu", x, k, false); }

// With the matrix in one row, its diagonal is every (columns + 1)th element, from that at
// [top, left] on.
Tensor diagonal(const Operand& operand, std::int64_t k, std::int64_t axis1, std::int64_t axis2) {
  PlaceScope scope(operand.place());
  const Tensor& x = operand.tensor();
  axis1 = normal_axis("diagonal", axis1, x.rank());
  axis2 = normal_axis("diagonal", axis2, x.rank());
  check(axis1 != axis2, "diagonal: two different axes of {} are needed, got {} twice",
        to_string(x.type()), axis1);
  const Dims front = other_axes(x.rank(), {axis1, axis2});
  const Dims outer_dims = pick(x.dims(), front);
  const std::int64_t rows = at(x.dims(), axis1);
  const std::int64_t columns = at(x.dims(), axis2);
  k = std::clamp(k, -rows, columns);  // beyond there are no elements
  const std::int64_t top = std::max<std::int64_t>(-k, 0);
  const std::int64_t left = std::max<std::int64_t>(k, 0);
  const std::int64_t count = std::max<std::int64_t>(std::min(rows - top, columns - left), 0);
  const Tensor matrices = transpose(x, joined(front, {axis1, axis2}));
  const Tensor flat = reshape(matrices, joined(outer_dims, {rows * columns}));
  std::int64_t start = 0, stop = 0;
  if (count > 0) {
    start = top * columns + left;
    stop = start + spread_extent(count, columns + 1);
  }
  return slice_axis(flat, -1, start, stop, columns + 1);
}

Tensor matrix_trace(const Operand& x, std::int64_t k) {
  PlaceScope scope(x.place());
  return sum(diagonal(x, k), {.axes = Dims{-1}});
}

// A sum of both ends, weighted, so that it stays between them. Whole numbers are divided last,
// which is exact where the result is whole, and rounded down. The end itself is taken as it is
// given.
Tensor linspace(DType dtype, const Operand& start, const Operand& stop, std::int64_t count,
                bool endpoint) {
  PlaceScope scope(start.place());
  check(count >= 0, "linspace: the count must be 0 or more, got {}", count);
  const bool whole_numbers = !is_differentiable(dtype);
  DType work = dtype;
  if (whole_numbers) work = DType::f64;
  const Tensor first = fit(start.tensor(), {work, start.tensor().dims()}),
               last = fit(stop.tensor(), {work, stop.tensor().dims()});
  check(first.rank() == 0 && last.rank() == 0, "linspace: the ends must be scalars, got {} and {}",
        to_string(first.type()), to_string(last.type()));
  const bool appends_end = endpoint && count > 1;
  const std::int64_t steps = count - endpoint;  // from `first` to `last`
  const Tensor index = iota({real_dtype(work), {count - appends_end}}, 0);
  const auto divisor = static_cast<double>(std::max<std::int64_t>(steps, 1));
  Tensor numbers, end = last;
  if (whole_numbers) {
    numbers = convert(floor(first + (last - first) * index / divisor), dtype);
    end = integral(stop.tensor().dtype()) ? stop.tensor() : floor(last);  // f64 may not hold it
  } else {
    const Tensor weight = index / divisor;
    numbers = first * (1 - weight) + last * weight;
  }
  if (!appends_end) return numbers;
  return concatenate({numbers, reshape(convert(end, dtype), {1})});
}

Tensor arange(const Type& type, const Operand& start, const Operand& step) {
  PlaceScope scope(start.place());
  const Type element{type.dtype, {}};
  return iota(type, 0) * fit_within("arange", "the step", step.tensor(), element) +
         fit_within("arange", "the start", start.tensor(), element);
}

}  // namespace postern
