// The FFI targets that a program calls beside our own, and errors that name them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "run/array.h"
#include "run/compiled.h"

namespace postern::internal::run {

std::shared_ptr<const std::string> targets_of(std::string_view text) {
  constexpr std::string_view before = "call_target_name = \"", after = "\", api_version = 4 : i32";
  std::vector<std::string_view> names;
  for (auto at = text.find(before); at != std::string_view::npos; at = text.find(before, at)) {
    at += before.size();
    const auto end = text.find('"', at);
    const std::string_view name = text.substr(at, end - at);
    if (text.substr(at + name.size()).starts_with(after) && !name.starts_with("postern_") &&
        std::ranges::find(names, name) == names.end())
      names.push_back(name);
  }
  if (names.empty()) return nullptr;
  return std::make_shared<const std::string>(
      fmt::format("the FFI target{} '{}'", names.size() == 1 ? "" : "s", fmt::join(names, "', '")));
}

void rethrow_naming(const std::shared_ptr<const std::string>& targets) {
  try {
    throw;
  } catch (const Error& e) {
    if (!targets) throw;
    throw Error(e.code(), fmt::format("{} (the program calls {})", e.what(), *targets));
  }
}

}  // namespace postern::internal::run
