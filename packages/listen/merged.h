// What listeners of all processes have seen, as one: each tells process 0, as bytes.
#pragma once
#include <postern/listen.h>

#include <chrono>
#include <string>
#include <vector>

#include "shown.h"
#include "spi.h"

namespace postern::internal::host {

/// What one process's listeners have seen, or all processes'.
struct Seen {
  std::vector<listen::Series> series{};
  std::vector<Histogrammed> histograms{};
  /// Where the recorded time went, by process.
  struct Times {
    std::vector<timeline::Total> totals;
    double seconds = 0;
  };
  std::vector<Times> times{};
};

/// Merges those of all processes, on process 0, and of all their devices; nothing on the others.
/// Entries of several listeners that look alike are told apart by their order. All processes call
/// it, and it throws what clusters::gather_on_first does.
Seen of_all(const std::string& who, const Seen& mine, std::chrono::milliseconds limit);

/// Returns the counts of a histogram in so many bins from `low` to `high`, between which its own
/// lie.
std::vector<std::uint64_t> spread(const Histogrammed& h, double low, double high, std::size_t bins);

}  // namespace postern::internal::host
