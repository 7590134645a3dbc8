// Listeners at their edges: ranges of nearly no width, leaves that lack a batch's axis.
#include <postern/listen.h>

#include <limits>
#include <numeric>

#include "listen/summary.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

std::uint64_t total_of(const listen::Histogram& histogram) {
  const auto counts = histogram.counts().at(0);
  return std::accumulate(counts.bins.begin(), counts.bins.end(), std::uint64_t{0});
}

// Doubled, a range of one unit in the last place is no wider: its edge is rounded back.
TEST(Listen, HistogramsOfNeighbouringNumbersEnd) {
  const double up = std::nextafter(1.0, 2.0), down = std::nextafter(1.0, 0.0);
  for (const double sign : {1.0, -1.0}) {
    const auto histogram = listen::histogram({.bins = 8});
    for (const Tensor& x : {tensor<double>({sign * down, sign}), tensor<double>({sign * up})})
      tap({.name = "h"}, x, histogram);
    EXPECT_EQ(total_of(histogram), 3u);
  }
  const auto whole = listen::histogram({.bins = 8});
  const std::int64_t large = std::int64_t{1} << 53;
  for (const Tensor& x :
       {tensor<std::int64_t>({large - 1, large}), tensor<std::int64_t>({large + 2})})
    tap({.name = "h"}, x, whole);
  EXPECT_EQ(total_of(whole), 3u);
}

// The difference of two doubles may be none.
TEST(Listen, HistogramsOfAllDoubles) {
  using Counts = std::vector<std::uint64_t>;
  const double least = std::numeric_limits<double>::lowest(), most = 0x1.8p1023;
  const auto shown = [](int bins, std::initializer_list<std::vector<double>> firings) {
    const auto histogram = listen::histogram({.bins = bins});
    for (const std::vector<double>& x : firings) tap({.name = "h"}, tensor<double>(x), histogram);
    return histogram.counts().at(0);
  };
  EXPECT_EQ(shown(4, {{most, -most, most / 2, -most / 2, 0}}).bins, (Counts{1, 1, 1, 2}));
  EXPECT_EQ(shown(8, {{least, 0.1, 0.5, 1}, {least, 0.1, 0.5, 1.5}}).bins,
            (Counts{2, 0, 0, 0, 0, 0, 0, 6}));
  const auto grown = shown(8, {{1, 2}, {most, -most}, {1, 2}});
  EXPECT_EQ(grown.from, -most);
  EXPECT_EQ(grown.to, most);
  EXPECT_EQ(grown.bins.front(), 1u);
  EXPECT_EQ(grown.bins.back(), 1u);
  EXPECT_EQ(grown.bins[3] + grown.bins[4], 4u);
  const auto single = shown(2, {{most}, {-least}});
  EXPECT_EQ(single.to, -least);
  EXPECT_EQ(single.bins[0] + single.bins[1], 2u);
  const double tiny = 2024 * std::numeric_limits<double>::denorm_min();
  EXPECT_EQ(shown(4, {{0, tiny, 2 * tiny, 3 * tiny, 4 * tiny}}).bins, (Counts{1, 1, 1, 2}));
}

TEST(Listen, EdgesOfBinsAreFinite) {
  const double most = 0x1.8p1023;
  EXPECT_EQ(host::bin_edge(-most, most, 0, 4), -most);
  EXPECT_EQ(host::bin_edge(-most, most, 1, 4), -most / 2);
  EXPECT_EQ(host::bin_edge(-most, most, 2, 4), 0);
  EXPECT_EQ(host::bin_edge(-most, most, 4, 4), most);
  EXPECT_EQ(host::bin_edge(1, 3, 1, 2), 2);
}

// All elements of a batch share it, those that are masked out too, and its own axis is none of the
// batch's.
TEST(Listen, LeavesThatABatchSharesAreAliveAsAWhole) {
  const float no_number = std::numeric_limits<float>::quiet_NaN();
  const Tensor shared = tensor<float>({1, no_number, 3, 4});
  const auto stats = listen::stats();
  const auto in_batch = [&](const auto& listener) {
    return jit(vmap([&](Tensor x) {
      return cond(
          x > 0.0f,
          [&](Tensor v) {
            tap({.name = "both"}, std::pair{v, shared}, listener);
            return v;
          },
          [](Tensor v) { return v; }, x);
    }));
  };
  const Tensor x = tensor<float>({1, -1, 1, -1});
  in_batch(stats)(x).block_until_ready();
  const std::vector<listen::Series> series = stats.series();
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[0].all.count, 2);
  EXPECT_EQ(series[1].all.count, 4);
  EXPECT_EQ(series[1].all.nan, 1);
  test::expect_error<CallbackError>(
      [&] { in_batch(listen::first_non_finite())(x).block_until_ready(); }, {"both", "nan"});
}

}  // namespace
}  // namespace postern
