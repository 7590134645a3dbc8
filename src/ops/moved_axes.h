// Where operations put the axes of their operands.
#pragma once
#include <optional>

#include "core/primitive.h"

namespace postern::internal {

/// Returns where the operands' axes are in the result, of what makes each element of those at its
/// place or puts them elsewhere: elementwise operations, transpose, broadcast; none for all others.
std::optional<Dims> moved_axes(const Equation& equation, std::size_t rank);

}  // namespace postern::internal
