// Taps that show no more often than each so long.
#include <chrono>
#include <thread>

#include "file/saved_test.h"
#include "host/live_test.h"
#include "support.h"

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::expect_error, test::has;
using Ints = std::vector<std::int32_t>;

TEST(TapInterval, ShowsTheFirstAndThenWhoeverComesWhenTheTimeHasPassed) {
  for (const Mode mode : test::all_modes)
    for (const TapMode tap_mode : {TapMode::sync, TapMode::async}) {
      Ints seen, seldom;
      auto f = jit(
          [&](Tensor x) {
            x = tap({.mode = tap_mode, .interval = 20ms}, x,
                    [&](std::int32_t v) { seen.push_back(v); });
            return tap({.mode = tap_mode, .interval = 1h}, x,
                       [&](std::int32_t v) { seldom.push_back(v); });
          },
          {.mode = mode});
      for (const int i : {0, 1, 2}) {
        EXPECT_EQ(f(Tensor(i)).item<std::int32_t>(), i);
        std::this_thread::sleep_for(30ms);
      }
      barrier();
      EXPECT_EQ(seen, (Ints{0, 1, 2}));
      EXPECT_EQ(seldom, Ints{0}) << "each place has a time of its own";
    }
}

TEST(TapInterval, InALoopNoTwoAreNearerThanThat) {
  std::vector<std::chrono::steady_clock::time_point> times;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 300,
        [&](Tensor, Tensor v) {
          v = call(
              v.type(),
              [](float u) {
                std::this_thread::sleep_for(100us);
                return u + 1;
              },
              v);
          return tap({.interval = 10ms}, v,
                     [&](float) { times.push_back(std::chrono::steady_clock::now()); });
        },
        x);
  });
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 300);
  EXPECT_GE(times.size(), 2u);
  EXPECT_LE(times.size(), 300u);
  // The clock is looked at before the function is entered.
  for (std::size_t i = 2; i < times.size(); ++i) EXPECT_GE(times[i] - times[i - 2], 10ms);
}

TEST(TapInterval, EveryCountsBeforeItAndUntilBehindIt) {
  Ints seen, none_between;
  auto f = jit([&](Tensor x) {
    x = tap({.every = 2, .until = 2, .interval = 20ms}, x,
            [&](std::int32_t v) { seen.push_back(v); });
    return tap({.every = 2, .until = 2, .interval = 1h}, x,
               [&](std::int32_t v) { none_between.push_back(v); });
  });
  for (int i = 0; i < 8; ++i) {
    f(Tensor(i)).block_until_ready();
    if (i % 2) std::this_thread::sleep_for(30ms);
  }
  barrier();
  EXPECT_EQ(seen, (Ints{0, 2}));
  EXPECT_EQ(none_between, Ints{0});
}

TEST(TapInterval, ABatchIsShownAtOnce) {
  int batches = 0;
  auto f = jit(vmap([&](Tensor x) {
    return tap({.interval = 1h}, x, [&](View<const float> v) {
      EXPECT_EQ(v.size(), 3);
      ++batches;
    });
  }));
  for (int i = 0; i < 2; ++i) f(iota<float>(3)).block_until_ready();
  barrier();
  EXPECT_EQ(batches, 1);
}

TEST(TapInterval, ListenersThatAreTurnedOnSeeAll) {
  int own = 0, other = 0;
  auto f = jit([&](Tensor x) {
    return hook({.name = "h", .interval = 1h, .live = true}, x, [&](float) { ++own; });
  });
  f(Tensor(1.0f)).block_until_ready();
  {
    const Listening on = test::only(live_hooks(), "h").turn_on([&](float) { ++other; });
    for (int i = 0; i < 3; ++i) f(Tensor(1.0f)).block_until_ready();
  }
  barrier();
  EXPECT_EQ(own, 1);
  EXPECT_EQ(other, 3);
}

TEST(TapInterval, IsPrintedAndKept) {
  int seen = 0;
  register_function("interval.count", [&](float) { ++seen; }, {.replace = true});
  auto f = jit([](Tensor x) { return tap({.interval = 1h}, x, Named{"interval.count"}); });
  auto g = jit([](Tensor x) { return tap({.interval = 2h}, x, Named{"interval.count"}); });
  const Tensor x(1.0f);
  EXPECT_TRUE(has(to_string(f.program(x)), "options={interval = 3600000000000}"));
  EXPECT_NE(to_string(f.program(x)), to_string(g.program(x)));
  const std::string text = saved_text(f.lower(x));
  const auto loaded = load_text(text);
  for (int i = 0; i < 3; ++i) loaded(x).at(0).block_until_ready();
  barrier();
  EXPECT_EQ(seen, 1);
  const std::string kept = R"("options":{"interval":{"int64":3600000000000}})";
  for (const char* other :
       {R"("options":{"interval":{"int64":0}})", R"("options":{})",
        R"("options":{"interval":{"double":"1"}})", R"("options":{"intervals":{"int64":1}})"})
    expect_error<Error>([&] { load_text(test::summed(test::replaced(text, kept, other))); }, {},
                        ErrorCode::invalid_argument);
  unregister_function("interval.count");
}

TEST(TapInterval, ATimeInThePastIsRefused) {
  expect_error<TypeError>([] { tap({.name = "t", .interval = -1ms}, Tensor(1.0f), [](float) {}); },
                          {"tap 't': interval must not be negative, got -1000000 ns"});
}

}  // namespace
}  // namespace postern
