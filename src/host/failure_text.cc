#include "host/failure_text.h"

#include <fmt/format.h>

#include <atomic>
#include <charconv>

#include "host/run_state.h"

namespace postern::internal::host {

static constexpr std::string_view nested = ", nested ", deep = " deep", colon = ": ";

/// Takes "WHERE: cause" or "WHERE, nested 3 deep: cause" for the cause alone, and returns how deep
/// that was: 1, 3. Of any other text it takes nothing: 0.
static int take_where(std::string_view& text, std::string_view where) {
  if (!text.starts_with(where)) return 0;
  std::string_view rest = text.substr(where.size());
  int depth = 1;
  if (rest.starts_with(nested)) {
    rest.remove_prefix(nested.size());
    const auto end = std::from_chars(rest.data(), rest.data() + rest.size(), depth).ptr;
    rest.remove_prefix(size_of(end - rest.data()));
    if (rest.starts_with(deep)) rest.remove_prefix(deep.size());
  }
  if (!rest.starts_with(colon)) return 0;
  text = rest.substr(colon.size());
  return depth;
}

std::string failure_text(const SiteSpec& site, int device, std::string_view what) {
  const std::string where = fmt::format("{} on device {}", describe(site), device_name(device));
  const int depth = 1 + take_where(what, where);
  if (depth == 1) return fmt::format("{}{}{}", where, colon, what);
  return fmt::format("{}{}{}{}{}{}", where, nested, depth, deep, colon, what);
}

static std::atomic<const std::vector<std::string>*> platform_names{nullptr};

void name_devices(std::vector<std::string> platforms) {
  platform_names = new std::vector<std::string>(std::move(platforms));  // as long as the process
}

std::string device_name(int device) {
  const std::vector<std::string>* const names = platform_names.load();
  const auto at = size_of(device);
  if (!names || at >= names->size()) return std::to_string(device);
  return fmt::format("{} ({})", device, (*names)[at]);
}

}  // namespace postern::internal::host
