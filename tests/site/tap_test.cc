// Taps that are synchronous: what fires, what is shown, and that nothing else changes.
#include <map>
#include "hlo.h"
#include "platform/cuda_fake.h"
#include "support.h"

#include <numeric>
#include <thread>

namespace postern {
using namespace internal;
namespace {

using test::each_field, test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;
using Ints = std::vector<int>;
using Words = std::vector<std::string>;

struct Pair {
  Tensor a, b;
};

/// How often each operation occurs in XLA's optimised program, outside fusions: there a copy costs
/// nothing. Module 1, computation 3, instruction 2; names are 1, opcodes 2.
template <class F, class... A>
std::map<std::string, std::size_t> optimized(const F& f, const A&... args) {
  const std::string code = f.compile(args...).optimized();
  std::map<std::string, std::size_t> counts;
  each_field(code, [&](int of_code, std::string_view module) {
    if (of_code != 1) return;
    each_field(module, [&](int of_module, std::string_view computation) {
      if (of_module != 3) return;
      std::vector<std::string> here;
      bool fused = false;
      each_field(computation, [&](int of_computation, std::string_view part) {
        if (of_computation == 1) fused = has(part, "fused");
        if (of_computation != 2) return;
        each_field(part, [&](int of_instruction, std::string_view text) {
          if (of_instruction == 2) here.emplace_back(text);
        });
      });
      if (!fused)
        for (const std::string& opcode : here) ++counts[opcode];
    });
  });
  return counts;
}
template <class F, class... A>
std::size_t count_optimized(const F& f, const std::string& opcode, const A&... args) {
  return optimized(f, args...)[opcode];
}

template <class F, class... A>
std::size_t count_lowered(const F& f, std::string_view text, const A&... args) {
  const std::string code = f.lower(args...).stablehlo();
  std::size_t count = 0;
  for (std::size_t at = code.find(text); at != std::string::npos; at = code.find(text, at + 1))
    ++count;
  return count;
}

TEST(Tap, PassesItsValueThroughInEveryMode) {
  RecordProperty("covers", "TAP-01 TAP-02");
  Floats seen;
  auto f = [&](Tensor x) {
    tap(x, [&](float v) { seen.push_back(v); });
    tap(x + 1.0f, [&](float v) { seen.push_back(v); });
    return tap(x * 2.0f, [&](float v) { seen.push_back(v); }) + 0.0f;
  };
  for (Mode mode : test::both_modes) {
    auto g = jit(f, {.mode = mode});
    for (float x : {1.0f, 10.0f}) EXPECT_EQ(g(Tensor(x)).item<float>(), 2 * x);
    EXPECT_EQ(std::exchange(seen, {}), (Floats{1, 2, 2, 10, 11, 20}));
  }
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(seen, (Floats{3, 4, 6}));
}

TEST(Tap, NothingConstantsAndProgramsWithoutInputs) {
  RecordProperty("covers", "TAP-04");
  int empty = 0;
  Ints seen;
  auto f = jit([&] {
    tap(std::tuple<>(), [&] { ++empty; });
    tap(std::vector<Tensor>(),
        [&](std::span<const AnyView> leaves) { empty += static_cast<int>(leaves.size()) + 1; });
    return tap(42, [&](std::int32_t v) { seen.push_back(v); });
  });
  EXPECT_EQ(f().item<std::int32_t>(), 42);
  EXPECT_EQ(f().item<std::int32_t>(), 42);
  EXPECT_EQ(empty, 4);
  EXPECT_EQ(seen, (Ints{42, 42}));
  tap(std::tuple<>(), [&] { ++empty; });
  EXPECT_EQ(empty, 5);
}

TEST(Tap, ContainersComeAsTheyWereWritten) {
  RecordProperty("covers", "TAP-05 TAP-03");
  Words seen;
  auto note = [&](const TapInfo& info, float a, float b) {
    seen.push_back(info.paths[0] + "=" + std::to_string(int(a)) + info.paths[1] + "=" +
                   std::to_string(int(b)));
  };
  auto f = jit([&](Tensor x) {
    auto m = tap(std::map<std::string, Tensor>{{"b", 3.0f * x}, {"a", 2.0f * x}}, note);
    auto [p, q] = tap(std::tuple{x, m["a"]}, note);
    Pair s = tap(Pair{p, q}, note);
    return 4.0f * s.a + m["b"] * 0.0f;
  });
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 12);
  EXPECT_EQ(seen, (Words{".a=6.b=9", "[0]=3[1]=6", ".a=3.b=6"}));
}

TEST(Tap, TheFunctionsResultIsIgnored) {
  RecordProperty("covers", "TAP-06");
  auto f = jit([](Tensor x) { return tap(x, [](float) { return 99; }); });
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 3);
}

TEST(Tap, IsTheDevicesOwnMemory) {
  if (!test::leaves_are_in_place()) GTEST_SKIP() << "leaves are copied to the host";
  RecordProperty("covers", "TAP-15");
  std::vector<const void*> seen;
  std::thread::id thread;
  bool ended = false;
  auto f = jit([&](Tensor x) {
    Tensor y = tap(x * 2.0f, [&](View<const float> v) { seen.push_back(v.data()); });
    y = call(
        {.effect = Effect::ordered}, y.type(),
        [&](View<const float> in, View<float> out) {
          seen.push_back(in.data());
          std::copy(in.begin(), in.end(), out.begin());
        },
        y);
    return tap(y, [&](View<const float>) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ended = true;
    });
  });
  f(zeros(type<float>({1000}))).block_until_ready();
  EXPECT_TRUE(ended) << "the program waited";
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], seen[1]) << "no copy between tap and call";
  tap(Tensor(1.0f), [&](float) { thread = std::this_thread::get_id(); });
  EXPECT_EQ(thread, std::this_thread::get_id()) << "where nothing is traced it fires at once, here";
}

TEST(Tap, AThrowingOneStopsTheRun) {
  RecordProperty("covers", "TAP-15");
  int later = 0;
  auto f = jit([&](Tensor x) {
    x = tap({.name = "picky"}, x, [](float v) {
      if (v < 0) throw std::out_of_range("below zero");
    });
    return tap(x, [&](float) { ++later; });
  });
  const auto e = error_of<CallbackError>([&] { f(Tensor(-1.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->site().name, "picky");
  for (const char* part : {"tap 'picky' at tap_test.cc:", "below zero"})
    EXPECT_TRUE(has(e->what(), part)) << e->what();
  EXPECT_TRUE(test::cause_of<std::out_of_range>(*e));
  EXPECT_EQ(later, 0);
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 1);
  EXPECT_EQ(later, 1);
}

TEST(Tap, AMapIsComputedBeforeSendingAndTheValueStaysWhole) {
  RecordProperty("covers", "TAP-16 TAP-03");
  float seen = 0;
  auto tapped = jit([&](Tensor x) {
    return tap({.map = [](Tensor v) { return sum(v); }}, x * 1.0f, [&](float v) { seen = v; });
  });
  Tensor x = tensor<float>({1, 2, 3});
  EXPECT_EQ(tapped(x).to_vector<float>(), (Floats{1, 2, 3}));
  EXPECT_EQ(seen, 6);
  EXPECT_TRUE(
      has(tapped.lower(x).stablehlo(), "(tensor<f32>, !stablehlo.token) -> (!stablehlo.token)"))
      << "4 bytes are sent, nothing comes back";
  expect_error<TypeError>([&] { tap({.map = [](Pair p) { return p.a; }}, x, [](float) {}); },
                          {"the map takes", "Pair", "postern::Tensor", "tap_test.cc"});
}

TEST(Tap, EveryKthFiring) {
  RecordProperty("covers", "TAP-17");
  Ints seen;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 100,
        [&](Tensor i, Tensor v) {
          return tap({.every = 25}, std::pair{i, v + 1.0f},
                     [&](std::int32_t step, float) { seen.push_back(step); })
              .second;
        },
        x);
  });
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 100);
  EXPECT_EQ(seen, (Ints{0, 25, 50, 75}));
  auto g = jit(
      [&](Tensor x) { return tap({.every = 3}, x, [&](std::int32_t v) { seen.push_back(v); }); });
  seen.clear();
  for (int i = 0; i < 7; ++i) g(Tensor(i));
  barrier();
  EXPECT_EQ(seen, (Ints{0, 3, 6})) << "counted over all runs";
  expect_error<TypeError>([] { tap({.every = 0}, Tensor(1.0f), [](float) {}); },
                          {"every must be positive"});
}

TEST(Tap, TheFirstFirings) {
  Ints seen;
  auto f = jit([&](Tensor x) {
    return tap({.every = 2, .until = 3}, x, [&](std::int32_t v) { seen.push_back(v); });
  });
  for (int i = 0; i < 20; ++i) f(Tensor(i));
  barrier();
  EXPECT_EQ(seen, (Ints{0, 2, 4})) << "three of every second";
  seen.clear();
  auto g = jit([&](Tensor x) {
    return tap({.mode = TapMode::async, .until = 2}, x, [&](std::int32_t v) { seen.push_back(v); });
  });
  for (int i = 0; i < 5; ++i) EXPECT_EQ(g(Tensor(i)).item<std::int32_t>(), i);
  barrier();
  EXPECT_EQ(seen, (Ints{0, 1}));
  expect_error<TypeError>([] { tap({.until = -1}, Tensor(1.0f), [](float) {}); },
                          {"until must not be negative"});
}

TEST(Tap, CopiesThatTransformationsMakeCountForThemselves) {
  std::map<std::string, Floats> seen;
  const auto show = [&](const TapInfo& info, float v) {
    seen[to_string(info.transforms) + (info.recomputed ? "again" : "")].push_back(v);
  };
  auto slope = jit(grad([&](Tensor x) {
    return tap(
        {.derivatives = true, .every = 2}, x * x,
        [&](const TapInfo& info, std::span<const AnyView> v) { show(info, v[0].as<float>()[0]); });
  }));
  for (const float x : {1.0f, 2.0f, 3.0f, 4.0f}) EXPECT_EQ(slope(x).item<float>(), 2 * x);
  EXPECT_EQ(seen[""], (Floats{1, 9}));
  EXPECT_EQ(seen["jvp,transpose"], (Floats{1, 1}));
  seen.clear();
  auto twice = jit(grad(checkpoint([&](Tensor x) { return sin(tap({.until = 1}, x * x, show)); })));
  for (const float x : {1.0f, 2.0f}) twice(x).block_until_ready();
  EXPECT_EQ(seen[""], Floats{1});
  EXPECT_EQ(seen["again"], Floats{1});
}

TEST(Tap, ParametersAreCheckedWhileTracing) {
  expect_error<TypeError>(
      [] {
        jit([](Tensor x) { return tap({.name = "t"}, x, [](View<const double>) {}); })(
            Tensor(1.0f));
      },
      {"tap 't'", "f64", "f32[]", "tap_test.cc"});
  expect_error<TypeError>(
      [] { jit([](Tensor x) { return tap(x, [](float, float) {}); })(Tensor(1.0f)); },
      {"2 parameters", "1 operand "});
  expect_error<TypeError>(
      [] { jit([](Tensor x) { return tap(x, [](float, View<float>) {}); })(Tensor(1.0f)); },
      {"parameters"});
  expect_error<TypeError>([] { tap({.keep_last = 3}, Tensor(1.0f), [](float) {}); },
                          {"keep_last is for asynchronous taps"});
}

TEST(Tap, ShowsDerivativesOnRequest) {
  Words seen;
  auto f = [&](Tensor x) {
    return 3.0f *
           tap({.derivatives = true}, x * x, [&](const TapInfo& info, std::span<const AnyView> v) {
             std::string text = to_string(info.transforms) + ":";
             for (const AnyView& leaf : v) text += " " + std::to_string(int(leaf.as<float>()[0]));
             seen.push_back(text);
           });
  };
  EXPECT_EQ(jit(grad(f))(Tensor(2.0f)).item<float>(), 12);
  EXPECT_EQ(std::exchange(seen, {}), (Words{": 4", "jvp,transpose: 3"}));
  jvp(f, std::tuple{Tensor(2.0f)}, std::tuple{Tensor(1.0f)});
  barrier();
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_EQ(seen[0], "jvp: 4 4");
}

TEST(Tap, ADeadlineOfTheRunDoesNotHideWhichElementsAreAlive) {
  std::vector<bool> alive;
  const auto f = jit(vmap([&](Tensor x) {
    const auto tapped = [&](Tensor v) {
      return tap(v, [&](const TapInfo& info, View<const float>) {
        alive.assign(info.mask.begin(), info.mask.end());
      });
    };
    return cond(
        x > 1.5f, tapped, [](Tensor v) { return v; }, x);
  }));
  const std::vector<bool> wanted{false, true, true};
  const Tensor x = tensor<float>({1, 2, 3});
  f(x).block_until_ready();
  EXPECT_EQ(alive, wanted);
  alive.clear();
  f.start_with({.deadline = std::chrono::hours(1)}, x).wait();
  EXPECT_EQ(alive, wanted);
}

TEST(Tap, OnceForABatchAndOnlyWhereTheCodeIsAlive) {
  Words seen;
  auto f = jit(vmap([&](Tensor x) {
    return cond(
        x > 1.5f,
        [&](Tensor v) {
          return tap(v * 2.0f, [&](const TapInfo& info, View<const float> b) {
            std::string text = to_string(info.transforms);
            for (std::int64_t i = 0; i < b.size(); ++i)
              text += info.mask.empty() || info.mask[static_cast<std::size_t>(i)]
                          ? " " + std::to_string(int(b[i]))
                          : " -";
            seen.push_back(text);
          });
        },
        [](Tensor v) { return v; }, x);
  }));
  EXPECT_EQ(f(tensor<float>({1, 2, 3})).to_vector<float>(), (Floats{1, 4, 6}));
  EXPECT_EQ(seen, (Words{"batch(0) - 4 6"}));
}

// --- what XLA makes of it ---

const auto ignores = [](AnyView) {};

TEST(TapCopies, NoneWhereverTheValueComesFrom) {
  if (test::skipped_in_stages("it looks at the one program")) return;
  const Tensor x = zeros(type<float>({1000}));
  auto check = [&](const char* what, auto untapped, auto tapped) {
    const auto f = jit(untapped), g = jit(tapped);
    EXPECT_EQ(count_optimized(g, "copy", x), count_optimized(f, "copy", x)) << what;
    EXPECT_GE(count_optimized(g, "custom-call", x), 1u) << what;
    EXPECT_EQ(count_optimized(f, "custom-call", x), 0u) << what;
    EXPECT_EQ(g.compile(x).temporary_bytes() > f.compile(x).temporary_bytes() + 4000, false)
        << what;
  };
  check(
      "computed", [](Tensor v) { return sin(v) * 2.0f; },
      [](Tensor v) { return tap(sin(v), ignores) * 2.0f; });
  check(
      "argument", [](Tensor v) { return sin(v); }, [](Tensor v) { return sin(tap(v, ignores)); });
  check(
      "argument returned",
      [](Tensor v) {
        return std::pair{v, sin(v)};
      },
      [](Tensor v) {
        return std::pair{tap(v, ignores), sin(v)};
      });
  check(
      "unused", [](Tensor v) { return sort(v); },
      [](Tensor v) {
        tap(sort(v), ignores);
        return sort(v);
      });
  check(
      "used before and after",
      [](Tensor v) {
        v = sort(v);
        return v + sort(v);
      },
      [](Tensor v) {
        v = sort(v);
        Tensor w = sort(v);
        return tap(v, ignores) + w;
      });
  check(
      "used by its old name",
      [](Tensor v) {
        v = sort(v);
        return v + sort(v);
      },
      [](Tensor v) {
        v = sort(v);
        return tap(v, ignores) + sort(v);
      });
  check(
      "twice", [](Tensor v) { return sort(v); },
      [](Tensor v) { return tap(tap(sort(v), ignores), ignores); });
  auto loop = [](auto step) {
    return [=](Tensor v) {
      return fori_loop(
          0, 10, [=](Tensor, Tensor c) { return step(c); }, v * 2.0f);
    };
  };
  check("carry", loop([](Tensor c) { return c + 1.0f; }),
        loop([](Tensor c) { return tap(c, ignores) + 1.0f; }));
  check("next carry", loop([](Tensor c) { return c + 1.0f; }),
        loop([](Tensor c) { return tap(c + 1.0f, ignores); }));
  check("into a loop", loop([](Tensor c) { return c + 1.0f; }), [](Tensor v) {
    return fori_loop(
        0, 10, [=](Tensor, Tensor c) { return c + 1.0f; }, tap(v * 2.0f, ignores));
  });
  auto branch = [](auto then) {
    return [=](Tensor v) {
      return cond(
          sum(v) > 0.0f, then, [](Tensor w) { return w * 3.0f; }, sort(v));
    };
  };
  check("branch", branch([](Tensor w) { return w + 1.0f; }),
        branch([](Tensor w) { return tap(w, ignores) + 1.0f; }));
}

/// What carries no data or moves none.
bool is_plumbing(const std::string& opcode) {
  for (const char* free : {"custom-call", "after-all", "tuple", "get-tuple-element", "bitcast",
                           "parameter", "constant"})
    if (opcode == free) return true;
  return false;
}

TEST(TapCopies, TheOptimisedProgramDiffersByTheCustomCallsAlone) {
  if (test::skipped_in_stages("it looks at the one program")) return;
  const Tensor x = zeros(type<float>({64, 64}));
  auto network = [](bool tapped) {
    return [tapped](Tensor v) {
      auto show = [&](const char* name, Tensor t) {
        return tapped ? tap({.name = name}, t, ignores) : t;
      };
      v = show("input", v);
      v = fori_loop(
          0, 3, [&](Tensor, Tensor c) { return show("activation", tanh(dot(c, c) + 1.0f)); }, v);
      v = cond(
          sum(v) > 0.0f, [&](Tensor w) { return show("sorted", sort(w)); },
          [](Tensor w) { return w * 2.0f; }, v);
      return show("output", sum(v));
    };
  };
  auto plain = optimized(jit(network(false)), x), tapped = optimized(jit(network(true)), x);
  EXPECT_EQ(tapped["custom-call"] - plain["custom-call"], 4u);
  std::erase_if(plain, [](const auto& entry) { return is_plumbing(entry.first); });
  std::erase_if(tapped, [](const auto& entry) { return is_plumbing(entry.first); });
  EXPECT_EQ(tapped, plain) << "no copy, and what was one fusion is one";
}

TEST(TapCopies, InsideAFusionOnlyTheCutItself) {
  if (test::skipped_in_stages("it looks at the one program")) return;
  const Tensor x = zeros(type<float>({1000}));
  auto plain = optimized(jit([](Tensor v) { return exp(sin(v) * 2.0f) + 1.0f; }), x);
  auto tapped = optimized(jit([](Tensor v) { return exp(tap(sin(v) * 2.0f, ignores)) + 1.0f; }), x);
  EXPECT_EQ(plain["fusion"], 1u);
  EXPECT_EQ(tapped["fusion"], 2u) << "one on each side";
  EXPECT_EQ(tapped["copy"], plain["copy"]);
}

TEST(TapCopies, EachLeafIsHandedOnInPlace) {
  RecordProperty("covers", "IR-06");
  if (test::skipped_in_stages("it looks at the one program")) return;
  const Tensor x = zeros(type<float>({16 << 20})).block_until_ready();
  auto f = jit([](Tensor v) {
    const auto [a, b] =
        tap(std::pair{v + 1.0f, v * 2.0f}, [](View<const float>, View<const float>) {});
    return sum(a * b) + sum(a);
  });
  EXPECT_EQ(count_lowered(f, "output_operand_alias<", x), 2u);
  EXPECT_EQ(optimized(f, x)["copy"], 0u);
}

TEST(TapCopies, AnUnusedTapGivesNothingBack) {
  const Tensor x(1.0f);
  auto f = jit([](Tensor v) {
    tap(v * 2.0f, ignores);
    return v;
  });
  EXPECT_EQ(count_lowered(f, "output_operand_alias", x), 0u);
  EXPECT_EQ(count_lowered(f, "custom_call", x), 1u);
  auto g = jit([](Tensor v) { return tap(v * 2.0f, ignores); });
  EXPECT_EQ(count_lowered(g, "output_operand_aliases", x), 1u);
}

TEST(TapCopies, TappedProgramsKeepTheirValues) {
  // The custom call hands on memory that XLA may reuse afterwards: what was seen and what comes out
  // must be right all the same.
  Floats sums;
  auto total = [&](View<const float> v) {
    sums.push_back(std::accumulate(v.begin(), v.end(), 0.0f));
  };
  auto f = jit([&](Tensor v) {
    Tensor a = tap(v + 1.0f, total), b = tap(a * 2.0f, total);
    a = fori_loop(
        0, 3, [&](Tensor, Tensor c) { return tap(c, total) + b; }, a);
    return tap(std::pair{a, v},
               [&](View<const float> s, View<const float> t) {
                 total(s);
                 total(t);
               })
               .first +
           b;
  });
  EXPECT_EQ(f(full(type<float>({4}), 1.0f)).to_vector<float>(), Floats(4, 2 + 3 * 4 + 4));
  EXPECT_EQ(sums, (Floats{8, 16, 8, 24, 40, 56, 4}));
}

}  // namespace
}  // namespace postern
