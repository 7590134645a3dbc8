// Indexing that other families build on, on bare tensors.
#pragma once
#include "core/primitive.h"

namespace postern::internal {

/// Widens `indices` to an integer dtype that holds every number up to `extent`; others than
/// integers are refused in the name of `op`.
Tensor wide_indices(const char* op, const Tensor& indices, std::int64_t extent);

/// Does as dynamic_slice and dynamic_update_slice, with starts as they are: not counted from the
/// end. All of one dtype.
Tensor slice_from(const Tensor& x, TensorSpan starts, const Dims& sizes);
Tensor update_from(const Tensor& x, const Tensor& update, TensorSpan starts);

}  // namespace postern::internal
