// What the report and the live page read of the listeners that live.
#pragma once
#include <postern/listen.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace postern::internal::host {

/// Which entry of a listener: no other one of the process has both numbers.
struct EntryOf {
  std::uint64_t listener;
  std::size_t entry;
};

/// What a Progress shows now.
struct ProgressNow {
  std::string label, numbers;
  std::int64_t done, total;
  double seconds, left;  // left: nan while nothing is known
};

/// One leaf's counts, and where it was seen.
struct Histogrammed : listen::Histogram::Counts {
  int device = 0;
  std::string transforms;
};

/// Calls f for each, where it is: the listener waits meanwhile, so f must not take long.
POSTERN_API void each_series(const std::function<void(EntryOf, const listen::Series&)>& f);
POSTERN_API void each_histogram(const std::function<void(EntryOf, const Histogrammed&)>& f);
POSTERN_API void each_progress(
    const std::function<void(std::uint64_t listener, const ProgressNow&)>& f);

std::vector<listen::Series> living_series();
std::vector<Histogrammed> living_histograms();

}  // namespace postern::internal::host
