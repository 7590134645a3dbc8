// Live hooks: asleep they do nothing; listeners come and go while a program runs.
#include "host/live_test.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <latch>
#include <numeric>

#include "run/compiled.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using test::counting, test::expect_error, test::has, test::only, test::Steps;
using Floats = std::vector<float>;

struct Seen {
  std::mutex guard;
  Floats values;
  auto listener() {
    return [this](float v) {
      std::scoped_lock lock(guard);
      values.push_back(v);
    };
  }
  Floats now() {
    std::scoped_lock lock(guard);
    return values;
  }
};

const Tensor zero(0.0f);

TEST(Live, ListenersComeAndGoInEveryMode) {
  for (const Mode mode : test::all_modes) {
    Steps steps;
    const auto f = counting(steps, 12, {.mode = mode});
    const auto run = f.start(zero);
    ASSERT_TRUE(steps.go_to(2));
    const LiveHook hook = only(hooks_of(run));
    EXPECT_EQ(hook.types(), (std::vector<Type>{type<float>({})}));
    EXPECT_EQ(hook.program(), "main");
    EXPECT_TRUE(has(to_string(hook.place()), "live_test.h"));
    EXPECT_FALSE(hook.has_own());
    Seen seen, later;
    Listening on = hook.turn_on(Callee(seen.listener()));
    ASSERT_TRUE(steps.go_to(5));
    Listening second = hook.turn_on(Callee(later.listener()));
    EXPECT_EQ(hook.listeners(), 2u);
    ASSERT_TRUE(steps.go_to(7));
    on.off();
    EXPECT_FALSE(on.is_on());
    ASSERT_TRUE(steps.go_to(9));
    second.off();
    steps.finish();
    EXPECT_EQ(run.result().item<float>(), 12);
    EXPECT_EQ(seen.now(), (Floats{3, 4, 5, 6, 7}));
    EXPECT_EQ(later.now(), (Floats{6, 7, 8, 9}));
    EXPECT_EQ(hook.listeners(), 0u);
  }
}

TEST(Live, EveryUntilAndTheirChange) {
  Steps steps;
  const auto run = counting(steps, 40).start(zero);
  ASSERT_TRUE(steps.go_to(0));
  const LiveHook hook = only(hooks_of(run));
  Seen third, first_two, changed;
  const Listening a = hook.turn_on(Callee(third.listener()), {.every = 3});
  const Listening b = hook.turn_on(Callee(first_two.listener()), {.every = 2, .until = 2});
  const Listening c = hook.turn_on(Callee(changed.listener()), {.every = 4});
  ASSERT_TRUE(steps.go_to(10));
  EXPECT_TRUE(a.is_on());
  EXPECT_FALSE(b.is_on());
  EXPECT_EQ(hook.listeners(), 2u) << "who has seen all that it wants is gone";
  c.change({.every = 10});
  EXPECT_EQ(c.options().every, 10);
  steps.finish();
  run.wait();
  EXPECT_EQ(third.now().front(), 1);
  EXPECT_EQ(third.now()[1], 4);
  EXPECT_EQ(third.now().size(), 14u);
  EXPECT_EQ(first_two.now(), (Floats{1, 3}));
  EXPECT_EQ(changed.now(), (Floats{1, 5, 9, 11, 21, 31}));
}

TEST(Live, TheProgramsOwnListenerCanBeChanged) {
  Steps steps;
  Seen own, other;
  const auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 20,
        [&](Tensor i, Tensor v) {
          steps.at(i);
          return hook("value", v + 1.0f, {.every = 2, .live = true}, own.listener());
        },
        x);
  });
  const auto run = f.start(zero);
  ASSERT_TRUE(steps.go_to(4));
  const LiveHook hook = only(hooks_of(run));
  EXPECT_TRUE(hook.has_own());
  const Listening on = hook.turn_on(Callee(other.listener()));
  hook.change({.every = 5});
  ASSERT_TRUE(steps.go_to(15));
  hook.change({.mode = TapMode::async, .keep_last = 1000});
  steps.finish();
  run.wait();
  barrier();
  EXPECT_EQ(own.now(), (Floats{1, 3, 5, 10, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(other.now().size(), 16u);
}

TEST(Live, AsynchronousListenersOutliveTheirBeingTurnedOff) {
  Steps steps;
  const auto run = counting(steps, 2000).start(zero);
  ASSERT_TRUE(steps.go_to(0));
  const LiveHook hook = only(hooks_of(run));
  std::promise<void> may;
  std::shared_future<void> waits = may.get_future().share();
  std::atomic<bool> inside{false};
  std::atomic<int> slow{0}, kept{0};
  std::atomic<std::uint64_t> dropped{0};
  Listening all = hook.turn_on(Callee([&, waits](const TapInfo&, float) {
                                 inside = true;
                                 waits.wait();
                                 ++slow;
                               }),
                               {.mode = TapMode::async});
  // What is delivered together with the first firing can't be lost any more.
  ASSERT_TRUE(steps.go_to(1));
  ASSERT_TRUE(test::wait_until([&] { return inside.load(); }));
  Listening last = hook.turn_on(Callee([&](const TapInfo& info, float) {
                                  ++kept;
                                  dropped = info.dropped;
                                }),
                                {.mode = TapMode::async, .keep_last = 3});
  ASSERT_TRUE(steps.go_to(100));
  last.change({.mode = TapMode::async, .every = 2, .keep_last = 1});
  ASSERT_TRUE(steps.go_to(200));
  EXPECT_EQ(kept, 0) << "they are delivered in order, behind the first one";
  may.set_value();
  ASSERT_TRUE(test::wait_until([&] { return slow == 200 && kept == 4; }));
  EXPECT_GT(dropped, 0u);
  all.off();
  last.off();
  steps.finish();
  run.wait();
  barrier();
  EXPECT_EQ(slow, 200);
}

TEST(Live, OffWaitsForWhoIsInsideButNotFromInside) {
  Steps steps;
  const auto run = counting(steps, 100).start(zero);
  ASSERT_TRUE(steps.go_to(0));
  const LiveHook hook = only(hooks_of(run));
  std::atomic<bool> inside{false}, left{false};
  std::optional<Listening> on = hook.turn_on(Callee([&](float) {
    inside = true;
    std::this_thread::sleep_for(100ms);
    left = true;
  }));
  std::thread allows([&] { steps.go_to(1); });
  ASSERT_TRUE(test::wait_until([&] { return inside.load(); }));
  on.reset();
  EXPECT_TRUE(left);
  allows.join();
  int fired = 0;
  Listening itself;
  itself = hook.turn_on(Callee([&](float) {
    if (++fired == 2) itself.off();
  }));
  steps.finish();
  EXPECT_EQ(run.wait(20s), RunStatus::done);
  EXPECT_EQ(fired, 2);
}

// Work that a listener shares out is inside of it too, on whichever thread.
TEST(Live, OffFromWorkThatIsSharedOut) {
  for (const TapMode mode : {TapMode::sync, TapMode::async}) {
    Steps steps;
    const auto run = counting(steps, 3).start(zero);
    ASSERT_TRUE(steps.go_to(0));
    const LiveHook hook = only(hooks_of(run));
    std::atomic<int> fired{0};
    Listening itself;
    itself = hook.turn_on(Callee([&](float) {
                            ++fired;
                            std::atomic<int> both{0};  // one is on another thread
                            parallel_for(2, [&](std::int64_t i) {
                              ++both;
                              test::wait_until([&] { return both == 2; });
                              if (i == 1) itself.off();
                            });
                          }),
                          {.mode = mode});
    steps.finish();
    EXPECT_EQ(run.wait(20s), RunStatus::done);
    EXPECT_EQ(barrier(20s), 0u);
    EXPECT_GE(fired, 1);
  }
}

/// Two listeners that are inside at once, and what each does to the other.
using TurnsOff = void (*)(Listening&);

TEST(Live, TwoThatTurnEachOtherOffFromInsideGoOn) {
  const TurnsOff ways_off[] = {[](Listening& other) { other.off(); },
                               [](Listening& other) { other = Listening(); },
                               [](Listening& other) { const Listening gone = std::move(other); }};
  for (const TapMode mode : {TapMode::sync, TapMode::async})
    for (const TurnsOff way : ways_off) {
      Steps steps;
      const auto f = counting(steps, 2);
      steps.finish();
      const auto first = f.start(zero);
      first.wait();
      const LiveHook hook = only(hooks_of(first));
      std::latch both(2);
      Listening a, b;
      std::atomic<int> seen{0};
      const auto turns_off = [&](Listening& other) {
        return Callee([&, way](float) {
          ++seen;
          both.arrive_and_wait();
          way(other);
        });
      };
      a = hook.turn_on(turns_off(b), {.mode = mode, .until = 1});
      const auto g = jit([=](Tensor x) { return postern::hook("other", x, {.live = true}); });
      g(zero).block_until_ready();
      b = live_hooks().back().turn_on(turns_off(a), {.until = 1});
      const auto r1 = f.start(zero);
      const auto r2 = g.start(zero);
      EXPECT_EQ(r1.wait(20s), RunStatus::done);
      EXPECT_EQ(r2.wait(20s), RunStatus::done);
      EXPECT_EQ(barrier(20s), 0u);
      EXPECT_EQ(seen, 2);
    }
}

TEST(Live, OneThatWaitsForARunInWhichItIsTurnedOffGoesOn) {
  const auto f = jit([](Tensor x) { return hook("waits", x, {.live = true}); });
  const auto g = jit([](Tensor x) { return hook("turns off", x, {.live = true}) + 1.0f; });
  f(zero).block_until_ready();
  const LiveHook waits = live_hooks().back();
  g(zero).block_until_ready();
  const LiveHook turns_off = live_hooks().back();
  Listening a, b;
  a = waits.turn_on(Callee([&](float) { g(zero).block_until_ready(); }));
  b = turns_off.turn_on(Callee([&](float) { a.off(); }));
  const auto run = f.start(zero);
  EXPECT_EQ(run.wait(20s), RunStatus::done);
}

TEST(Live, EndsThatAreAskedForSpeakOfTheRunThatPasses) {
  for (const Mode mode : test::all_modes) {
    const auto f =
        jit([](Tensor x) { return hook("end", x, {.live = true}) + 1.0f; }, {.mode = mode});
    f(zero).block_until_ready();
    const LiveHook hook = live_hooks().back();
    for (int i = 0; i < 3; ++i) hook.end_run();
    EXPECT_EQ(f.start(zero).wait(), RunStatus::stopped);
    EXPECT_EQ(hook.listeners(), 0u);
    EXPECT_EQ(f.start(zero).wait(), RunStatus::done) << "nobody spoke of this one";
    hook.end_run();
    EXPECT_EQ(f.start(zero).wait(), RunStatus::stopped);
  }
}

TEST(Live, WhatAListenerThrowsEndsTheRun) {
  Steps steps;
  const auto run = counting(steps, 100).start(zero);
  ASSERT_TRUE(steps.go_to(3));
  only(hooks_of(run)).turn_on(Callee([](float) { throw std::range_error("out of it"); })).keep();
  steps.finish();
  expect_error<CallbackError>([&] { run.wait(); }, {"hook 'value' at live_test.h", "out of it"});
}

TEST(Live, ARunIsEndedAndACheckpointWritten) {
  const auto folder = std::filesystem::temp_directory_path() / "postern_live_checkpoint";
  std::filesystem::remove_all(folder);
  Steps steps;
  const auto run = counting(steps, 100).start(zero);
  ASSERT_TRUE(steps.go_to(3));
  const LiveHook hook = only(hooks_of(run));
  hook.checkpoint(folder);
  ASSERT_TRUE(steps.go_to(5));
  EXPECT_EQ(hook.listeners(), 0u);
  hook.end_run();
  steps.finish();
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  barrier();
  EXPECT_EQ(resume<Tensor>(folder)->item<float>(), 4);
  std::filesystem::remove_all(folder);
}

TEST(Live, NothingIsCompiledAnewAndNothingIsCopied) {
  if (test::skipped_in_stages("it looks at the one program")) return;
  const auto f = [](bool live) {
    return jit([live](Tensor x) {
      Tensor y = tanh(x) * 2.0f;
      y = hook("y", y, {.ordered = false, .live = live});
      return y + 1.0f;
    });
  };
  const Tensor x = tensor<float>({1, 2, 3});
  const auto live = f(true), plain = f(false);
  const auto copies = [&](const auto& g) {
    const std::string text = g.compile(x).optimized();
    std::size_t n = 0;
    for (auto at = text.find(" copy("); at != std::string::npos; at = text.find(" copy(", at + 1))
      ++n;
    return n;
  };
  EXPECT_EQ(copies(live), copies(plain));
  EXPECT_TRUE(has(live.lower(x).stablehlo(), "postern_call"));
  EXPECT_FALSE(has(plain.lower(x).stablehlo(), "postern_call"));
  const auto* const code = &live.compile(x).internal()->executable();
  live(x);
  const LiveHook hook = only(live_hooks(), "y");
  int fired = 0;
  const Listening on = hook.turn_on(Callee([&](View<const float>) { ++fired; }));
  live(x).block_until_ready();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(&live.compile(x).internal()->executable(), code);
  EXPECT_EQ(f(true).lower(x).stablehlo(), live.lower(x).stablehlo());
}

TEST(Live, AllHooksOfAFunctionAreIfItSaysSo) {
  const auto inner = jit([](Tensor x) { return hook("inner", x * 2.0f); });
  const auto f = jit(
      [&](Tensor x) {
        return cond(
            x > 0.0f, [&](Tensor v) { return inner(hook("outer", v)); },
            [](Tensor v) { return hook("other", v); }, x);
      },
      {.name = "all", .live_hooks = true});
  f(Tensor(1.0f)).block_until_ready();
  std::vector<std::string> names;
  for (const LiveHook& h : live_hooks())
    if (h.program() == "all") names.push_back(h.name());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"inner", "other", "outer"}));
  for (const HookInfo& h : f.hooks(Tensor(1.0f))) EXPECT_TRUE(h.live) << h.name;
  EXPECT_FALSE(has(inner.lower(Tensor(1.0f)).stablehlo(), "postern_call"));
  Seen seen;
  for (const LiveHook& h : live_hooks())
    if (h.program() == "all") h.turn_on(Callee(seen.listener())).keep();
  f(Tensor(3.0f)).block_until_ready();
  f(Tensor(-1.0f)).block_until_ready();
  EXPECT_EQ(seen.now(), (Floats{3, 6, -1}));
}

TEST(Live, UnderTransformations) {
  const auto f = [](Tensor x) {
    return sum(square(hook("x", x, {.derivatives = true, .live = true})));
  };
  const auto g = jit(vmap(grad(f)), {.name = "transformed"});
  const Tensor x = reshape(iota<float>(6), {3, 2});
  const auto plain = g(x).to_vector<float>();
  std::map<std::string, int> shown;
  std::vector<Listening> on;
  for (const LiveHook& h : live_hooks())
    if (h.program() == "transformed")
      on.push_back(h.turn_on(Callee([&](const TapInfo& info, std::span<const AnyView>) {
        ++shown[to_string(info.transforms)];
      })));
  EXPECT_EQ(g(x).to_vector<float>(), plain);
  EXPECT_GE(shown.size(), 2u);
  for (const auto& [transforms, times] : shown) EXPECT_EQ(times, 1) << transforms;
  bool cotangents = false;
  for (const auto& [transforms, times] : shown) cotangents |= has(transforms, "transpose");
  EXPECT_TRUE(cotangents);
}

TEST(Live, WithALimitAndOnATape) {
  Seen seen, own;
  const auto f = jit([&](Tensor x) {
    Tensor y = hook("own", x + 1.0f, {.live = true}, own.listener());
    return hook("value", y * 2.0f, {.live = true});
  });
  f(zero).block_until_ready();
  const Listening on = only(live_hooks()).turn_on(Callee(seen.listener()));
  EXPECT_EQ(f.start_with({.deadline = 20s}, zero).result().item<float>(), 2);
  EXPECT_EQ(seen.now(), (Floats{2}));
  EXPECT_EQ(own.now(), (Floats{1, 1}));
  const auto file = std::filesystem::temp_directory_path() / "postern_live.recording";
  {
    const Taping recording = record(file);
    f(Tensor(2.0f)).block_until_ready();
  }
  EXPECT_EQ(seen.now(), (Floats{2, 6}));
  {
    const Taping again = replay(file);
    f(Tensor(2.0f)).block_until_ready();
  }
  EXPECT_EQ(own.now(), (Floats{1, 1, 3})) << "a replay calls nothing of the program's";
  EXPECT_EQ(seen.now(), (Floats{2, 6, 6})) << "but can be looked at";
  std::filesystem::remove(file);
}

TEST(Live, InSavedPrograms) {
  const auto f = jit([](Tensor x) {
    return fori_loop(
        0, 3, [](Tensor, Tensor v) { return hook("saved", v + 1.0f, {.live = true}); }, x);
  });
  const Loaded program = load_text(saved_text(f.lower(zero)));
  EXPECT_TRUE(program.required_functions().empty());
  EXPECT_EQ(program(zero)[0].item<float>(), 3);
  Seen seen;
  std::vector<Listening> on;
  for (const LiveHook& h : live_hooks())
    if (h.name() == "saved") on.push_back(h.turn_on(Callee(seen.listener())));
  ASSERT_EQ(on.size(), 1u) << "the function itself was only lowered";
  EXPECT_EQ(program(zero)[0].item<float>(), 3);
  EXPECT_EQ(seen.now(), (Floats{1, 2, 3}));
}

TEST(Live, ErrorsSayWhatIsWrong) {
  expect_error<TypeError>([] { tap({.name = "t", .live = true}, zero, [](float) {}); },
                          {"tap 't': live is for hooks"});
  std::optional<LiveHook> gone;
  Listening lost;
  {
    const auto f = jit([](Tensor x) { return hook("short", x + 1.0f, {.live = true}); });
    f(zero).block_until_ready();
    gone = only(live_hooks(), "short");
    lost = gone->turn_on(Callee([](float) {}));
    expect_error<TypeError>([&] { auto on = gone->turn_on(Callee([](int) {})); },
                            {"hook 'short'", "f32"});
    expect_error<TypeError>([&] { auto on = gone->turn_on(Callee([](float) {}), {.every = 0}); },
                            {"hook 'short': every must be positive, got 0"});
    expect_error<TypeError>(
        [&] { auto on = gone->turn_on(Callee([](float) {}), {.keep_last = 2}); },
        {"keep_last is for asynchronous"});
    expect_error<Error>([&] { auto on = gone->turn_on(Named{"live.nobody"}); },
                        {"no function is registered under 'live.nobody'"}, ErrorCode::not_found);
    expect_error<Error>([&] { gone->change({.every = 2}); }, {"no listener of its own"},
                        ErrorCode::failed_precondition);
    std::vector<Listening> all;
    for (int i = 1; i < 64; ++i) all.push_back(gone->turn_on(Callee([](float) {})));
    expect_error<Error>([&] { all.push_back(gone->turn_on(Callee([](float) {}))); },
                        {"64 listeners"}, ErrorCode::resource_exhausted);
  }
  EXPECT_FALSE(lost.is_on());
  expect_error<Error>([&] { auto on = gone->turn_on(Callee([](float) {})); },
                      {"the program that it is in is gone"}, ErrorCode::not_found);
  EXPECT_EQ(hook("outside", zero, {.live = true}).item<float>(), 0) << "nothing to switch";
}

TEST(Live, AListenerThatIsChangedWhileItsLastInvocationIsInsideStays) {
  const auto f = jit([](Tensor x) { return hook("value", x, {.live = true}); });
  f(zero).block_until_ready();
  std::atomic<int> entered = 0;
  std::atomic<bool> go_on = false;
  const auto run = f.start(zero);
  run.wait();
  const LiveHook hook = only(hooks_of(run));
  const auto listener = [&](float) {
    ++entered;
    EXPECT_TRUE(test::wait_until([&] { return go_on.load(); }));
  };
  const Listening on = hook.turn_on(Callee(listener), {.until = 1});
  const auto inside = f.start(zero);
  ASSERT_TRUE(test::wait_until([&] { return entered == 1; }));
  on.change({.until = 0});
  go_on = true;
  inside.wait();
  f(zero).block_until_ready();
  EXPECT_EQ(entered, 2);
  EXPECT_TRUE(on.is_on());
}

}  // namespace
}  // namespace postern
