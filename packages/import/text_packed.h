// Integers of less than a byte in a text.
#pragma once
#include <string>
#include <string_view>

namespace postern::internal::imported {

/// Returns the text in which what moves the axes of such arrays moves bytes; empty where nothing
/// does. Each operation stays on its line. Throws what reading the operations does.
std::string with_bytes_moved(std::string_view text, const std::string& name);

}  // namespace postern::internal::imported
