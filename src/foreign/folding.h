// What XLA must not fold in programs from elsewhere.
#pragma once
#include <string_view>
#include <vector>

#include "foreign/mlir_text.h"

namespace postern::internal::foreign {

/// Returns whether XLA's folding of an operation ("divide") on this type is not what it computes
/// when the program runs: it ends the process over integer divisions by zero, and counts the zeros
/// of narrow integers in more bits than they have. As in Lowering::folds_wrongly.
bool folds_wrongly(std::string_view operation, std::string_view type);

/// Returns edits that let such operations of a text read their first operands from behind barriers.
std::vector<Edit> hidden_from_folding(const MlirText& text);

}  // namespace postern::internal::foreign
