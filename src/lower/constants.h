// What is known of operations on constants.
#pragma once
#include "lower/lowering.h"

namespace postern::internal {

/// Returns whether it gives the same numbers in another shape: XLA may fold that.
bool moves_only(const Equation& e);
/// Returns the operand that is nan in every element, as the result then is; else how many operands
/// there are.
std::size_t nan_operand(const Lowering& out, const Equation& e);

}  // namespace postern::internal
