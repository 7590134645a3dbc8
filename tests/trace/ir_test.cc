// Programs: how they print and lower, what can be read from them, and that broken ones are refused.
#include "core/primitive.h"
#include "core/program.h"
#include "support.h"

#include <sstream>

namespace postern {
using namespace internal;
namespace {

using test::expect_error, test::has;

/// A program with a call of each kind of effect and a loop.
auto sample() {
  return jit(
      [](Tensor x) {
        auto [a, b] = call(
            {.name = "pair", .timeout = std::chrono::milliseconds(250)},
            std::pair(x.type(), type<int>()),
            [](float v, View<float> r, View<int> n) {
              r[0] = v;
              n[0] = 1;
            },
            x);
        call(
            {.name = "seen", .effect = Effect::unordered}, std::tuple<>(), [](int) {}, b);
        return call({.name = "named", .effect = Effect::ordered}, x.type(),
                    Named{"ir_test.f", {{"factor", 3}, {"word", "w"}}}, a);
      },
      {.name = "sample"});
}

TEST(Ir, GoldenText) {
  RecordProperty("covers", "IR-01");
  const std::string text = sample().program(abstract(type<float>())).text();
  EXPECT_EQ(
      text,
      "sample(%0: f32[]) {\n"
      "  %1: f32[], %2: s32[] = call[name=pair, effect=pure, results=(f32[], s32[]), "
      "result_structure=(*,*,), timeout=250ms] %0  @ ir_test.cc:18\n"
      "  call[name=seen, effect=unordered, result_structure=()] %2  !unordered  @ ir_test.cc:26\n"
      "  %3: f32[] = call[name=named, effect=ordered, results=(f32[]), result_structure=*, "
      "function=ir_test.f{factor = 3, word = \"w\"}] "
      "%1  !ordered  @ ir_test.cc:28\n"
      "  return %3\n"
      "}\n");
}

TEST(Ir, TextIsStable) {
  RecordProperty("covers", "IR-01");
  const Tensor x = abstract(type<float>());
  EXPECT_EQ(sample().program(x).text(), sample().program(x).text());
  EXPECT_EQ(sample().lower(x).stablehlo(), sample().lower(x).stablehlo());
  EXPECT_FALSE(has(sample().program(x).text(), "0x"));
  EXPECT_FALSE(has(sample().lower(x).stablehlo(), "0x"));
  std::ostringstream out;
  out << sample().program(x);
  EXPECT_EQ(out.str(), to_string(sample().program(x)));
}

TEST(Ir, EffectsAreListed) {
  RecordProperty("covers", "IR-04");
  auto f = jit([](Tensor x) {
    call(
        {.name = "pure"}, x.type(), [](float v) { return v; }, x);
    call(
        {.name = "once", .effect = Effect::unordered}, std::tuple<>(), [](float) {}, x);
    Tensor y = fori_loop(
        0, 3,
        [](Tensor, Tensor v) {
          return call(
              {.name = "looped", .effect = Effect::ordered}, v.type(), [](float u) { return u; },
              v);
        },
        x);
    return cond(
        x > 0.0f,
        [](Tensor v) {
          return call(
              {.name = "chosen", .effect = Effect::ordered}, v.type(), [](float u) { return u; },
              v);
        },
        [](Tensor v) { return v; }, y);
  });
  const auto effects = f.program(abstract(type<float>())).effects();
  ASSERT_EQ(effects.size(), 3u);
  EXPECT_EQ(effects[0].site.name, "once");
  EXPECT_EQ(effects[0].effect, Effect::unordered);
  EXPECT_EQ(effects[0].kind, "call");
  EXPECT_FALSE(effects[0].in_loop);
  EXPECT_EQ(effects[1].site.name, "looped");
  EXPECT_TRUE(effects[1].in_loop);
  EXPECT_EQ(effects[2].site.name, "chosen");
  EXPECT_EQ(effects[2].effect, Effect::ordered);
  EXPECT_FALSE(effects[2].in_loop);
  for (const EffectInfo& e : effects) EXPECT_TRUE(has(to_string(e.site.place), "ir_test.cc:"));
}

TEST(Ir, CallsLowerToTypedCustomCalls) {
  RecordProperty("covers", "IR-05");
  auto text = [](Effect effect) {
    return jit([=](Tensor x) {
             return call(
                 {.name = "label \"quoted\"\n", .effect = effect}, x.type(),
                 [](float v) { return v; }, x);
           })
        .lower(abstract(type<float>()))
        .stablehlo();
  };
  for (Effect effect : {Effect::pure, Effect::unordered, Effect::ordered}) {
    const std::string t = text(effect);
    EXPECT_TRUE(has(t, "stablehlo.custom_call") && has(t, "api_version = 4") &&
                has(t, "postern_call") && has(t, "label"))
        << t;
    EXPECT_EQ(has(t, "has_side_effect = true"), effect != Effect::pure) << t;
    EXPECT_EQ(has(t, "token"), effect == Effect::ordered) << t;
    EXPECT_FALSE(has(t, "infeed") || has(t, "outfeed"));
  }
  auto f = jit([](Tensor x) {
    return call(
        {.name = "label \"quoted\" \\ \n\t\x01 \xc3\xbc"}, x.type(), [](float v) { return v + 1; },
        x);
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2) << "any name compiles";
}

/// A traced program changed by hand.
template <class Change>
TracedProgram broken(Change change) {
  Program p = *jit([](Tensor x) {
                 return call(
                            {.name = "site"}, x.type(), [](float v) { return v; }, sin(x)) *
                        2.0f;
               })
                   .program(abstract(type<float>()))
                   .internal();
  change(p);
  return TracedProgram(std::make_shared<const Program>(std::move(p)));
}
Equation& equation(Program& p, const std::string& name) {
  for (Equation& e : p.equations)
    if (e.primitive->name == name) return e;
  throw std::logic_error("no " + name);
}

TEST(Ir, BrokenProgramsAreRefused) {
  RecordProperty("covers", "IR-15");
  EXPECT_NO_THROW(broken([](Program&) {}).verify());
  expect_error<TypeError>(
      [] {
        broken([](Program& p) {
          p.types[std::size_t(equation(p, "sin").first)] = type<double>();
        }).verify();
      },
      {"sin", "f64[]", "f32[]", "ir_test.cc"});
  expect_error<TypeError>(
      [] {
        broken([](Program& p) {
          p.types[std::size_t(equation(p, "call").first)] = type<float>({2});
        }).verify();
      },
      {"call", "f32[2]", "f32[]"});
  expect_error<TypeError>(
      [] {
        broken([](Program& p) { p.types[std::size_t(p.inputs[0])] = type<float>({3}); }).verify();
      },
      {"sin", "f32[3]"});
  expect_error<TypeError>(
      [] {
        broken([](Program& p) {
          equation(p, "sin").operands[0] = equation(p, "multiply").first;
        }).verify();
      },
      {"sin", "before"});
  expect_error<TypeError>(
      [] {
        broken([](Program& p) { std::swap(p.equations.front(), p.equations.back()); }).verify();
      },
      {"before"});
  expect_error<TypeError>([] { broken([](Program& p) { p.outputs[0] = 99; }).verify(); },
                          {"return", "99"});
  expect_error<TypeError>([] { broken([](Program& p) { p.outputs[0] = -1; }).verify(); },
                          {"return"});
  expect_error<TypeError>(
      [] { broken([](Program& p) { equation(p, "call").operands.clear(); }).verify(); },
      {"site", "operands"});
  expect_error<TypeError>(
      [] { broken([](Program& p) { equation(p, "call").results = 2; }).verify(); }, {"call", "2"});
}

TEST(Ir, InputsOutOfRangeOfABrokenProgram) {
  expect_error<TypeError>([] { broken([](Program& p) { p.inputs.push_back(1000); }).verify(); },
                          {"1000"});
  expect_error<TypeError>(
      [] { broken([](Program& p) { equation(p, "sin").first = 5000; }).verify(); }, {"sin"});
}

}  // namespace
}  // namespace postern
