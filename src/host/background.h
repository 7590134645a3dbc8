// What goes on beside the runs, such as files that listeners write: barrier() and the end of the
// process wait for it.
#pragma once
#include <postern/detail/api.h>

#include <chrono>
#include <memory>
#include <optional>

namespace postern::internal::host {

class Background {
 public:
  virtual ~Background() = default;
  /// Waits, at most until then, and hands failures that nobody has seen to keep_unobserved. False
  /// when something is still going on.
  virtual bool settle(std::optional<std::chrono::steady_clock::time_point> until) = 0;
};

/// Makes barriers wait for it too, from now on, as long as it lives.
POSTERN_API void wait_also_for(const std::shared_ptr<Background>& work);

/// Waits, and returns how many were still at work when the limit passed.
std::size_t wait_for_background(std::optional<std::chrono::steady_clock::time_point> until);

}  // namespace postern::internal::host
