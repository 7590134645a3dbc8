// Checks of the axes that a gather or scatter names, and what follows from them.
#include "ops/index_axes.h"

#include "core/check.h"
#include "ops/axes.h"

namespace postern::internal {

namespace {

/// Returns whether they are axes of that rank, each at most once.
bool are_axes(Dims axes, std::int64_t rank) {
  std::ranges::sort(axes);
  if (axes.empty()) return true;
  const bool repeats = std::ranges::adjacent_find(axes) != axes.end();
  return !repeats && axes.front() >= 0 && axes.back() < rank;
}

}  // namespace

Dims window_axes(const IndexAxes& axes, std::int64_t rank) {
  return other_axes(rank, joined(axes.dropped, axes.batch_x));
}

void check_axes(const char* op, const IndexAxes& axes, const Type& x, const Type& indices) {
  check(is_integer(indices.dtype) && indices.rank() > 0,
        "{}: indices must be integers of rank 1 or more, got {}", op, to_string(indices));
  check(indices.dims.back() == std::ssize(axes.indexed),  // gather_c3
        "{}: the last axis of the indices {} must be as long as the {} indexed axes", op,
        to_string(indices), axes.indexed.size());
  for (const Dims* list : {&axes.window, &axes.dropped, &axes.batch_x})
    check(std::is_sorted(list->begin(), list->end()),
          "{}: window, dropped and batch axes must be in order, got {}", op, dims_to_string(*list));
  for (const Dims* list : {&axes.dropped, &axes.indexed})
    check(are_axes(joined(*list, axes.batch_x), x.rank()),  // gather_c4, c9, c17, c19
          "{}: axes {} and batch axes {} must be different axes of {}", op, dims_to_string(*list),
          dims_to_string(axes.batch_x), to_string(x));
  check(axes.window.size() == window_axes(axes, x.rank()).size(),  // gather_c1
        "{}: {} window axes are named, slices of {} have {}", op, axes.window.size(), to_string(x),
        window_axes(axes, x.rank()).size());
  const std::int64_t vectors = indices.rank() - 1;
  check(are_axes(axes.window, vectors + std::ssize(axes.window)),
        "{}: window axes {} must be different axes of a result with {} axes of the indices {}", op,
        dims_to_string(axes.window), vectors, to_string(indices));
  check(axes.batch_indices.size() == axes.batch_x.size() && are_axes(axes.batch_indices, vectors),
        "{}: batch axes {} of the indices {} must be as many as x's {}, different, not the last",
        op, dims_to_string(axes.batch_indices), to_string(indices), dims_to_string(axes.batch_x));
  for (std::size_t i = 0; i < axes.batch_x.size(); ++i)
    check(at(x.dims, axes.batch_x[i]) == at(indices.dims, axes.batch_indices[i]),  // gather_c17
          "{}: batch axes of {} and the indices {} differ", op, to_string(x), to_string(indices));
}

Dims gathered_dims(const IndexAxes& axes, const Dims& kept, const Type& indices) {
  const std::int64_t rank = indices.rank() - 1 + std::ssize(axes.window);
  Dims dims;
  std::size_t next_kept = 0, next_index = 0;
  for (std::int64_t i = 0; i < rank; ++i) {
    if (contains(axes.window, i))
      dims.push_back(kept[next_kept++]);
    else
      dims.push_back(indices.dims[next_index++]);
  }
  return dims;
}

Dims slice_sizes(const IndexAxes& axes, const Type& x, const Dims& updates) {
  Dims sizes(x.dims.size(), 1);
  const Dims own = window_axes(axes, x.rank());
  for (std::size_t i = 0; i < own.size(); ++i) at(sizes, own[i]) = at(updates, axes.window[i]);
  for (const std::int64_t a : axes.batch_x) at(sizes, a) = std::min<std::int64_t>(at(x.dims, a), 1);
  return sizes;
}

IndexAxes single_elements(std::int64_t axis, const Dims& batch) {
  return {
      .window = {}, .dropped = {axis}, .indexed = {axis}, .batch_x = batch, .batch_indices = batch};
}

IndexAxes with_batch(IndexAxes axes, bool of_x, bool of_indices) {
  axes.window = shifted(axes.window, 1);
  if (of_x) {
    axes.dropped = shifted(axes.dropped, 1);
    axes.indexed = shifted(axes.indexed, 1);
    axes.batch_x = shifted(axes.batch_x, 1);
  }
  if (of_indices) axes.batch_indices = shifted(axes.batch_indices, 1);
  if (of_x && of_indices) {  // each index vector looks into its own x
    axes.batch_x.insert(axes.batch_x.begin(), 0);
    axes.batch_indices.insert(axes.batch_indices.begin(), 0);
  } else if (of_x) {  // all slices run along the batch
    axes.window.insert(axes.window.begin(), 0);
  }
  return axes;
}

}  // namespace postern::internal
