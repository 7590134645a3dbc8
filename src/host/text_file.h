// Files as one string.
#pragma once
#include <string>
#include <string_view>

namespace postern::host {

/// What `file` holds. Throws Error(not_found) or Error(unavailable) in the name of `who`, with the system's reason.
std::string read_file(const char* who, const std::string& file);

/// Makes `file` hold `text`. Throws Error(unavailable) in the name of `who`, with the system's reason.
void write_text_file(const char* who, const std::string& file, std::string_view text);

}  // namespace postern::host
