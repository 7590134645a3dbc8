// Installed files, and the folders of Python's packages.
#include "platform/find_plugin.h"

#include <postern/error.h>

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/text.h"

namespace postern::internal::platforms {

namespace fs = std::filesystem;

const char* environment(const char* name) {
  const char* value = std::getenv(name);
  if (value && *value) return value;
  return nullptr;
}

fs::path installed_beside(const char* file) {
  Dl_info info{};  // of the shared object (or program) that this code is in
  fs::path folder;
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&environment), &info) && info.dli_fname)
    folder = fs::canonical(info.dli_fname, ignored).parent_path();
  return folder / "postern" / file;
}

/// Returns the folders in which packages of Python may be, those of the active environment first.
static std::vector<fs::path> python_folders() {
  std::vector<fs::path> found;
  auto add_versions = [&](const fs::path& lib) {  // lib/python3.11/site-packages and so on
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(lib, ignored)) {
      if (!entry.path().filename().string().starts_with("python3")) continue;
      for (const char* packages : {"site-packages", "dist-packages"})
        if (fs::is_directory(entry.path() / packages, ignored))
          found.push_back(entry.path() / packages);
    }
  };
  if (const char* active = environment("VIRTUAL_ENV")) add_versions(fs::path(active) / "lib");
  std::string_view rest = text_or(environment("PYTHONPATH"), "");  // folders between colons
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (!folder.empty()) found.emplace_back(folder);
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
  }
  if (const char* home = environment("HOME")) add_versions(fs::path(home) / ".local/lib");
  add_versions("/usr/local/lib");
  add_versions("/usr/lib");
  return found;
}

fs::path in_python_folders(std::initializer_list<const char*> files) {
  std::error_code unreadable;
  const std::vector<fs::path> folders = python_folders();
  for (const char* file : files)
    for (const fs::path& folder : folders)
      if (fs::exists(folder / file, unreadable)) return folder / file;
  return {};
}

std::string not_in_python_folders(std::string_view packages) {
  std::string text = fmt::format("of {}, which none of Python's folders has", packages);
  Separator comma(", ", " ");
  for (const fs::path& folder : python_folders())
    text += fmt::format("{}{}", comma(), folder.string());
  return text;
}

[[noreturn]] void refuse_plugin(std::string_view platform, const std::string& tried) {
  throw PluginError(ErrorCode::not_found, "found no XLA plug-in for " + std::string(platform) +
                                              ": POSTERN_PLUGIN is not set, and there is no file " +
                                              tried);
}

}  // namespace postern::internal::platforms
