// Functions called on another device, as equations that mean their program.
#pragma once
#include "core/program.h"

namespace postern::internal {

/// Returns the device on which the equation's function is called, and the call's name; -1 for what
/// is no such call.
int device_of_call(const Equation& equation);
const std::string& name_of_call(const Equation& equation);

}  // namespace postern::internal
