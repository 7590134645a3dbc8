#include "host/failure_text.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>

#include "host/run_state.h"

namespace postern::internal::host {

std::string failure_text(const SiteSpec& site, int device, std::string_view what) {
  const std::string where = fmt::format("{} on device {}", describe(site), device_name(device));
  constexpr std::string_view nested = ", nested ";
  int deep = 1;
  if (what.starts_with(where)) {
    std::string_view rest = what.substr(where.size());
    int inside = 1;
    if (rest.starts_with(nested)) {
      rest.remove_prefix(nested.size());
      const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), inside).ptr;
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      if (rest.starts_with(" deep")) rest.remove_prefix(5);
    }
    if (rest.starts_with(": ")) {
      deep += inside;
      what = rest.substr(2);
    }
  }
  if (deep == 1) return fmt::format("{}: {}", where, what);
  return fmt::format("{}{}{} deep: {}", where, nested, deep, what);
}

static std::atomic<const std::vector<std::string>*> platform_names{nullptr};

void name_devices(std::vector<std::string> platforms) {
  platform_names = new std::vector<std::string>(std::move(platforms));  // as long as the process
}

std::string device_name(int device) {
  const std::vector<std::string>* const names = platform_names.load();
  const auto at = static_cast<std::size_t>(device);
  if (!names || at >= names->size()) return std::to_string(device);
  return fmt::format("{} ({})", device, (*names)[at]);
}

}  // namespace postern::internal::host
