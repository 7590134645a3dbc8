// What listeners of all processes have seen, as one.
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "cluster_test.h"

namespace postern::test {
namespace {

constexpr double at_every_step = std::numeric_limits<double>::infinity();

Tensor meet() {
  const auto f = jit(shard_map([](Tensor p) { return psum(p, "host"); }, hosts(),
                               {.in = {P("host")}, .out = {P()}}));
  return f(ones(type<float>({size()}))).block_until_ready();
}

std::uint64_t elements(const listen::Histogram::Counts& h, double below) {
  std::uint64_t out = 0;
  const auto bins = static_cast<double>(h.bins.size());
  for (std::size_t i = 0; i < h.bins.size(); ++i)
    if (h.from + static_cast<double>(i + 1) * (h.to - h.from) / bins <= below) out += h.bins[i];
  return out;
}

TEST(Listeners, HistogramOfTheSameEverywhere) {
  const listen::Histogram mine = listen::histogram({.bins = 8});
  const Tensor x = iota<float>(100);
  tap({.name = "x"}, x, mine);
  tap({.name = "x"}, x * 3.0f, mine);  // of another line
  const auto own = mine.counts();
  const auto all = mine.merged();
  ASSERT_EQ(all.size(), rank() == 0 ? 2u : 0u);
  if (rank() != 0) return;
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(all[i].name, "x");
    EXPECT_EQ(all[i].place.line, own[i].place.line);
    EXPECT_EQ(all[i].from, own[i].from);
    EXPECT_EQ(all[i].to, own[i].to);
    for (std::size_t b = 0; b < 8; ++b)
      EXPECT_EQ(all[i].bins[b], own[i].bins[b] * static_cast<std::uint64_t>(size())) << b;
  }
}

TEST(Listeners, HistogramOfRangesApart) {
  const listen::Histogram mine = listen::histogram({.bins = 64});
  // Process r has 100 numbers from 10 r to 10 r + 1, a nan, and the last one nothing else.
  const bool is_empty = size() > 1 && rank() == size() - 1;
  const Tensor part = is_empty ? Tensor(std::numeric_limits<float>::quiet_NaN())
                               : iota<float>(100) / 99.0f + 10.0f * static_cast<float>(rank());
  tap({.name = "part"}, part, mine);
  const auto all = mine.merged();
  ASSERT_EQ(all.size(), rank() == 0 ? 1u : 0u);
  if (rank() != 0) return;
  const int full = size() > 1 ? size() - 1 : 1;
  EXPECT_EQ(all[0].nan, size() > 1 ? 1u : 0u);
  EXPECT_EQ(all[0].from, 0);
  EXPECT_EQ(all[0].to, 10.0 * (full - 1) + 1);
  for (int r = 0; r < full; ++r)
    EXPECT_EQ(elements(all[0], 10.0 * r + 5), 100u * static_cast<unsigned>(r + 1)) << r;
}

TEST(Listeners, ReportOfAll) {
  const listen::Stats first = listen::stats(), second = listen::stats();
  const listen::Histogram counts = listen::histogram();
  record_timeline(true);
  const auto f = jit(shard_map(
      [&](Tensor p) {
        return tap({.name = "loss"}, psum(tap({.name = "loss"}, p, first), "host"), second);
      },
      hosts(), {.in = {P("host")}, .out = {P()}}));
  f(counting({size()})).block_until_ready();
  tap({.name = "counted"}, Tensor(1.0f), counts);
  barrier();
  record_timeline(false);
  const auto file = std::filesystem::temp_directory_path() / fmt::format("postern-{}", getpid());
  report(file.string(), {.title = "All of them", .of_all_processes = true});
  EXPECT_EQ(std::filesystem::exists(file), rank() == 0);
  if (rank() != 0) return;
  std::ostringstream page;
  page << std::ifstream(file).rdbuf();
  std::filesystem::remove(file);
  expect_says(page.str(), "All of them");
  expect_says(page.str(), "2 series, 1 histograms");
  expect_says(page.str(), fmt::format("<td>loss</td><td>{}</td>", size()));
  if (size() == 1) return;
  expect_says(page.str(), fmt::format("{} processes", size()));
  expect_says(page.str(), fmt::format("<th colspan=2>{}</th>", size() - 1));
  expect_says(page.str(), "collectives over processes");
}

TEST(Listeners, ReportWithoutOneProcess) {
  if (size() < 2) GTEST_SKIP() << "one process waits for nobody";
  const auto file = std::filesystem::temp_directory_path() / fmt::format("postern-{}", getpid());
  std::string text;
  try {
    // The last one comes late: when the others have told that it is over.
    if (rank() == size() - 1) std::this_thread::sleep_for(3s);
    report(file.string(),
           {.of_all_processes = true, .limit = rank() == size() - 1 ? 60'000ms : 100ms});
  } catch (const Error& e) {
    text = e.what();
  }
  expect_says(text, "report: not all processes came within 100 ms");
  EXPECT_FALSE(std::filesystem::exists(file));
  meet();
}

TEST(Listeners, OneBarForAll) {
  std::ostringstream out;
  const auto bar = listen::progress(10, {.label = "all",
                                         .stream = &out,
                                         .width = 10,
                                         .per_second = at_every_step,
                                         .of_all_processes = true});
  const bool is_last = rank() == size() - 1, is_slow = size() > 1 && is_last;
  const auto steps = [&](int from, int to) {
    for (int i = from; i < to; ++i) tap(Tensor(i), bar);
  };
  steps(0, is_slow ? 4 : 8);
  meet();
  // By messages it may take a moment until process 0 hears of it.
  const auto shows = [&](const std::string& text, int step) {
    const auto limit = std::chrono::steady_clock::now() + 10s;
    do {
      tap(Tensor(step), bar);
    } while (out.str().find(text) == std::string::npos && std::chrono::steady_clock::now() < limit);
    expect_says(out.str(), text);
  };
  if (rank() == 0 && size() > 1) {
    shows("all [####......] 4/10", 8);
    expect_says(out.str(), fmt::format(" (process {})", size() - 1));
  }
  meet();
  steps(is_slow ? 4 : 8, 10);
  meet();
  if (rank() == 0)
    shows("all [##########] 10/10", 9);
  else
    EXPECT_EQ(out.str(), "");
  meet();
}

}  // namespace
}  // namespace postern::test
