// Barriers in a text.
#pragma once
#include "text_operations.h"

namespace postern::internal::imported {

/// Edits that let what XLA would fold to something else read values from behind barriers.
/// `functions`: callers before those that they call.
std::vector<Edit> hidden_from_folding(const MlirText& text, const TextOperations& operations,
                                      const std::vector<std::string>& functions);

}  // namespace postern::internal::imported
