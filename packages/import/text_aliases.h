// Names that MLIR's text gives to types and attributes.
#pragma once
#include <string>
#include <string_view>

namespace postern::internal::imported {

/// The text with what such names stand for in their place, line by line: `!t = tensor<2xf32>`,
/// `#a = dense<0> : tensor<1xi64>`, and `dense_resource<blob>`, whose bytes stand at the end of the
/// file. Throws Error. Most texts have none: they come back empty, as they are.
std::string without_aliases(std::string_view text, const std::string& name);

}  // namespace postern::internal::imported
