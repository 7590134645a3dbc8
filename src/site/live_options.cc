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

void set_options(SiteTap& site, const LiveOptions& options) {
  const auto& [mode, every, until, keep_last] = options;  // all of them
  site.async = mode == TapMode::async;
  site.every = every;
  site.until = until;
  site.keep_last = keep_last;
}

LiveOptions options_of(const SiteTap& site) {
  return {.mode = site.async ? TapMode::async : TapMode::sync,
          .every = site.every,
          .until = site.until,
          .keep_last = site.keep_last};
}

}  // namespace postern::internal
