// What is known of operations on constants.
#pragma once
#include "lower/lowering.h"

namespace postern::internal {

/// The same numbers in another shape: XLA may fold that.
bool moves_only(const Equation& e);
/// The operand that is nan in every element, as the result then is; else their number.
std::size_t nan_operand(const Lowering& out, const Equation& e);

}  // namespace postern::internal
