// Which axes of x, of the indices and of the slices belong together in a gather or scatter.
#pragma once
#include <postern/indexing.h>

namespace postern::internal {

/// Refuses, in the name of `op`, what StableHLO's constraints on a gather's axes refuse.
void check_axes(const char* op, const IndexAxes& axes, const Type& x, const Type& indices);

/// Returns the axes of x that a slice runs along in the result, in order.
Dims window_axes(const IndexAxes& axes, std::int64_t rank);

/// Slices of these sizes, of which the window keeps `kept`, laid out by index vectors.
Dims gathered_dims(const IndexAxes& axes, const Dims& kept, const Type& indices);

/// Returns what `updates` of a scatter would be gathered with.
Dims slice_sizes(const IndexAxes& axes, std::int64_t rank, const Dims& updates);

/// Adds an axis in front of x, of the result and, when `indices`, of the indices as well, which
/// then go together.
IndexAxes with_batch(IndexAxes axes, bool x, bool indices);

}  // namespace postern::internal
