// Which axes of x, of the indices and of the slices belong together in a gather or scatter.
#pragma once
#include <postern/indexing.h>

namespace postern::internal {

/// Refuses, in the name of `op`, what StableHLO's constraints on a gather's axes refuse.
void check_axes(const char* op, const IndexAxes& axes, const Type& x, const Type& indices);

/// Returns the axes of x that a slice runs along in the result, in order.
Dims window_axes(const IndexAxes& axes, std::int64_t rank);

/// Returns the extents of a gathered result: at the window axes those that a slice keeps, at others
/// those of the indices, but for the last.
Dims gathered_dims(const IndexAxes& axes, const Dims& kept, const Type& indices);

/// Returns the sizes with which a scatter's `updates` would be gathered from x.
Dims slice_sizes(const IndexAxes& axes, const Type& x, const Dims& updates);

/// Returns how single elements are gathered along `axis` of x; x and the indices share `batch`.
IndexAxes single_elements(std::int64_t axis, const Dims& batch = {});

/// Adds a batch axis in front of the result (the updates), and of x or the indices where these are
/// mapped; of both, it is a pair of batch axes.
IndexAxes with_batch(IndexAxes axes, bool of_x, bool of_indices);

}  // namespace postern::internal
