// Text files, whole.
#include "host/text_file.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace postern::host {

void write_text_file(const char* who, const std::string& file, std::string_view text) {
  std::FILE* const f = std::fopen(file.c_str(), "wb");
  const bool ok = f && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  const int reason = errno;
  if ((f && std::fclose(f) != 0) || !ok)
    throw Error(ErrorCode::unavailable, fmt::format("{}: cannot write '{}': {}", who, file, std::strerror(reason)));
}

}  // namespace postern::host
