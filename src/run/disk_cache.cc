// One file for each program: a header that names what it was made from, a checksum, and XLA's
// serialised executable.
#include "run/disk_cache.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sstream>

#include "core/digest.h"
#include "core/log.h"
#include "host/text_file.h"
#include "lower/lowering.h"
#include "run/tuning.h"

namespace postern::internal::run {

namespace {

constexpr const char* format_version = "postern-executable-1";

std::string header_of(std::string_view key, std::string_view payload) {
  return fmt::format("{}\n{}\n{}\n{}\n", format_version, key, payload.size(), digest(payload));
}

/// Reads the entry; none where it cannot be read.
std::optional<std::string> read_entry(const std::filesystem::path& path) {
  try {
    return host::read_file("cache", path.string());
  } catch (const Error& e) {
    if (e.code() == ErrorCode::invalid_argument)
      log(LogLevel::warning, "{}; the program is compiled anew", e.what());
    return {};
  }
}

/// Loads the entry, if it can be used. `others`: options in place of its own.
std::optional<pjrt::Executable> load(const pjrt::Client& client, const std::filesystem::path& path,
                                     const std::string& key, const pjrt::CompileOptions* others) {
  const std::optional<std::string> file = read_entry(path);
  if (!file) return {};
  std::size_t header_lines = 0, header_size = 0;
  while (header_lines < 4 && header_size < file->size())
    if ((*file)[header_size++] == '\n') ++header_lines;
  const std::string_view payload = std::string_view(*file).substr(header_size);
  if (file->substr(0, header_size) != header_of(key, payload)) {
    log(LogLevel::warning,
        "cache file {} is damaged or of another version; the program is compiled anew",
        path.string());
    return {};
  }
  try {
    return client.deserialize(payload, others);
  } catch (const Error& e) {
    log(LogLevel::warning, "cache file {} cannot be used: {}; the program is compiled anew",
        path.string(), e.what());
    return {};
  }
}

void save(const std::filesystem::path& path, const std::string& key, const std::string& payload) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    return;  // the load has said so
  std::filesystem::create_directories(path.parent_path(), error);
  host::NewFile file("cache", path.string());
  file.write(header_of(key, payload));
  file.write(payload);
  file.finish();
}

/// Returns what code depends on besides: the flags that the user gives XLA, itself or in a file
/// that they name, and the instructions that this machine has.
std::string surroundings() {
  std::string given, line;
  if (const char* flags = std::getenv("XLA_FLAGS"))
    given = fmt::format("{}\n{}", flags, host::read_if_there(flags));
  std::istringstream cpu(host::read_if_there("/proc/cpuinfo"));
  while (std::getline(cpu, line) && !line.starts_with("flags") && !line.starts_with("Features")) {
  }  // x86 says "flags", ARM "Features"; of all processors the first will do
  return given + '\0' + line;
}

/// Compiles, and notes in `options` whether the program was tuned.
pjrt::Executable compile_now(const Backend& backend, const pjrt::Client& client,
                             const std::string& text, pjrt::CompileOptions& options) {
  const Tuning tuning(backend.platform());
  options.tune = tuning.granted();
  return client.compile(text, options);
}

}  // namespace

pjrt::Executable compile_or_load(const Backend& backend, std::size_t client_number,
                                 const std::string& in_parts, pjrt::CompileOptions options,
                                 const pjrt::CompileOptions* kept) {
  const pjrt::Client& client = backend.clients[client_number];
  const bool needs_one_piece = backend.platform().calls_are_graphs;
  const std::string text = needs_one_piece ? in_one_piece(in_parts) : in_parts;
  const std::string& dir = Runtime::get().config().cache_dir;
  if (dir.empty()) return compile_now(backend, client, text, options);
  static const std::string around = surroundings();
  const std::string key = digest(text + '\0' + backend.plugin->identity() + '\0' + format_version +
                                 '\0' + pjrt::to_proto(kept ? *kept : options) + '\0' + around);
  const std::filesystem::path path = std::filesystem::path(dir) / (key + ".xla");
  if (auto loaded = load(client, path, key, kept ? &options : nullptr)) return std::move(*loaded);
  pjrt::Executable compiled = compile_now(backend, client, text, options);
  if (kept || !options.tune) return compiled;  // another process may tune it
  try {
    save(path, key, compiled.serialize());
  } catch (const Error& e) {
    log(LogLevel::warning, "a compiled program cannot be kept on disk: {}", e.what());
  }
  return compiled;
}

}  // namespace postern::internal::run
