// One file for each program: a header that names what it was made from, a checksum, and XLA's serialised executable.
#include "run/disk_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>

#include "core/digest.h"
#include "core/log.h"
#include "run/runtime.h"

namespace postern::run {

namespace {

constexpr const char* format_version = "postern-executable-1";

std::string header_of(std::string_view key, std::string_view payload) {
  return fmt::format("{}\n{}\n{}\n{}\n", format_version, key, payload.size(), digest(payload));
}

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return {};
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

std::optional<pjrt::Executable> load(const pjrt::Client& client, const std::filesystem::path& path, const std::string& key) {
  const std::optional<std::string> file = read_file(path);
  if (!file) return {};
  std::size_t lines = 0, at = 0;
  while (lines < 4 && at < file->size()) lines += (*file)[at++] == '\n';
  const std::string_view payload = std::string_view(*file).substr(at);
  if (file->substr(0, at) != header_of(key, payload)) {
    log(LogLevel::warning, "cache file {} is damaged or of another version; the program is compiled anew", path.string());
    return {};
  }
  try {
    return client.deserialize(payload);
  } catch (const Error& e) {
    log(LogLevel::warning, "cache file {} cannot be used: {}; the program is compiled anew", path.string(), e.what());
    return {};
  }
}

/// Written beside and renamed, so that other processes see all of it or nothing.
void save(const std::filesystem::path& path, const std::string& key, const std::string& payload) {
  static std::atomic<int> counter{0};
  const std::filesystem::path temporary = path.string() + fmt::format(".{}.{}", ::getpid(), counter++);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  {
    std::ofstream out(temporary, std::ios::binary);
    out << header_of(key, payload) << payload;
    if (!out.flush()) error = std::make_error_code(std::errc::io_error);
  }
  if (!error) std::filesystem::rename(temporary, path, error);
  if (!error) return;
  log(LogLevel::warning, "cache file {} cannot be written: {}", path.string(), error.message());
  std::filesystem::remove(temporary, error);
}

}  // namespace

pjrt::Executable compile_or_load(const pjrt::Client& client, const std::string& text, const pjrt::CompileOptions& options) {
  const Runtime& runtime = Runtime::get();
  const std::string& dir = runtime.config().cache_dir;
  if (dir.empty()) return client.compile(text, options);
  const std::string key = digest(text + '\0' + runtime.plugin().identity() + '\0' + format_version + '\0' + pjrt::to_proto(options));
  const std::filesystem::path path = std::filesystem::path(dir) / (key + ".xla");
  if (auto loaded = load(client, path, key)) return std::move(*loaded);
  pjrt::Executable compiled = client.compile(text, options);
  try {
    save(path, key, compiled.serialize());
  } catch (const Error& e) {
    log(LogLevel::warning, "a compiled program cannot be kept on disk: {}", e.what());
  }
  return compiled;
}

}  // namespace postern::run
