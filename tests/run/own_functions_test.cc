// RunOptions::hooks and ::functions: what one run has for itself.
#include <postern/postern.h>

#include <atomic>

#include "support.h"

namespace postern::test {
namespace {

Jitted<std::function<Tensor(Tensor)>> of(Mode mode) {
  return jit(std::function<Tensor(Tensor)>([](Tensor x) {
               hook("shown", x, [](float) { FAIL() << "another function is given"; });
               const Tensor y = hook("live", x * 2.0f, {.live = true});
               return cond(
                   y > 0.0f, [](Tensor v) { return call(v.type(), Named{"own_functions.f"}, v); },
                   [](Tensor v) { return v; }, y);
             }),
             {.mode = mode});
}

TEST(OwnFunctions, AreEnteredInEveryMode) {
  for (const Mode mode : test::all_modes) {
    const auto f = of(mode);
    float shown = 0, live = 0;
    RunOptions options;
    options.hooks = {{"shown", [&](float v) { shown = v; }}, {"live", [&](float v) { live = v; }}};
    options.functions = {{"own_functions.f", [](float v) { return v + 1; }}};
    EXPECT_EQ(f.start_with(options, 3.0f).result().item<float>(), 7);
    EXPECT_EQ(shown, 3);
    EXPECT_EQ(live, 6);
  }
}

TEST(OwnFunctions, OfRunsAtOnceDoNotMix) {
  const auto f = jit([](Tensor x) { return hook("live", x, {.live = true}); });
  std::vector<std::atomic<int>> seen(16);
  std::vector<postern::Run<Tensor>> runs;
  for (int i = 0; i < 16; ++i) {
    RunOptions options;
    options.hooks = {{"live", [&seen, i](int v) { seen[static_cast<std::size_t>(i)] += v; }}};
    runs.push_back(f.start_with(options, i + 1));
  }
  for (const auto& run : runs) run.wait();
  for (int i = 0; i < 16; ++i) EXPECT_EQ(seen[static_cast<std::size_t>(i)], i + 1);
}

TEST(OwnFunctions, ThatDoNotFitAreATypeErrorBeforeTheRun) {
  const auto f = jit([](Tensor x) { return hook("live", x, {.live = true}); });
  const auto start = [&](HookBinding given) {
    RunOptions options;
    options.hooks.push_back(std::move(given));
    f.start_with(options, 1.0f);
  };
  expect_error<TypeError>(
      [&] {
        start({"other", [](float) {}});
      },
      {"no hook 'other'", "[live]", "own_functions_test.cc"});
  expect_error<TypeError>([&] { start({"live", [](double) {}}); }, {"live", "f64", "f32"});
  expect_error<TypeError>([&] { start({"live", Named{"some.name"}}); }, {"not another name"});
}

TEST(OwnFunctions, GoWithTheRunAlsoWhereItDoesNotBegin) {
  const auto f = jit([](Tensor x) {
    hook("live", x, {.live = true});
    return call(x.type(), Named{"own_functions.none"}, x);
  });
  const auto held = std::make_shared<int>(0);
  RunOptions options;
  options.hooks = {{"live", [held](float) {}}};
  const auto run = f.start_with(options, 1.0f);
  options.hooks.clear();
  expect_error<CallbackError>([&] { run.wait(); }, {"own_functions.none"}, ErrorCode::unregistered);
  for (int i = 0; i < 1000 && held.use_count() > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(held.use_count(), 1) << "while the run's handle is held";
}

TEST(OwnFunctions, OfAHookWithOtherSettingsGoWithTheRun) {
  const auto f =
      jit([](Tensor x) { return hook("live", x, {.live = true}, [](const TapInfo&, float) {}); });
  const auto first = f.start(0.0f);
  first.wait();
  ASSERT_EQ(hooks_of(first).size(), 1u);
  hooks_of(first).front().change({.mode = TapMode::async});
  const auto held = std::make_shared<std::atomic<int>>(0);
  RunOptions options;
  options.hooks = {{"live", [held](float) { ++*held; }}};
  const auto run = f.start_with(options, 1.0f);
  options.hooks.clear();
  run.wait();
  barrier();
  EXPECT_EQ(*held, 1);
  for (int i = 0; i < 1000 && held.use_count() > 1; ++i) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(held.use_count(), 1) << "while the hook lives";
}

}  // namespace
}  // namespace postern::test
