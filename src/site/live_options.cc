// How a listener is to be shown what passes: checked, and kept in sites.
#include "site/live_options.h"

#include "core/check.h"
#include "core/enum.h"

namespace postern::internal {

void check_options(const char* word, const std::string& name, const LiveOptions& options,
                   const char* listeners) {
  const LiveOptions& o = options;
  check_enum(fmt::format("{} '{}': TapMode", word, name), o.mode, TapMode::async);
  check(o.every > 0, "{} '{}': every must be positive, got {}", word, name, o.every);
  check(o.until >= 0, "{} '{}': until must not be negative, got {}", word, name, o.until);
  check(o.keep_last >= 0, "{} '{}': keep_last must not be negative, got {}", word, name,
        o.keep_last);
  check(o.keep_last == 0 || o.mode == TapMode::async,
        "{} '{}': keep_last is for asynchronous {}; a synchronous one loses nothing", word, name,
        listeners);
}

/// Assigns one option: a site has a bool for the mode.
template <class To, class From>
static void assign(To& to, const From& from) {
  to = static_cast<To>(from);
}

void set_options(SiteSpec& site, const LiveOptions& options) {
  for_each_field_of_both<LiveOptions, SiteSpec>([&](const auto& option, const auto& kept) {
    assign(site.*kept.member, options.*option.member);
  });
}

LiveOptions options_of(const SiteSpec& site) {
  LiveOptions out;
  for_each_field_of_both<LiveOptions, SiteSpec>(
      [&](const auto& option, const auto& kept) { assign(out.*option.member, site.*kept.member); });
  return out;
}

}  // namespace postern::internal
