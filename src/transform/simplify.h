// Dead code and common subexpressions.
#pragma once
#include "core/program.h"

namespace postern::internal {

/// Leaves out equations that nobody needs (those with effects are needed), with equal pure
/// equations made one (calls never are), recursively. Inputs stay as they are.
ProgramPtr simplify(const Program& program);

/// Returns which inputs some output or effect depends on.
std::vector<bool> used_inputs(const Program& program);

}  // namespace postern::internal
