// Listeners at their edges: ranges of nearly no width, leaves that lack a batch's axis.
#include <postern/listen.h>

#include <limits>
#include <numeric>

#include "support.h"

namespace postern {
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
