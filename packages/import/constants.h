// Constants of a text as tensors.
#pragma once
#include <string_view>

#include "reader.h"

namespace postern::internal::imported {

/// Returns `dense<...>` as a tensor of that type; one number for many elements as a scalar, which
/// is to be broadcast. Throws Error for what is no such constant.
Tensor constant_of(std::string_view text, const Type& type);

}  // namespace postern::internal::imported
