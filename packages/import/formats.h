// Files that are none of ours.
#pragma once
#include <string_view>

namespace postern::internal::imported {

/// Returns what a file of another format is, "" if it is none that is known.
std::string_view other_format(std::string_view bytes);

}  // namespace postern::internal::imported
