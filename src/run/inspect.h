// Telling the functions of inspect_sharding what XLA chose.
#pragma once
#include "run/compiled.h"

namespace postern::internal::run {

/// Compiles the program once more with the values that are inspected as results, and reads off how
/// those lie. Does nothing when there are none. `module` is the program lowered. Throws TypeError
/// when one is inside a loop or branch.
void tell_shardings(const Lowerable& program, const Module& module);

}  // namespace postern::internal::run
