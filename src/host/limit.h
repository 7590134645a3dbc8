// Durations as users give them: the greatest mean for ever.
#pragma once
#include <chrono>

namespace postern::internal::host {

/// Adds `limit`, in any unit, to now or `from`; time_point::max() when no clock gets there.
template <class Rep, class Period>
std::chrono::steady_clock::time_point after(
    std::chrono::duration<Rep, Period> limit,
    std::chrono::steady_clock::time_point from = std::chrono::steady_clock::now()) {
  using Clock = std::chrono::steady_clock;
  using Wide = std::chrono::duration<double>;  // the clock's own unit would overflow
  const auto most = Clock::time_point::max() - from;
  if (Wide(limit) >= Wide(most)) return Clock::time_point::max();
  return from + std::chrono::duration_cast<Clock::duration>(limit);
}

}  // namespace postern::internal::host
