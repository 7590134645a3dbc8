// The order in which the equations of a program are written.
#pragma once
#include <span>
#include <vector>

#include "core/program.h"

namespace postern::internal {

/// Returns whether one waits for a started call: else the order is the program's.
bool waits_in(std::span<const Equation> equations);

/// Orders the equations as the program has them, except that a call which is started after a wait,
/// with no other effect in between, comes with what it needs right behind that wait. So what the
/// program computes in between can be done while the started function is at work.
std::vector<const Equation*> starts_first(std::span<const Equation> equations);

}  // namespace postern::internal
