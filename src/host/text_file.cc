// Reading and writing whole files.
#include "host/text_file.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace postern::host {

std::string read_file(const char* who, const std::string& file) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rb"),
                                                           [](std::FILE* f) { return f ? std::fclose(f) : 0; });
  std::string text;
  char part[1 << 16];
  for (std::size_t n = 0; in && (n = std::fread(part, 1, sizeof part, in.get())) > 0;) text.append(part, n);
  if (!in || std::ferror(in.get()))
    throw Error(errno == ENOENT ? ErrorCode::not_found : ErrorCode::unavailable,
                fmt::format("{}: {}: {}", who, file, std::strerror(errno)));
  return text;
}

void write_text_file(const char* who, const std::string& file, std::string_view text) {
  std::FILE* const f = std::fopen(file.c_str(), "wb");
  const bool ok = f && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  const int reason = errno;
  if ((f && std::fclose(f) != 0) || !ok)
    throw Error(ErrorCode::unavailable, fmt::format("{}: cannot write '{}': {}", who, file, std::strerror(reason)));
}

}  // namespace postern::host
