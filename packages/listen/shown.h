// What the report and the live page read of the listeners that live.
#pragma once
#include <postern/listen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "this_process.h"

namespace postern::internal::host {

struct Images;

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
  std::uint64_t firings = 0;
  /// What had been counted after so many firings, oldest first, evenly spread.
  struct Then {
    std::uint64_t firings;
    double from, to;
    std::vector<std::uint64_t> bins;
    double time;  // seconds since 1970
  };
  std::vector<Then> history = {};
  std::uint64_t stride = 1;  // firings between those
};

/// The last image of a leaf.
struct Pictured {
  std::string name, path;
  Place place;
  int device = 0;
  std::string transforms;
  std::uint64_t firings = 0;
  std::shared_ptr<const Images> last = {};
};
/// Returns a URL of each that holds its file; none of what is too large for that.
POSTERN_API std::vector<std::string> image_urls(const Images& images);

/// A text that is shown, and the number of the change that made it so.
struct ShownText {
  std::string name, text;
  std::uint64_t change;
};
POSTERN_API std::vector<ShownText> shown_texts();

/// Calls f for each, where it is: the listener waits meanwhile, so f must not take long.
POSTERN_API void each_series(const std::function<void(EntryOf, const listen::Series&)>& f);
POSTERN_API void each_histogram(const std::function<void(EntryOf, const Histogrammed&)>& f);
POSTERN_API void each_progress(
    const std::function<void(std::uint64_t listener, const ProgressNow&)>& f);

POSTERN_API void each_image(const std::function<void(EntryOf, const Pictured&)>& f);

std::vector<listen::Series> current_series();
std::vector<Histogrammed> current_histograms();

}  // namespace postern::internal::host
