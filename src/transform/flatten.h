// Programs without those equations that only wrap another program.
#pragma once
#include "core/program.h"

namespace postern::internal {

/// Returns the program with equations that `which` holds of, which mean the program that they hold,
/// replaced by what they apply, recursively.
Program flattened(const Program& program, const std::function<bool(const Equation&)>& which);

}  // namespace postern::internal
