// In what order effects happen.
#include <algorithm>
#include <mutex>
#include <set>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using namespace std::chrono_literals;
using Ints = std::vector<int>;
using Words = std::vector<std::string>;

TEST(Order, WhatIsLinkedByDataRunsInThatOrder) {
  RecordProperty("covers", "ORDER-01 ORDER-09 HOOK-09");
  std::atomic<bool> logged = false;
  int early = 0, seen = 0;
  for (bool argument : {true, false}) {
    auto f = jit([&](Tensor x) {
      Tensor y = tap({.ordered = argument}, argument ? x : x * 1.0f, [&](float v) {
        std::this_thread::yield();
        logged = v == 2;
      });
      return call(
          y.type(),
          [&](float v) {
            early += !logged.exchange(false);
            ++seen;
            return v;
          },
          y);
    });
    for (int i = 0; i < 500; ++i) f(Tensor(2.0f)).item<float>();
  }
  EXPECT_EQ(seen, 1000);
  EXPECT_EQ(early, 0);
}

TEST(Order, ACallMayWaitForTheTapBeforeIt) {
  RecordProperty("covers", "ORDER-09");
  std::atomic<bool> shown = false;
  auto f = jit([&](Tensor x) {
    Tensor y = tap({.mode = TapMode::async}, x * 2.0f, [&](float) { shown = true; });
    return call(
        y.type(), [&](float v) { return test::wait_until([&] { return shown.load(); }) ? v : -1; },
        y);
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
}

TEST(Order, IndependentEffectsFireInProgramOrder) {
  RecordProperty("covers", "ORDER-02");
  for (Mode mode : test::both_modes) {
    Ints order;
    auto f = jit(
        [&](Tensor x) {
          Tensor a = hook("a", x + 0.0f, [&](float) { order.push_back(1); });
          Tensor b = hook("b", x + 1.0f, [&](float) {
            std::this_thread::sleep_for(50ms);
            order.push_back(2);
          });
          Tensor c = hook("c", x + 2.0f, [&](float) { order.push_back(3); });
          return a + c + b;
        },
        {.mode = mode});
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 6);
    EXPECT_EQ(order, (Ints{1, 2, 3}));
  }
}

TEST(Order, UnorderedEffectsAllFire) {
  RecordProperty("covers", "ORDER-04");
  std::ostringstream out;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 5,
        [&](Tensor i, Tensor v) {
          print({.stream = &out, .ordered = false}, "a {}", i);
          print({.stream = &out, .ordered = false}, "b {}", i);
          return v;
        },
        x);
  });
  f(Tensor(1.0f)).item<float>();
  std::multiset<std::string> lines, want;
  std::istringstream in(out.str());
  for (std::string line; std::getline(in, line);) lines.insert(line);
  for (int i = 0; i < 5; ++i) {
    want.insert("a " + std::to_string(i));
    want.insert("b " + std::to_string(i));
  }
  EXPECT_EQ(lines, want);
}

TEST(Order, TapsHooksPrintsAndOrderedCallsShareOneSequence) {
  RecordProperty("covers", "ORDER-06");
  std::ostringstream out;
  auto f = jit([&](Tensor x) {
    for (int round = 0; round < 3; ++round) {
      tap(x + float(round), [&](float) {
        std::this_thread::sleep_for(5ms);
        out << "tap\n";
      });
      call(
          {.effect = Effect::ordered}, std::tuple<>(), [&](float) { out << "call\n"; }, x * 2.0f);
      print({.stream = &out}, "print");
      hook("h", x, [&](float) { out << "hook\n"; });
    }
    return x;
  });
  f(Tensor(1.0f)).item<float>();
  EXPECT_EQ(out.str(), "tap\ncall\nprint\nhook\ntap\ncall\nprint\nhook\ntap\ncall\nprint\nhook\n");
}

TEST(Order, HoldsThroughBranchesLoopsAndDerivatives) {
  Words order;
  auto note = [&](const char* what) { return [&order, what](float) { order.push_back(what); }; };
  auto f = [&](Tensor x) {
    x = tap(x, note("first"));
    x = cond(
        x > 0.0f, [&](Tensor v) { return tap(v, note("then")); },
        [&](Tensor v) { return tap(v, note("else")); }, x);
    x = fori_loop(
        0, 2, [&](Tensor, Tensor v) { return tap(v * 2.0f, note("loop")); }, x);
    return tap(x, note("last"));
  };
  const Words want{"first", "then", "loop", "loop", "last"};
  jit(f)(Tensor(1.0f)).item<float>();
  EXPECT_EQ(std::exchange(order, {}), want);
  jit(grad(f))(Tensor(1.0f)).item<float>();
  EXPECT_EQ(std::exchange(order, {}), want);
}

TEST(Order, EachThreadHasItsOwn) {
  RecordProperty("covers", "ORDER-10");
  std::mutex guard;
  std::map<int, Ints> seen;
  auto f = jit([&](Tensor who, Tensor x) {
    return fori_loop(
        0, 100,
        [&](Tensor i, Tensor v) {
          tap(std::pair{who, i}, [&](std::int32_t w, std::int32_t step) {
            std::scoped_lock lock(guard);
            seen[w].push_back(step);
          });
          return v;
        },
        x);
  });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] { f(Tensor(t), Tensor(0.0f)).item<float>(); });
  threads.clear();
  Ints want(100);
  for (int i = 0; i < 100; ++i) want[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(seen[0], want);
  EXPECT_EQ(seen[1], want);
}

}  // namespace
}  // namespace postern
