// Listeners that people would otherwise write again. Each is a function for tap and hook (it takes
// any leaves, sync or async), to be copied freely: copies share what they have seen. All are safe
// from several threads and devices at once.
//
//   const auto stats = pn::listen::stats();
//   auto f = pn::jit([stats](pn::Tensor x) { return pn::tap({.name = "x"}, 2.0f * x, stats); });
//   f(pn::tensor<float>({1, 2}));
//   std::cout << stats.table();
#pragma once
#include <postern/detail/api.h>
#include <postern/tap.h>

#include <chrono>
#include <cstdint>
#include <iosfwd>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace postern::listen {

/// Of the elements of a leaf; min, max, mean and rms (the root of the mean square) are over those
/// that are finite, and nan when there are none. Of a complex element the absolute value counts.
struct Summary {
  std::int64_t count = 0, nan = 0, inf = 0;
  double min = std::numeric_limits<double>::quiet_NaN(), max = min, mean = min, rms = min;
  /// Returns the root of the sum of squares. Throws nothing.
  POSTERN_API double norm() const;
};
/// Summarizes these elements, of any dtype. Nothing is copied: they are read where they are. Throws
/// nothing.
POSTERN_API Summary summarize(const AnyView& view);

/// One leaf of a tap or hook, with what it showed at each firing (about 2000 firings are kept,
/// evenly spread).
struct Series {
  std::string name, path;
  Place place;
  int device = 0;
  std::string transforms;
  std::uint64_t firings = 0;
  Summary last, all;
  struct Point {
    std::uint64_t firing;
    Summary summary;
    double time = 0;  // seconds since 1970
  };
  std::vector<Point> points;
  struct Run {
    std::uint64_t firing, number;  // its first firing
  };
  std::vector<Run> runs;  // the last 64
};

/// Statistics of everything it is shown. No member throws but `merged`.
class Stats {
 public:
  /// Has seen nothing.
  POSTERN_API Stats();
  /// Is called by tap and hook, to take the values in.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;
  /// Returns what it has seen: by leaf, as a text, and by which number the live page knows it.
  POSTERN_API std::vector<Series> series() const;  // in the order in which they first fired
  POSTERN_API std::string table() const;           // one line for each
  POSTERN_API std::uint64_t number() const;        // that no other Stats of the process has
  /// Returns what all processes and devices have seen, on process 0; empty on the others. One
  /// series for each leaf, of device -1: firings are added up, points are those that all have. All
  /// processes call it, after barrier(), at the same place among their runs. Throws Error: one did
  /// not come within the limit (deadline_exceeded), failed, or has a run that is not over
  /// (aborted).
  POSTERN_API std::vector<Series> merged(
      std::chrono::milliseconds limit = std::chrono::seconds(60)) const;

 private:
  std::shared_ptr<struct StatsState> state_;
};
/// Makes Stats that have seen nothing. Throws nothing.
inline Stats stats() { return Stats(); }

/// Throws at the first element that is nan or infinite, which ends the run with a CallbackError
/// that names tap, leaf, index, firing and device.
class FirstNonFinite {
 public:
  /// Has seen nothing. Throws nothing.
  POSTERN_API FirstNonFinite();
  /// Is called by tap and hook, to look at the values; throws std::runtime_error.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

 private:
  std::shared_ptr<struct FiniteState> state_;
};
/// Makes such a listener. Throws nothing.
inline FirstNonFinite first_non_finite() { return FirstNonFinite(); }

struct ProgressOptions {
  std::string label = {};
  std::ostream* stream = nullptr;  // default: std::cerr
  int width = 40;                  // of the bar
  double per_second = 10;          // at most so many updates; infinity: one for every step
  /// Several processes have one bar, on process 0: it shows how far the slowest one is. The others
  /// say so as they go, without a meeting, at most so often.
  bool of_all_processes = false;
};
/// A progress bar of `total` steps. A first leaf that is an integer of rank 0 is the step (counted
/// from 0), else firings are counted; further numbers are written behind the bar, by their paths.
class Progress {
 public:
  /// Makes a bar that is not written yet. Throws TypeError for a total or per_second that is not
  /// positive, and a width outside of 1 to 1000.
  POSTERN_API explicit Progress(std::int64_t total, const ProgressOptions& options = {},
                                Place place = Place::current());
  /// Is called by tap and hook, to write the bar, at most so often as the options say. Throws
  /// nothing but what the stream does.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

 private:
  std::shared_ptr<struct ProgressState> state_;
};
/// Makes a Progress; throws as its constructor does.
inline Progress progress(std::int64_t total, const ProgressOptions& options = {},
                         Place place = Place::current()) {
  return Progress(total, options, place);
}

struct RecordOptions {
  std::size_t max_bytes = std::size_t{256} << 20;  // further firings are left out and counted
  OnError on_error = OnError::stop;
};
/// Keeps every value it is shown, for NumPy. "x.npy": the values of one leaf, stacked along a new
/// first axis; the file is complete after each firing. "x.npz": an array for each leaf of each tap,
/// by name and path; written by close(), or when the last copy goes. "x-{step}.npz", or {step:06}
/// as fmt has it: a file for each firing, complete when that ends; its step as in metrics.h. bf16
/// and 8-bit floats become f32.
class Record {
 public:
  /// Throws TypeError for a file of another name, and Error(unavailable) when it cannot be written,
  /// unless OnError::go_on.
  POSTERN_API explicit Record(const std::string& file, const RecordOptions& options = {},
                              Place place = Place::current());
  /// Is called by tap and hook, to keep the values; throws Error(unavailable) likewise.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;
  /// Writes what is not written yet; later firings are left out. Throws Error(unavailable) when the
  /// file cannot be written.
  POSTERN_API void close() const;
  /// Returns how many leaves were kept, and how often something was left out. They throw nothing.
  POSTERN_API std::uint64_t recorded() const;
  POSTERN_API std::uint64_t left_out() const;

 private:
  std::shared_ptr<struct RecordState> state_;
};
/// Makes a Record; throws as its constructor does.
inline Record record(const std::string& file, const RecordOptions& options = {},
                     Place place = Place::current()) {
  return Record(file, options, place);
}

struct HistogramOptions {
  int bins = 64;  // even, from 2 to 65536
};
/// Counts of elements by value. The range begins at the first firing's and grows by doubling, so
/// nothing is kept but the counts. No member throws but the constructor and `merged`.
class Histogram {
 public:
  /// Has counted nothing. Throws TypeError for bins out of range.
  POSTERN_API explicit Histogram(const HistogramOptions& options = {},
                                 Place place = Place::current());
  /// Is called by tap and hook, to count.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

  struct Counts {
    std::string name, path;
    Place place;
    double from = 0, to = 0;  // of all bins
    std::vector<std::uint64_t> bins;
    std::uint64_t nan = 0, inf = 0;
  };
  /// Returns one for each leaf, in the order in which they first fired.
  POSTERN_API std::vector<Counts> counts() const;
  /// Returns the counts of all processes and devices, on process 0; called as Stats::merged, and
  /// throws the same. Their bins span the ranges of all; where a process's lay across one of them,
  /// its elements are shared out evenly.
  POSTERN_API std::vector<Counts> merged(
      std::chrono::milliseconds limit = std::chrono::seconds(60)) const;
  POSTERN_API std::uint64_t number() const;  // that no other Histogram of the process has

 private:
  std::shared_ptr<struct HistogramState> state_;
};
/// Makes a Histogram; throws as its constructor does.
inline Histogram histogram(const HistogramOptions& options = {}, Place place = Place::current()) {
  return Histogram(options, place);
}

/// Keeps the last image of each leaf it is shown, for the live page and the report. A leaf is an
/// image, or several, as TensorBoardOptions::Arrays::images has it.
class Images {
 public:
  /// Has seen nothing. Throws nothing.
  POSTERN_API Images();
  /// Is called by tap and hook, to keep the image; throws TypeError for what is none.
  POSTERN_API void operator()(const TapInfo& info, std::span<const AnyView> leaves) const;

 private:
  std::shared_ptr<struct ImagesState> state_;
};
/// Makes Images that have seen nothing. Throws nothing.
inline Images images() { return Images(); }

/// Shows a text under a name on the live page and in the report, in place of the one before; an
/// empty one takes that away. What is longer than 64 KiB is cut. Throws nothing.
POSTERN_API void show_text(const std::string& name, const std::string& text);

}  // namespace postern::listen

namespace postern {

struct ReportOptions {
  std::string title = "Postern report";
  /// Process 0 writes what those of all processes have seen, as Stats::merged and Histogram::merged
  /// have it, and the time of each; the others write nothing. All call it, as they call `merged`.
  bool of_all_processes = false;
  std::chrono::milliseconds limit = std::chrono::seconds(60);
};
/// Writes one page of HTML that needs nothing else: what living Stats and Histogram listeners have
/// seen, as curves, histograms and tables, and where the recorded time went. Throws
/// Error(unavailable) when the file cannot be written, and what Stats::merged throws.
POSTERN_API void report(const std::string& file, const ReportOptions& options = {});

}  // namespace postern
