// Statistics and histograms of what taps show.
#include "shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "merged.h"
#include "spi.h"
#include "summary.h"

namespace postern {
using namespace internal;

namespace {

double seconds_now() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

}  // namespace

namespace listen {

struct StatsState {
  ~StatsState() { Instances<StatsState>::all().leave(this); }
  struct Entry : Series {
    std::uint64_t stride = 1;  // firings between points
  };
  Mutex guard;
  std::vector<Entry> entries;
  const std::uint64_t number = Instances<StatsState>::all().enter(this);
  static constexpr std::size_t most_points = 2048, most_runs = 64;

  void see(Entry& e, const Summary& s, std::uint64_t run) {
    if (e.runs.empty() || e.runs.back().number != run) {
      if (e.runs.size() == most_runs) e.runs.erase(e.runs.begin());
      e.runs.push_back({e.firings, run});
    }
    if (e.firings % e.stride == 0) {
      if (e.points.size() == most_points) {  // every other one goes
        for (std::size_t i = 0; i < most_points / 2; ++i) e.points[i] = e.points[2 * i];
        e.points.resize(most_points / 2);
        e.stride *= 2;
      }
      if (e.firings % e.stride == 0) e.points.push_back({e.firings, s, seconds_now()});
    }
    ++e.firings;
    e.last = s;
    host::add(e.all, s);
  }
};

Stats::Stats() : state_(std::make_shared<StatsState>()) {}

void Stats::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const Summary s = host::summarize_live(leaves[i], host::mask_of(info, i));
    std::scoped_lock lock(state_->guard);
    state_->see(host::entry_of(state_->entries, info, i), s, info.run);
  }
}

std::uint64_t Stats::number() const { return state_->number; }

std::vector<Series> Stats::merged(std::chrono::milliseconds limit) const {
  return host::of_all("stats().merged()", {.series = series()}, limit).series;
}

std::vector<Series> Stats::series() const {
  std::scoped_lock lock(state_->guard);
  return {state_->entries.begin(), state_->entries.end()};
}

std::string Stats::table() const {
  std::string out = fmt::format("{:<24} {:>8} {:>12} {:>12} {:>12} {:>8} {:>8}\n", "tap", "firings",
                                "min", "mean", "max", "nan", "inf");
  for (const Series& s : series())
    out += fmt::format("{:<24} {:>8} {:>12.5g} {:>12.5g} {:>12.5g} {:>8} {:>8}\n",
                       host::leaf_label(s.name, s.path), s.firings, s.all.min, s.all.mean,
                       s.all.max, s.all.nan, s.all.inf);
  return out;
}

struct HistogramState {
  explicit HistogramState(int n) : bins(static_cast<std::size_t>(n)) {}
  ~HistogramState() { Instances<HistogramState>::all().leave(this); }
  using Entry = host::Histogrammed;
  const std::size_t bins;
  Mutex guard;
  std::vector<Entry> entries;
  const std::uint64_t number = Instances<HistogramState>::all().enter(this);

  /// Doubles the range until it holds [low, high]; pairs of bins become one, on the side away from
  /// the growth. A range that no double would hold becomes no larger than it must.
  void widen(Entry& e, double low, double high) const {
    if (e.bins.empty()) {
      // Wide enough for each doubling to move an edge: there are numbers between.
      const double most = std::max(std::abs(low), std::abs(high));
      double room = std::max(most, 1.0) * 0.5;
      if (high > low) room = std::max(most * 0x1p-40 - (high - low), 0.0);
      e.bins.assign(bins, 0);
      constexpr double largest = std::numeric_limits<double>::max();
      e.from = std::max(low - room, -largest);
      e.to = std::min(high + room, largest);
    }
    while (low < e.from || high > e.to) {
      const bool down = low < e.from;
      const double range = e.to - e.from, next = down ? e.from - range : e.to + range;
      if (!std::isfinite(next) || !std::isfinite(2 * range)) {
        const double from = std::min(e.from, low), to = std::max(e.to, high);
        e.bins = host::spread(e, from, to, bins);
        e.from = from;
        e.to = to;
        return;
      }
      std::vector<std::uint64_t> wider(bins, 0);
      for (std::size_t i = 0; i < bins; ++i) wider[(down ? bins + i : i) / 2] += e.bins[i];
      e.bins = std::move(wider);
      (down ? e.from : e.to) = next;
    }
  }
  /// For who looks later. Of few bins there are many, of many few.
  void remember(Entry& e) const {
    if (++e.firings % e.stride != 0) return;
    const std::size_t most = std::clamp<std::size_t>((1 << 17) / bins, 2, 128) / 2 * 2;
    e.history.push_back({e.firings, e.from, e.to, e.bins, seconds_now()});
    if (e.history.size() < most) return;
    for (std::size_t i = 0; i < most / 2; ++i) e.history[i] = std::move(e.history[2 * i + 1]);
    e.history.resize(most / 2);
    e.stride *= 2;
  }
  void see(Entry& e, const AnyView& view, std::span<const bool> mask) {
    const Summary s = host::summarize_live(view, mask);
    e.nan += static_cast<std::uint64_t>(s.nan);
    e.inf += static_cast<std::uint64_t>(s.inf);
    if (s.count == s.nan + s.inf) return;
    widen(e, s.min, s.max);
    host::count_bins(view, mask, e.from, e.to, e.bins);
  }
};

Histogram::Histogram(const HistogramOptions& options, Place place) {
  PlaceScope at(place);
  check(options.bins > 1 && options.bins % 2 == 0 && options.bins <= 1 << 16,
        "histogram: bins must be even, from 2 to 65536, got {}", options.bins);
  state_ = std::make_shared<HistogramState>(options.bins);
}

void Histogram::operator()(const TapInfo& info, std::span<const AnyView> leaves) const {
  std::scoped_lock lock(state_->guard);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    HistogramState::Entry& e = host::entry_of(state_->entries, info, i);
    state_->see(e, leaves[i], host::mask_of(info, i));
    state_->remember(e);
  }
}

std::uint64_t Histogram::number() const { return state_->number; }

std::vector<Histogram::Counts> Histogram::counts() const {
  std::scoped_lock lock(state_->guard);
  return {state_->entries.begin(), state_->entries.end()};
}

std::vector<Histogram::Counts> Histogram::merged(std::chrono::milliseconds limit) const {
  host::Seen mine;
  {
    const std::scoped_lock lock(state_->guard);
    mine.histograms = state_->entries;
  }
  const host::Seen all = host::of_all("histogram().merged()", std::move(mine), limit);
  return {all.histograms.begin(), all.histograms.end()};
}

}  // namespace listen

namespace internal::host {

void each_series(const std::function<void(EntryOf, const listen::Series&)>& f) {
  Instances<listen::StatsState>::all().each([&](listen::StatsState& s, std::uint64_t number) {
    std::scoped_lock lock(s.guard);
    for (std::size_t i = 0; i < s.entries.size(); ++i) f({number, i}, s.entries[i]);
  });
}

void each_histogram(const std::function<void(EntryOf, const Histogrammed&)>& f) {
  Instances<listen::HistogramState>::all().each(
      [&](listen::HistogramState& s, std::uint64_t number) {
        std::scoped_lock lock(s.guard);
        for (std::size_t i = 0; i < s.entries.size(); ++i) f({number, i}, s.entries[i]);
      });
}

std::vector<listen::Series> current_series() {
  std::vector<listen::Series> out;
  each_series([&](EntryOf, const listen::Series& s) { out.push_back(s); });
  return out;
}

std::vector<Histogrammed> current_histograms() {
  std::vector<Histogrammed> out;
  each_histogram([&](EntryOf, const Histogrammed& h) { out.push_back(h); });
  return out;
}

}  // namespace internal::host
}  // namespace postern
