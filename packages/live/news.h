// News: what there is to see in the process, as the messages of the live page and as metrics. It
// only reads what listeners, prints, the log, the timeline, queues and jit keep.
#pragma once
#include <postern/devices.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace postern::internal::live {

using Clock = std::chrono::steady_clock;

/// Up to where somebody has the news.
struct NewsMark {
  using Entry = std::pair<std::uint64_t, std::size_t>;  // of a listener
  std::map<Entry, std::uint64_t> series, histograms;    // firings
  std::map<std::uint64_t, std::pair<std::int64_t, std::string>> progress;
  std::map<Entry, std::uint64_t> images;  // firings
  std::vector<std::uint64_t> texts;       // changes
  std::uint64_t line = 0, program = 0;
  std::vector<std::uint64_t> gone;  // programs
  bool compiling = false;
  Clock::time_point event{}, process{}, image{};
  std::pair<std::uint64_t, std::size_t> hooks;  // changes of them, and how many there are
  std::vector<std::uint64_t> queues;            // what is in them and has been, by device
};

/// Returns the devices, once a program was compiled: to ask for them before would start the
/// runtime.
std::vector<DeviceInfo> devices_in_use();

class News {
 public:
  /// Returns what is new since `mark`, which moves on, as a JSON object; of a mark that is empty
  /// all that there is. Empty when nothing is new.
  std::string since(NewsMark& mark) const;
  /// Writes the metrics as OpenMetrics 1.0.
  std::string metrics() const;

 private:
  const Clock::time_point begin_ = Clock::now();
};

}  // namespace postern::internal::live
