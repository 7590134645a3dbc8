// Dead code and common subexpressions.
#pragma once
#include "core/program.h"

namespace postern::internal {

/// Leaves out equations that nobody needs (those with effects are needed), with equal pure
/// equations made one (calls never are), recursively. Inputs stay as they are.
ProgramPtr simplify(const Program& program);

/// Marks the values that some output or effect depends on.
std::vector<bool> needed_values(const Program& program);
/// Returns whether the equation makes a value that is marked.
bool makes_any(const Equation& equation, const std::vector<bool>& marked);
/// Returns whether it makes one of the values that are needed, or has an effect.
bool is_needed(const Equation& equation, const std::vector<bool>& needed);

/// Returns which inputs some output or effect depends on.
std::vector<bool> used_inputs(const Program& program);

}  // namespace postern::internal
