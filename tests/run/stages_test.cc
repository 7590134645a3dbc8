// Programs cut at their calls: the same values, firings, orders and errors as compiled whole, also
// where no program can call back.
#include <fmt/format.h>

#include "support.h"

#include <cmath>
#include <filesystem>
#include <latch>

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::all_modes, test::error_of, test::has, test::run_program;
using Floats = std::vector<float>;

Tensor floats(const Floats& v) {
  return Tensor(type<float>({static_cast<std::int64_t>(v.size())}), v.data());
}

std::vector<std::string> kinds(const std::vector<StageInfo>& stages) {
  std::vector<std::string> out;
  for (const StageInfo& s : stages) out.push_back(s.kind);
  return out;
}
using Kinds = std::vector<std::string>;

TEST(Stages, CallsInAChainCutOnceMoreThanThereAreCalls) {
  RecordProperty("covers", "STAGE-03");
  auto f =
      jit([](Tensor x) { return test::host_plus_one(sin(test::host_plus_one(x * 2.0f))) - 1.0f; },
          {.mode = Mode::staged});
  EXPECT_EQ(kinds(f.stages(Tensor(1.0f))), (Kinds{"xla", "call", "xla", "call", "xla"}));
  EXPECT_FLOAT_EQ(f(Tensor(1.0f)).item<float>(), std::sin(3.0f));
}

TEST(Stages, CallsAtTheEndsAndAlone) {
  RecordProperty("covers", "STAGE-03");
  auto alone = jit([](Tensor x) { return test::host_plus_one(x); }, {.mode = Mode::staged});
  EXPECT_EQ(kinds(alone.stages(Tensor(1.0f))), (Kinds{"call"}));
  EXPECT_EQ(alone(Tensor(1.0f)).item<float>(), 2);
  auto head = jit([](Tensor x) { return exp(test::host_plus_one(x)); }, {.mode = Mode::staged});
  EXPECT_EQ(kinds(head.stages(Tensor(1.0f))), (Kinds{"call", "xla"}));
  EXPECT_FLOAT_EQ(head(Tensor(1.0f)).item<float>(), std::exp(2.0f));
  auto tail = jit([](Tensor x) { return test::host_plus_one(exp(x)); }, {.mode = Mode::staged});
  EXPECT_EQ(kinds(tail.stages(Tensor(1.0f))), (Kinds{"xla", "call"}));
  auto two = jit([](Tensor x) { return test::host_plus_one(test::host_plus_one(x)); },
                 {.mode = Mode::staged});
  EXPECT_EQ(kinds(two.stages(Tensor(1.0f))), (Kinds{"call", "call"}));
  EXPECT_EQ(two(Tensor(1.0f)).item<float>(), 3);
  auto none = jit([](Tensor x) { return x; }, {.mode = Mode::staged});
  EXPECT_TRUE(none.stages(Tensor(1.0f)).empty());
  EXPECT_EQ(none(Tensor(4.0f)).item<float>(), 4);
  auto constant = jit([](Tensor) { return full(type<float>({2}), 3.0); }, {.mode = Mode::staged});
  EXPECT_EQ(constant(Tensor(1.0f)).to_vector<float>(), (Floats{3, 3}));
}

TEST(Stages, IndependentCallsRunAtTheSameTime) {
  RecordProperty("covers", "STAGE-03");
  std::latch both(2);
  auto waits = [&](Tensor x) {
    return call(
        x.type(),
        [&both](float v) {
          both.arrive_and_wait();
          return v;
        },
        x);
  };
  auto f = jit([&](Tensor x) { return waits(x + 1.0f) * waits(x + 2.0f); }, {.mode = Mode::staged});
  EXPECT_EQ(kinds(f.stages(Tensor(1.0f))), (Kinds{"xla", "call", "call", "xla"}));
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 6);
}

TEST(Stages, OneOfSeveralFails) {
  auto fails = [](Tensor x, const char* text) {
    return call(
        {.name = text}, x.type(),
        [text](float v) -> float { return v > 1 ? throw std::runtime_error(text) : v; }, x);
  };
  auto f = jit([&](Tensor x) { return fails(x, "first") + fails(x + 5.0f, "second"); },
               {.mode = Mode::staged});
  const auto e = error_of<CallbackError>([&] { f(Tensor(0.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->site().name, "second");
  EXPECT_EQ(jit([&](Tensor x) { return fails(x, "first"); }, {.mode = Mode::staged})(Tensor(0.0f))
                .item<float>(),
            0);
}

TEST(Stages, CarryOnlyWhatIsNeeded) {
  RecordProperty("covers", "STAGE-04");
  auto f = jit(
      [](Tensor a, Tensor b, [[maybe_unused]] Tensor unused) {
        const Tensor hidden = exp(a);    // stays inside the first stage
        const Tensor crossing = sin(b);  // is needed after the call
        const Tensor y = test::host_plus_one(hidden + crossing);
        return std::pair{y * crossing, y};
      },
      {.mode = Mode::staged});
  const Tensor a(1.0f), b = ones(type<float>({3})), c = ones(type<double>({7}));
  const auto stages = f.stages(a, b, c);
  ASSERT_EQ(kinds(stages), (Kinds{"xla", "call", "xla"}));
  EXPECT_EQ(stages[0].inputs, (std::vector<Type>{type<float>(), type<float>({3})}));
  EXPECT_EQ(stages[0].outputs, (std::vector<Type>{type<float>({3}), type<float>({3})}));
  EXPECT_EQ(stages[2].inputs.size(), 2u);
  EXPECT_EQ(stages[2].outputs, (std::vector<Type>{type<float>({3})}));
  EXPECT_TRUE(stages[1].place.known());
  const auto [product, y] = f(a, b, c);
  EXPECT_FLOAT_EQ(y.to_vector<float>()[0], std::exp(1.0f) + std::sin(1.0f) + 1);
}

TEST(Stages, LoopsAndBranchesAreDrivenFromTheHost) {
  RecordProperty("covers", "STAGE-05 EVAL-02");
  for (const Mode mode : all_modes) {
    int calls = 0;
    auto counted = [&](Tensor x) {
      return call(
          {.effect = Effect::unordered}, x.type(),
          [&](float v) {
            ++calls;
            return v + 1;
          },
          x);
    };
    auto loop =
        jit([&](Tensor x) { return while_loop([](Tensor v) { return v < 10.0f; }, counted, x); },
            {.mode = mode});
    EXPECT_EQ(loop(Tensor(0.0f)).item<float>(), 10);
    EXPECT_EQ(calls, 10);
    if (mode == Mode::staged) {
      EXPECT_EQ(kinds(loop.stages(Tensor(0.0f))), (Kinds{"while"}));
    }
    calls = 0;
    auto branch = jit(
        [&](Tensor x) {
          return cond(
              x > 0.0f, counted, [](Tensor v) { return v * 3.0f; }, x);
        },
        {.mode = mode});
    EXPECT_EQ(branch(Tensor(1.0f)).item<float>(), 2);
    EXPECT_EQ(branch(Tensor(-1.0f)).item<float>(), -3);
    EXPECT_EQ(calls, 1);
    calls = 0;
    auto stacked = jit(
        [&](Tensor xs) {
          return scan(
              [&](Tensor carry, Tensor x) {
                const Tensor next = counted(carry * x);
                return std::pair{next, next * 2.0f};
              },
              Tensor(1.0f), xs);
        },
        {.mode = mode});
    const auto [last, ys] = stacked(floats({1, 2, 3}));
    EXPECT_EQ(last.item<float>(), 16);
    EXPECT_EQ(ys.to_vector<float>(), (Floats{4, 10, 32}));
    EXPECT_EQ(calls, 3);
  }
}

TEST(Stages, TapsAreCutOnlyWhereAsked) {
  RecordProperty("covers", "STAGE-06");
  if (test::skipped_in_stages("else taps are always cut")) return;
  Floats seen;
  const auto shown = [&](Tensor x) {
    const Tensor y = tap({.name = "v"}, sin(x), [&](float v) { seen.push_back(v); }) * 2.0f;
    return fori_loop(
        0, 3, [&](Tensor, Tensor v) { return hook("step", v) + 1.0f; }, y);
  };
  auto whole = jit(shown, {.mode = Mode::staged}).with_hooks({{"step", [&](float v) {
                                                                 seen.push_back(v);
                                                               }}});
  EXPECT_EQ(kinds(whole.stages(Tensor(1.0f))), (Kinds{"xla"}));
  const float y = whole(Tensor(1.0f)).item<float>();
  const Floats once = std::exchange(seen, {});
  EXPECT_EQ(once.size(), 4u);
  const auto at = [](std::string word) {
    return JitOptions{.mode = Mode::staged, .cut = [word](const StageNode& n) {
                        return n.operation == word ? Cut::both : Cut::none;
                      }};
  };
  auto at_taps = jit(shown, at("tap")).with_hooks({{"step", [&](float v) { seen.push_back(v); }}});
  EXPECT_EQ(kinds(at_taps.stages(Tensor(1.0f))), (Kinds{"xla", "tap", "xla"}));
  EXPECT_EQ(at_taps(Tensor(1.0f)).item<float>(), y);
  EXPECT_EQ(std::exchange(seen, {}), once);
  auto at_hooks =
      jit(shown, at("hook")).with_hooks({{"step", [&](float v) { seen.push_back(v); }}});
  EXPECT_EQ(kinds(at_hooks.stages(Tensor(1.0f))), (Kinds{"xla", "scan"}));
  EXPECT_EQ(at_hooks(Tensor(1.0f)).item<float>(), y);
  EXPECT_EQ(std::exchange(seen, {}), once);
}

TEST(Stages, ALoopWithoutCallsStaysWhole) {
  auto f = jit(
      [](Tensor x) {
        return test::host_plus_one(fori_loop(
            0, 5, [](Tensor, Tensor v) { return v * 2.0f; }, x));
      },
      {.mode = Mode::staged});
  EXPECT_EQ(kinds(f.stages(Tensor(1.0f))), (Kinds{"xla", "call"}));
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 33);
}

TEST(Stages, OrderIsKeptAcrossStages) {
  RecordProperty("covers", "STAGE-09");
  std::vector<std::string> expected;
  for (const Mode mode : all_modes) {
    std::vector<std::string> said;
    auto say = [&](Tensor x, std::string word) {
      return call(
          {.effect = Effect::ordered}, x.type(),
          [&said, word](float v) {
            said.push_back(fmt::format("{} {}", word, v));
            return v;
          },
          x);
    };
    auto f = jit(
        [&](Tensor x) {
          tap({.ordered = true}, x, [&](float v) { said.push_back(fmt::format("before {}", v)); });
          say(x * 100.0f, "aside");  // nothing needs it
          Tensor y = fori_loop(
              0, 3, [&](Tensor, Tensor v) { return say(v + 1.0f, "step"); }, x);
          return tap({.ordered = true}, y * 2.0f,
                     [&](float v) { said.push_back(fmt::format("after {}", v)); });
        },
        {.mode = mode});
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 8);
    barrier();
    if (expected.empty()) expected = said;
    EXPECT_EQ(said, expected);
  }
  EXPECT_EQ(expected, (std::vector<std::string>{"before 1", "aside 100", "step 2", "step 3",
                                                "step 4", "after 8"}));
}

TEST(Stages, TransformedBeforeTheyAreCut) {
  RecordProperty("covers", "STAGE-09");
  auto square = [](Tensor x) {
    return call_with_vjp(
        x.type(), [](float v) { return v * v; },
        [](View<const float> v, View<const float>, View<const float> ct, View<float> out) {
          out[0] = 2 * v[0] * ct[0];
        },
        x);
  };
  for (const Mode mode : all_modes) {
    auto g = jit(grad([&](Tensor x) { return square(sin(x)) * 3.0f; }), {.mode = mode});
    EXPECT_FLOAT_EQ(g(Tensor(0.5f)).item<float>(), 6 * std::sin(0.5f) * std::cos(0.5f));
    auto batch = jit(vmap([&](Tensor x) { return square(x) + 1.0f; }), {.mode = mode});
    EXPECT_EQ(batch(floats({1, 2, 3})).to_vector<float>(), (Floats{2, 5, 10}));
  }
}

TEST(Stages, ErrorsReadTheSameInEveryMode) {
  RecordProperty("covers", "STAGE-09");
  std::vector<std::string> texts;
  for (const Mode mode : all_modes) {
    auto f = jit(
        [](Tensor x) {
          return fori_loop(
              0, 5,
              [](Tensor, Tensor v) {
                return call(
                    {.name = "picky"}, v.type(),
                    [](float a) -> float {
                      return a > 2 ? throw std::domain_error("too large") : a + 1;
                    },
                    v);
              },
              x * 1.0f);
        },
        {.mode = mode});
    const auto e = error_of<CallbackError>([&] { f(Tensor(0.0f)).item<float>(); });
    ASSERT_TRUE(e);
    texts.push_back(e->what());
    EXPECT_EQ(f(Tensor(-3.0f)).item<float>(), 2) << "the next run works";
  }
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
}

TEST(Stages, WhatAFunctionRunsIsNotKept) {
  auto held = std::make_shared<int>(0);
  auto f = jit(
      [&](Tensor x) {
        return call(
            x.type(),
            [&](float v) {
              auto step = [&](Tensor, Tensor u) {
                return call(
                    u.type(), [held](float w) { return w + 1; }, u);
              };
              return fori_loop(0, 3, step, Tensor(v)).item<float>();
            },
            x);
      },
      {.mode = Mode::staged});
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 4);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Stages, CompilingOneToLookAtItChangesNothing) {
  if (test::skipped_in_stages("it looks at the one program")) return;
  for (const Mode mode : {Mode::staged, Mode::evaluate}) {
    auto f = jit([](Tensor x) { return test::host_plus_one(sin(x)); }, {.mode = mode});
    EXPECT_FALSE(f.compile(Tensor(1.0f)).optimized().empty());
    EXPECT_FLOAT_EQ(f(Tensor(1.0f)).item<float>(), std::sin(1.0f) + 1);
    EXPECT_FLOAT_EQ(f.start(Tensor(1.0f)).result().item<float>(), std::sin(1.0f) + 1);
  }
}

TEST(Stages, SeveralThreads) {
  auto f = jit([](Tensor x) { return test::host_plus_one(test::host_plus_one(x * 2.0f) * 2.0f); },
               {.mode = Mode::staged});
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i)
        if (f(Tensor(static_cast<float>(t))).item<float>() != static_cast<float>(4 * t + 3))
          ++wrong;
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

TEST(Stages, EqualPartsAreCompiledOnce) {
  RecordProperty("covers", "STAGE-07");
  const test::TemporaryFolder cache;
  const auto ended = run_program("stages_compiles", {}, {{"POSTERN_CACHE_DIR", cache.path()}});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  const auto files = std::filesystem::directory_iterator(cache.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "each compiled program is a file";
}

/// With the wrapped plug-in, as that platform.
void expect_stages(const char* asked, std::map<std::string, std::string> environment,
                   const std::string& platform) {
  environment.insert(
      {{"POSTERN_PLATFORM", asked}, {"POSTERN_PLUGIN", POSTERN_TEST_LIBRARIES "/no_ffi.so"}});
  const auto ended = run_program("stages_without_ffi", {}, environment);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_EQ(ended.err, "");
  for (const std::string& text : {std::string("loss 2.5\n"), std::string("call 'twice'"),
                                  "the plug-in for " + platform +
                                      " cannot call host functions from a compiled program; "
                                      "run it with Mode::staged",
                                  "on " + platform + ", calls back: 0"})
    EXPECT_TRUE(has(ended.out, text)) << ended.out;
}

TEST(Stages, APlugInWithoutHostFunctions) {
  RecordProperty("covers", "STAGE-01 STAGE-02");
  expect_stages("cpu", {}, "cpu");
}

TEST(Stages, AnyPlatformHasThem) {
  RecordProperty("covers", "STAGE-01 STAGE-02");
  for (const char* name : {"rocm", "imagined"}) {
    expect_stages(name, {{"TEST_PLATFORM_NAME", name}}, name);
    expect_stages(name, {{"TEST_PLATFORM_NAME", name}, {"TEST_WITH_FFI", "1"}}, name);
  }
  expect_stages("imagined", {}, "cpu");  // which it says it is
}

}  // namespace
}  // namespace postern
