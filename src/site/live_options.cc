// Checking how a listener is to be shown what passes.
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

}  // namespace postern::internal
