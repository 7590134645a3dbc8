// Progress bars: what is on the line, and when it ends.
#include <postern/listen.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <sstream>
#include <thread>

#include "support.h"

namespace postern {
namespace {

using test::has;

constexpr double at_every_step = std::numeric_limits<double>::infinity();

TEST(Listen, ProgressIsABarAtTheEndOfItsLine) {
  std::ostringstream out;
  auto f = jit([&](Tensor x) {
    const auto bar = listen::progress(
        50, {.label = "fit", .stream = &out, .width = 10, .per_second = at_every_step});
    return fori_loop(
        0, 50,
        [=](Tensor i, Tensor v) {
          tap(std::pair{i, v}, bar);
          return v + 0.5f;
        },
        x);
  });
  f(Tensor(0.0f)).item<float>();
  const std::string text = out.str();
  EXPECT_TRUE(has(text, "\rfit [#.........] 5/50")) << text;
  EXPECT_TRUE(has(text, "\rfit [##########] 50/50")) << text;
  EXPECT_TRUE(has(text, "[1]=24.5")) << text;
  EXPECT_EQ(text.back(), '\n');
}

TEST(Listen, ProgressBehindEveryEndsWithTheRun) {
  for (const Mode mode : test::all_modes)
    for (const TapMode how : {TapMode::sync, TapMode::async})
      for (const std::int64_t steps : {100, 40}) {
        std::ostringstream out;
        auto bar = listen::progress(100, {.stream = &out, .per_second = at_every_step});
        auto f = jit(
            [&](Tensor x) {
              return fori_loop(
                  0, steps,
                  [&](Tensor i, Tensor v) {
                    tap({.mode = how, .every = 10}, i, bar);
                    return v + 1.0f;
                  },
                  x);
            },
            {.mode = mode});
        for (int run = 1; run <= 2; ++run) {
          f(0.0f).block_until_ready();
          barrier();
          const std::string text = out.str();
          const auto ends = std::ranges::count(text, '\n');
          EXPECT_EQ(ends, steps == 100 ? run : 0) << text;
          const std::string last = text.substr(text.rfind('\r') + 1);
          EXPECT_TRUE(has(last, steps == 100 ? " 100/100 " : " 31/100 ")) << last;
          EXPECT_EQ(last.back() == '\n', steps == 100);
        }
      }
}

TEST(Listen, ProgressOfARunThatFailsIsWhereItFailed) {
  for (const Mode mode : {Mode::automatic, Mode::staged}) {
    std::ostringstream out;
    auto bar = listen::progress(100, {.stream = &out, .per_second = at_every_step});
    auto f = jit(
        [&](Tensor x) {
          x = fori_loop(
              0, 100,
              [&](Tensor i, Tensor v) {
                tap({.every = 10}, i, bar);
                tap(i, [](int step) {
                  if (step == 95) throw std::runtime_error("ended");
                });
                return v + 1.0f;
              },
              x);
          return call(
              x.type(), [](float v) { return v; }, x);
        },
        {.mode = mode});
    EXPECT_THROW(f(0.0f).block_until_ready(), CallbackError);
    barrier();
    EXPECT_FALSE(has(out.str(), "100/100")) << out.str();
  }
}

TEST(Listen, ProgressCountsFiringsAndBeginsAnew) {
  std::ostringstream out;
  const auto bar = listen::progress(2, {.stream = &out, .width = 4, .per_second = at_every_step});
  for (int i = 0; i < 4; ++i) tap(tensor<float>({1, 2}), bar);
  const std::string text = out.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_FALSE(has(text, "3/2")) << text;
  test::expect_error<TypeError>([] { listen::progress(0); }, {"must be positive", "0"});
  test::expect_error<TypeError>([] { listen::progress(1, {.width = 0}); }, {"width"});
}

TEST(Listen, ProgressOfSeveralDevicesIsThatOfOne) {
  std::ostringstream out;
  const auto bar = listen::progress(3, {.stream = &out, .width = 4, .per_second = at_every_step});
  const Transforms none;
  const std::vector<std::string> paths{""};
  const auto show = [&](std::uint64_t run, int device, std::int64_t step) {
    const TapInfo info{{"step", device, {}, run, StopToken()}, none, paths, false, {}};
    const AnyView view(DType::s64, reinterpret_cast<const std::byte*>(&step), nullptr, 0, 1);
    bar(info, {&view, 1});
  };
  for (const std::uint64_t run : {std::uint64_t{1}, std::uint64_t{2}})
    for (std::int64_t step = 0; step < 3; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      show(run, run == 1 ? 1 : 0, step);
      show(run, run == 1 ? 0 : 1, step);
    }
  const std::string text = out.str();
  EXPECT_EQ(std::ranges::count(text, '\r'), 6) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
  EXPECT_FALSE(has(text, "3/3 0.0 s")) << text;
  EXPECT_FALSE(has(text, "2/3 0.0 s")) << text;
}

}  // namespace
}  // namespace postern
