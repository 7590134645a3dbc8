// Where operations put the axes of their operands.
#pragma once
#include <optional>

#include "core/primitive.h"

namespace postern::internal {

/// Returns for what computes each element by itself or only moves elements (elementwise operations,
/// transpose, broadcast): axis i of an operand of `rank` axes is axis [i] of the result. None for
/// all else; but collectives, which are batched like elementwise operations, callers see first.
std::optional<Dims> moved_axes(const Equation& equation, std::size_t rank);

}  // namespace postern::internal
