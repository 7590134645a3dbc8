// Hooks: who runs the program decides what listens.
#include <atomic>
#include <sstream>

#include "run/compiled.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using test::expect_error, test::has;
using Floats = std::vector<float>;
using Words = std::vector<std::string>;

struct Step {
  Tensor a, b;
  int index = 7;
  std::string kept = "d";
};

TEST(Hook, FiresWithItsDefaultInEveryMode) {
  RecordProperty("covers", "HOOK-01 HOOK-07");
  Floats seen;
  auto f = [&](Tensor a, Tensor b) {
    return hook("sum", a + b, [&](float v) { seen.push_back(v); });
  };
  for (Mode mode : {Mode::automatic, Mode::evaluate})
    EXPECT_EQ(jit(f, {.mode = mode})(Tensor(1.0f), Tensor(2.0f)).item<float>(), 3);
  EXPECT_EQ(f(Tensor(1.0f), Tensor(2.0f)).item<float>(), 3);
  EXPECT_EQ(seen, (Floats{3, 3, 3}));
}

TEST(Hook, AReplacementHoldsForThatFunctionOnly) {
  RecordProperty("covers", "HOOK-02");
  Words seen;
  auto note = [&](const char* who) {
    return [&seen, who](float v) { seen.push_back(who + std::to_string(int(v))); };
  };
  auto f = jit([&](Tensor x) { return hook("sum", x * 2.0f, note("default")); });
  const Tensor x(1.0f);
  auto g1 = f.with_hooks({{"sum", note("one")}}), g2 = f.with_hooks({{"sum", note("two")}});
  g1(x);
  g2(x);
  f(x);
  g1(x);
  barrier();
  EXPECT_EQ(seen, (Words{"one2", "two2", "default2", "one2"}));
  EXPECT_EQ(g1.lower(x).stablehlo(), f.lower(x).stablehlo()) << "one text is compiled once";
  if (plugin_info().calls_back) {
    EXPECT_EQ(&g1.compile(x).internal()->executable(), &g2.compile(x).internal()->executable());
  }
  auto g3 = g1.with_hooks({{"sum", note("three")}});
  EXPECT_EQ(g3(x).item<float>(), 2);
  EXPECT_EQ(seen.back(), "three2") << "the last one given";
}

TEST(Hook, NobodyListensNothingIsThere) {
  RecordProperty("covers", "HOOK-03");
  int fired = 0;
  auto f = jit([&](Tensor x) { return hook("quiet", x + 1.0f); });
  EXPECT_EQ(f.lower(Tensor(0.0f)).stablehlo(),
            jit([](Tensor x) { return x + 1.0f; }).lower(Tensor(0.0f)).stablehlo());
  f(Tensor(0.0f)).item<float>();
  f.with_hooks({{"quiet", [&](float) { ++fired; }}})(Tensor(0.0f)).item<float>();
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(hook("quiet", Tensor(2.0f)).item<float>(), 2);
}

TEST(Hook, ANameMayRepeat) {
  RecordProperty("covers", "HOOK-05");
  std::vector<std::pair<float, std::uint32_t>> seen;
  auto f = jit([&](Tensor i, Tensor b) {
    return switch_(i,
                   std::tuple{[](Tensor v) { return hook("branch", v / 2.0f); },
                              [](Tensor v) { return hook("branch", v * 2.0f); },
                              [](Tensor v) { return hook("branch", v * 4.0f); }},
                   b);
  });
  auto g = f.with_hooks(
      {{"branch", [&](const TapInfo& info, float v) { seen.emplace_back(v, info.place.line); }}});
  for (int i = 0; i < 3; ++i) g(Tensor(i), Tensor(4.0f)).item<float>();
  ASSERT_EQ(seen.size(), 3u);
  EXPECT_EQ(seen[0].first, 2);
  EXPECT_EQ(seen[1].first, 8);
  EXPECT_EQ(seen[2].first, 16);
  EXPECT_EQ(f.hooks(Tensor(0), Tensor(4.0f)).front().name, "branch");
}

TEST(Hook, TwiceUnderOneNameInAStraightProgram) {
  RecordProperty("covers", "HOOK-05");
  std::vector<std::pair<float, std::uint32_t>> seen;
  auto f = jit([](Tensor x) {
    x = hook("h", x + 1.0f);
    return hook("h", x * 10.0f);
  });
  f.with_hooks({{"h", [&](const TapInfo& info,
                          float v) { seen.emplace_back(v, info.place.line); }}})(Tensor(0.0f))
      .item<float>();
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].first, 1);
  EXPECT_EQ(seen[1].first, 10);
  EXPECT_EQ(seen[1].second, seen[0].second + 1);
  EXPECT_EQ(f.hooks(Tensor(0.0f)).size(), 2u);
}

TEST(Hook, InScanWhileAndBranchesUnderEveryTransformation) {
  Words seen;
  auto note = [&](const TapInfo& info, std::span<const AnyView> v) {
    seen.push_back(std::string(info.name) + "(" + to_string(info.transforms) + ") " +
                   std::to_string(v[0].size()));
  };
  auto f = [](Tensor x) {
    x = scan(
            [](Tensor c, Tensor v) {
              return std::pair{hook("scan", c + v), c};
            },
            x, tensor<float>({1, 2}))
            .first;
    return cond(
        x > 100.0f, [](Tensor v) { return hook("then", v); },
        [](Tensor v) { return hook("else", v * v); }, x);
  };
  auto run = [&](auto g, Tensor x) {
    g.with_hooks({{"scan", note}, {"then", note}, {"else", note}})(x).block_until_ready();
    return std::exchange(seen, {});
  };
  const Words once{"scan() 1", "scan() 1", "else() 1"};
  EXPECT_EQ(run(jit(f), Tensor(1.0f)), once);
  EXPECT_EQ(run(jit(grad(f)), Tensor(1.0f)), once) << "forward only, once";
  EXPECT_EQ(
      run(jit([&](Tensor x) { return jvp(f, std::tuple{x}, std::tuple{x}).second; }), Tensor(1.0f)),
      once);
  EXPECT_EQ(run(jit(vmap(f)), tensor<float>({1, 2, 3})),
            (Words{"scan(batch(0)) 3", "scan(batch(0)) 3", "else(batch(0)) 3"}));
  EXPECT_EQ(run(jit(vmap(f)), tensor<float>({1, 200, 3})),
            (Words{"scan(batch(0)) 3", "scan(batch(0)) 3", "else(batch(0)) 3", "then(batch(0)) 3"}))
      << "both, since each is taken by some";
  EXPECT_EQ(run(jit(vmap(grad(f))), tensor<float>({1, 2, 3})),
            (Words{"scan(batch(0)) 3", "scan(batch(0)) 3", "else(batch(0)) 3"}));
  auto loop = [](Tensor x) {
    return while_loop([](Tensor v) { return v < 10.0f; },
                      [](Tensor v) { return hook("scan", v * 2.0f); }, x);
  };
  jit(loop).with_hooks({{"scan", note}})(Tensor(3.0f)).item<float>();
  EXPECT_EQ(std::exchange(seen, {}), (Words{"scan() 1", "scan() 1"}));
}

TEST(Hook, UnknownNamesAreRefused) {
  RecordProperty("covers", "HOOK-06");
  auto f = jit([](Tensor x) { return hook("out", hook("hidden", x) + 1.0f); });
  auto wrong = [](float) {};
  expect_error<TypeError>(
      [&] {
        f.with_hooks({{"hiden", wrong}})(Tensor(0.0f));
      },
      {"'hiden'", "[hidden, out]", "hook_test.cc"});
  expect_error<TypeError>(
      [&] {
        f.with_hooks({{"hiden", wrong}}).lower(Tensor(0.0f));
      },
      {"'hiden'"});
  EXPECT_EQ(f.with_hooks({{"hiden", wrong}}, {.allow_unknown = true})(Tensor(0.0f)).item<float>(),
            1);
  expect_error<TypeError>(
      [&] {
        f.with_hooks({{"out", wrong}, {"out", wrong}});
      },
      {"two listeners", "'out'"});
}

TEST(Hook, AnAmbientListenerWhereNothingIsTraced) {
  RecordProperty("covers", "HOOK-07");
  Words seen;
  auto f = [&](Tensor x) { return hook("h", x, [&](float) { seen.push_back("default"); }); };
  {
    ScopedHooks scope({{"h", [&](float) { seen.push_back("ambient"); }}});
    f(Tensor(1.0f));
    jit(f)(Tensor(1.0f)).item<float>();
  }
  f(Tensor(1.0f));
  EXPECT_EQ(seen, (Words{"ambient", "default", "default"})) << "compiled programs keep theirs";
}

TEST(Hook, ContainersKeepTheirStructure) {
  RecordProperty("covers", "HOOK-08");
  Words paths;
  auto f = jit([&](Tensor x) {
    Step s = hook("step", Step{x, x + 1.0f});
    EXPECT_EQ(s.index, 7);
    EXPECT_EQ(s.kept, "d");
    return s.a + s.b;
  });
  auto g = f.with_hooks({{"step", [&](const TapInfo& info, float a, float b) {
                            paths.assign(info.paths.begin(), info.paths.end());
                            EXPECT_EQ(a + 1, b);
                          }}});
  EXPECT_EQ(g(Tensor(1.0f)).item<float>(), 3);
  EXPECT_EQ(paths, (Words{".a", ".b"}));
}

TEST(Hook, ListenersAreCheckedAgainstTheHooksTypes) {
  RecordProperty("covers", "HOOK-14");
  int fired = 0;
  auto f = jit([](Tensor x) { return hook("pair", x); });
  expect_error<TypeError>(
      [&] {
        f.with_hooks({{"pair", [&](std::int32_t) { ++fired; }}})(tensor<float>({1, 2}));
      },
      {"hook 'pair'", "s32", "f32[2]"});
  EXPECT_EQ(fired, 0);
}

TEST(Hook, ListsWhatAProgramHas) {
  auto f = jit([](Tensor x) {
    x = hook("first", std::pair{x, x}).first;
    x = fori_loop(
        0, 3, [](Tensor, Tensor v) { return hook("inside", v, [](float) {}); }, x);
    return hook("last", x);
  });
  const std::vector<HookInfo> hooks = f.hooks(Tensor(1.0f));
  ASSERT_EQ(hooks.size(), 3u);
  EXPECT_EQ(hooks[0].name, "first");
  EXPECT_EQ(hooks[0].types, (std::vector{type<float>(), type<float>()}));
  EXPECT_EQ(hooks[0].paths, (Words{"[0]", "[1]"}));
  EXPECT_FALSE(hooks[0].has_default);
  EXPECT_TRUE(hooks[1].has_default);
  EXPECT_TRUE(has(hooks[2].place.file, "hook_test.cc"));
}

TEST(Hook, ThroughTransformationsAndControlFlow) {
  Words seen;
  auto inner = jit([](Tensor x) { return hook("inner", x * 2.0f); });
  auto note = [&](const TapInfo& info, std::span<const AnyView> v) {
    seen.push_back(std::string(info.name) + "(" + to_string(info.transforms) + ")" +
                   std::to_string(v[0].size()));
  };
  auto body = [&](Tensor x) {
    return hook("outer", fori_loop(
                             0, 2, [&](Tensor, Tensor v) { return inner(v); }, x));
  };
  auto run = [&](auto f, Tensor x) {
    f.with_hooks({{"inner", note}, {"outer", note}})(x).block_until_ready();
    return std::exchange(seen, {});
  };
  EXPECT_EQ(run(jit(body), Tensor(1.0f)), (Words{"inner()1", "inner()1", "outer()1"}));
  EXPECT_EQ(run(jit(grad(body)), Tensor(1.0f)), (Words{"inner()1", "inner()1", "outer()1"}));
  EXPECT_EQ(run(jit(vmap(body)), zeros(type<float>({3}))),
            (Words{"inner(batch(0))3", "inner(batch(0))3", "outer(batch(0))3"}));

  // Who runs the program decides: a jitted function's own listeners give way to those of the
  // function that calls it.
  auto with_own = inner.with_hooks({{"inner", [&](float) { seen.push_back("own"); }}});
  auto calls = jit([&](Tensor x) { return with_own(x); });
  calls(Tensor(1.0f)).item<float>();
  calls.with_hooks({{"inner", note}})(Tensor(1.0f)).item<float>();
  EXPECT_EQ(seen, (Words{"own", "inner()1"}));
  expect_error<TypeError>(
      [&] { jit([&](Tensor x) {
              return inner.with_hooks({{"none", note}})(x);
            })(Tensor(1.0f)); },
      {"no hook 'none'", "[inner]"});
}

TEST(Hook, OptionsAreThoseOfATap) {
  Floats seen;
  auto f = jit([](Tensor x) {
    return fori_loop(
        0, 6,
        [](Tensor, Tensor v) {
          return hook({.name = "h",
                       .mode = TapMode::async,
                       .every = 2,
                       .map = [](Tensor t) { return sum(t); }},
                      v + 1.0f);
        },
        x);
  });
  Tensor x = tensor<float>({1, 2});
  EXPECT_FALSE(has(f.program(x).text(), "reduce")) << "without listener nothing is mapped either";
  f.with_hooks({{"h", [&](float v) { seen.push_back(v); }}})(x);
  barrier();
  EXPECT_EQ(seen, (Floats{5, 9, 13}));
}

TEST(HookStream, ShowsEventsThenTheResult) {
  RecordProperty("covers", "HOOK-12");
  auto f = jit([](Tensor x) {
    Tensor y = hook("plus_ten", hook("double", x * 2.0f) + 10.0f);
    return y - 6.0f - x;
  });
  Tensor x = tensor<std::int32_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  auto g = jit([](Tensor v) { return hook("plus_ten", hook("double", v * 2) + 10) - v - 5; });
  auto stream = g.stream({}, x);
  std::vector<std::pair<std::string, std::vector<std::int32_t>>> events;
  for (const HookEvent& e : stream)
    events.emplace_back(e.name, e.values[0].to_vector<std::int32_t>());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0],
            (std::pair{std::string("double"), std::vector<std::int32_t>{2, 4, 6, 8, 10, 12}}));
  EXPECT_EQ(events[1], (std::pair{std::string("plus_ten"),
                                  std::vector<std::int32_t>{12, 14, 16, 18, 20, 22}}));
  EXPECT_EQ(stream.result().to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{6, 7, 8, 9, 10, 11}));

  auto a = f.stream({"double"}, Tensor(1.0f)), b = f.stream({"double"}, Tensor(2.0f));
  EXPECT_EQ(b.next()->values[0].item<float>(), 4);
  EXPECT_EQ(a.next()->values[0].item<float>(), 2);
  EXPECT_FALSE(a.next());
  EXPECT_EQ(b.result().item<float>(), 6);
  expect_error<TypeError>([&] { f.stream({"trebble"}, Tensor(1.0f)); }, {"'trebble'"});
}

TEST(HookStream, AbandonedTheProgramGoesOn) {
  RecordProperty("covers", "HOOK-12");
  std::atomic<int> steps = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 5000,
        [&](Tensor, Tensor v) { return tap(hook("h", v + 1.0f), [&](float) { ++steps; }); }, x);
  });
  {
    auto stream = f.stream({"h"}, Tensor(0.0f));
    EXPECT_EQ(stream.next()->values[0].item<float>(), 1);
    EXPECT_FALSE(test::wait_until([&] { return steps > 2000; }, 100ms))
        << "the program waits for its reader";
  }
  barrier();
  EXPECT_EQ(steps, 5000);
  auto stream = f.stream({"h"}, Tensor(0.0f));
  EXPECT_EQ(stream.result().item<float>(), 5000);
}

/// A thousand hooks and more, whose listeners come later.
auto many_later() {
  return jit([](Tensor x) {
    return fori_loop(
        0, 3000,
        [](Tensor, Tensor v) { return hook({.name = "later", .mode = TapMode::async}, v + 1.0f); },
        x);
  });
}

TEST(HookStream, AsynchronousHooksLoseNothing) {
  RecordProperty("covers", "HOOK-12");
  std::atomic<bool> go = false;
  auto f = jit([&](Tensor x) {
    x = tap({.mode = TapMode::async}, x,
            [&](float) { test::wait_until([&] { return go.load(); }); });
    return hook({.name = "later", .mode = TapMode::async}, x * 2.0f);
  });
  auto stream = f.stream({"later"}, Tensor(1.0f));
  EXPECT_EQ(stream.run().wait(), RunStatus::done);
  std::jthread slow([&] {
    std::this_thread::sleep_for(20ms);
    go = true;
  });
  const auto event = stream.next();
  ASSERT_TRUE(event);
  EXPECT_EQ(event->values[0].item<float>(), 2);
  EXPECT_FALSE(stream.next());

  int events = 0;
  for (auto all = many_later().stream({}, Tensor(0.0f)); all.next();) ++events;
  EXPECT_EQ(events, 3000);
}

TEST(HookStream, AsynchronousHooksWaitForNobodyAfterTheRun) {
  RecordProperty("covers", "HOOK-12");
  const auto f = many_later();
  auto unread = f.stream({}, Tensor(0.0f)), read = f.stream({}, Tensor(0.0f));
  int events = 0;
  while (read.next()) ++events;
  EXPECT_EQ(events, 3000) << "those of the other stream are not in the way";
  EXPECT_EQ(unread.run().wait(), RunStatus::done);
  EXPECT_EQ(barrier(20s), 0u);
  EXPECT_TRUE(unread.next());

  bool ended = false;
  jit([&](Tensor x) {
    return tap({.mode = TapMode::async}, x, [&](float) {
      auto stream = f.stream({}, Tensor(0.0f));
      while (stream.next()) {
      }
      ended = true;
    });
  })(Tensor(1.0f));
  EXPECT_EQ(barrier(20s), 0u);
  EXPECT_TRUE(ended) << "a listener does not wait for the queue that is being delivered to it";
}

TEST(HookStream, EndsWhenTheRunFails) {
  auto f = jit(
      [](Tensor x) { return tap(hook("h", x), [](float) { throw std::runtime_error("no"); }); });
  auto stream = f.stream({"h"}, Tensor(0.0f));
  EXPECT_TRUE(stream.next());
  EXPECT_FALSE(stream.next());
  expect_error<CallbackError>([&] { stream.result(); }, {"no"});
}

TEST(Hook, RunsCarryTheirOwnContextAndSink) {
  RecordProperty("covers", "HOOK-13");
  std::atomic<int> foreign = 0, fired = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 50,
        [&](Tensor, Tensor v) {
          v = hook({.name = "h", .mode = TapMode::async}, v, [&](const TapInfo& info, float seen) {
            ++fired;
            foreign += *static_cast<int*>(info.context) != int(seen);
          });
          print("{}", v);
          return v;
        },
        x);
  });
  int a = 1, b = 2;
  std::ostringstream to_a, to_b;
  auto run_a = f.start_with({.context = &a, .sink = &to_a}, Tensor(1.0f));
  auto run_b = f.start_with({.context = &b, .sink = &to_b}, Tensor(2.0f));
  run_a.wait();
  run_b.wait();
  barrier();
  EXPECT_EQ(fired, 100);
  EXPECT_EQ(foreign, 0);
  EXPECT_EQ(to_a.str().find('2'), std::string::npos);
  EXPECT_EQ(to_b.str().find('1'), std::string::npos);
  EXPECT_EQ(to_a.str().size(), 100u);
}

TEST(Hook, AListenerMayEndTheRun) {
  int steps = 0;
  auto f = jit([&](Tensor x) {
    return while_loop([](Tensor v) { return v < 1e6f; },
                      [](Tensor v) { return hook("step", v + 1.0f); }, x);
  });
  auto run = f.with_hooks({{"step",
                            [&](const TapInfo& info, float) {
                              if (++steps == 5) info.end_run();
                            }}})
                 .start(Tensor(0.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  EXPECT_EQ(steps, 5);
}

}  // namespace
}  // namespace postern
