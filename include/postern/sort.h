// Order: sorting several tensors together, the largest elements, places in a sorted list. Every
// function throws TypeError for axes, shapes and dtypes other than said.
#pragma once
#include <postern/detail/api.h>
#include <postern/ops.h>

#include <utility>
#include <vector>

namespace postern {

/// Sorts tensors of one shape, at least one, together along `axis` by the first `keys` of them (1
/// to all), the first one foremost; stable, NaN last, -0 equal to 0. The results are of their
/// types.
///
///   const pn::Tensor ages = pn::tensor<int>({30, 20, 40}), ids = pn::tensor<int>({1, 2, 3});
///   const pn::Tensor by_age = pn::sort_by({ages, ids})[1];  // [2 1 3]
[[nodiscard]] POSTERN_API std::vector<Tensor> sort_by(const std::vector<Tensor>& operands,
                                                      int keys = 1, std::int64_t axis = -1,
                                                      Place place = Place::current());
/// Returns the k largest elements along the last axis (k is at most its extent), largest first, of
/// x's dtype, and their indices (s32); of equal ones the first. NaN counts as the largest, -0 as
/// smaller than 0.
[[nodiscard]] POSTERN_API std::pair<Tensor, Tensor> top_k(const Operand& x, std::int64_t k);
/// Returns where `values` would go into `sorted` (rank 1) to keep its order (s32, of their shape):
/// before its equals, or after them when `right`. Of any dtypes, which are promoted; complex ones
/// are a TypeError.
///
///   const pn::Tensor sorted = pn::tensor<float>({1, 3, 3, 5}), x = pn::tensor<float>({3, 9});
///   const pn::Tensor before = pn::searchsorted(sorted, x);       // [1 4]
///   const pn::Tensor after = pn::searchsorted(sorted, x, true);  // [3 4]
[[nodiscard]] POSTERN_API Tensor searchsorted(const Operand& sorted, const Operand& values,
                                              bool right = false);

}  // namespace postern
