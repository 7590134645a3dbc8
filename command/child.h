// Functions that a process of another language serves.
#pragma once
#include <string>

namespace command {

/// Starts the command (by sh) when the function is first called, once for each set of attributes, and registers the function that passes
/// operands to its stdin and takes results from its stdout.
void serve_by_process(const std::string& function, const std::string& command);

}  // namespace command
