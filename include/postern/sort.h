// Order: sorting several tensors together, the largest elements, places in a sorted list.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <utility>
#include <vector>

namespace postern {

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

}  // namespace postern
