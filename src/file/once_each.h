// Comparing the texts of programs that were traced at different sizes.
#pragma once
#include <string>
#include <string_view>

namespace postern::internal::file {

/// Returns a program's text without places, each pure value made once: where sizes are equal,
/// tracing makes one of what repeats, and leaves out what would reshape or broadcast a tensor to
/// its own type. Texts that are alike so are of programs that compute the same.
std::string once_each(std::string_view program);

}  // namespace postern::internal::file
