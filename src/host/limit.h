// Durations as users give them: the greatest mean for ever.
#pragma once
#include <chrono>

namespace postern::internal::host {

/// Adds `limit` to now; time_point::max() when no clock gets there.
inline std::chrono::steady_clock::time_point after(std::chrono::nanoseconds limit) {
  using Time = std::chrono::steady_clock::time_point;
  const Time now = std::chrono::steady_clock::now();
  return limit >= Time::max() - now ? Time::max() : now + limit;
}

}  // namespace postern::internal::host
