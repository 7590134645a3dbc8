// Blocks: defaults, overrides, their choice and removal, derivatives and batching, FFI targets.
#include <xla/ffi/api/ffi.h>

#include "hlo.h"
#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using test::has;
using Floats = std::vector<float>;

struct Scale {
  static constexpr std::string_view name = "scale";
  double factor = 1;
};
Tensor scale(const Tensor& x, double factor) {
  return block(
      Scale{factor}, [](const Scale& s, Tensor v) { return v * s.factor; }, x);
}

/// A kernel that counts its firings.
OverrideHandle native_scale(int& fired, std::optional<VmapMethod> batch = {}) {
  return override_block<Scale>(
      {.platform = "cpu",
       .kernel =
           [&fired](const Scale& s, View<const float> in, View<float> out) {
             ++fired;
             for (std::int64_t i = 0; i < in.size(); ++i)
               out[i] = in[i] * static_cast<float>(s.factor);
           },
       .batch = batch});
}

/// Removes its override at the end of a test.
struct Removed {
  OverrideHandle handle;
  ~Removed() { handle.remove(); }
};

TEST(Block, RunsItsDefault) {
  RecordProperty("covers", "BLOCK-01");
  const Tensor x = tensor<float>({1, 2});
  auto f = [](Tensor v) { return scale(v, 3); };
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{3, 6}));
  EXPECT_EQ(jit(f)(x).to_vector<float>(), (Floats{3, 6}));
  EXPECT_EQ(jit(f, {.mode = Mode::evaluate})(x).to_vector<float>(), (Floats{3, 6}));
}

TEST(Block, AnOverrideTakesItsPlaceUntilItIsRemoved) {
  RecordProperty("covers", "BLOCK-02");
  int fired = 0;
  auto f = jit([](Tensor v) { return scale(v, 3); });
  const Tensor x = tensor<float>({1, 2});
  EXPECT_FALSE(has(f.lower(x).stablehlo(), "custom_call"));
  const auto handle = native_scale(fired);
  EXPECT_TRUE(has(f.lower(x).stablehlo(), "custom_call"));
  EXPECT_FALSE(has(f.lower(x).stablehlo(), "multiply"));
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{3, 6}));
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(scale(x, 2).to_vector<float>(), (Floats{2, 4}));
  EXPECT_EQ(fired, 2);
  EXPECT_EQ(
      jit([](Tensor v) { return scale(v, 5); }, {.mode = Mode::evaluate})(x).to_vector<float>(),
      (Floats{5, 10}));
  EXPECT_EQ(fired, 3);
  EXPECT_TRUE(handle.active());
  EXPECT_TRUE(handle.remove());
  EXPECT_FALSE(handle.remove());
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{3, 6}));
  EXPECT_EQ(fired, 3);
}

TEST(Block, AnotherPlatformsOverrideIsLeftAlone) {
  RecordProperty("covers", "BLOCK-02 BLOCK-12");
  const Removed handle{override_block<Scale>({.platform = "cuda", .target = "cuda_scale"})};
  const Tensor x = tensor<float>({1, 2});
  EXPECT_EQ(jit([](Tensor v) { return scale(v, 3); })(x).to_vector<float>(), (Floats{3, 6}));
  EXPECT_EQ(block_path(Scale{3}, {x.type()}, "cuda").kind, BlockPath::Kind::native);
  const BlockPath path = block_path(Scale{3}, {x.type()});
  EXPECT_EQ(path.kind, BlockPath::Kind::default_body);
  EXPECT_TRUE(has(path.text, "scale{factor = 3} for (f32[2]) on cpu: default")) << path.text;
  EXPECT_TRUE(has(path.text, "target cuda_scale declines: it is for cuda")) << path.text;
}

TEST(Block, APlatformThatThereIsNotIsAnError) {
  RecordProperty("covers", "BLOCK-02 BLOCK-12");
  const Tensor x = tensor<float>({1, 2});
  auto f = jit([](Tensor v) { return scale(v, 3); });
  const auto refused = [](auto&& act, std::string_view what) {
    expect_error<TypeError>(act, {what, "'rocm' is no known platform", "known are cpu, cuda"});
  };
  refused([] { override_block<Scale>({.platform = "rocm", .target = "t"}); },
          "override_block 'scale'");
  refused([&] { block_path(Scale{3}, {x.type()}, "rocm"); }, "block_path");
  refused([&] { f.program(x).text("rocm"); }, "text");
  refused([] { ffi_handlers("rocm"); }, "ffi_handlers");
  const auto handler = [](XLA_FFI_CallFrame*) -> XLA_FFI_Error* { return nullptr; };
  refused([&] { register_ffi_handler("block_test_rocm", handler, "rocm"); },
          "register_ffi_handler 'block_test_rocm'");
  EXPECT_TRUE(has(block_path(Scale{3}, {x.type()}).text, "no override is registered"))
      << "one that was refused is not kept";
}

TEST(Block, TheLatestThatAcceptsIsTaken) {
  RecordProperty("covers", "BLOCK-03 BLOCK-12");
  int first = 0, second = 0;
  const Removed a{native_scale(first)};
  const Removed b{override_block<Scale>(
      {.when = [](const Scale& s,
                  std::span<const Type> x) { return s.factor > 2 && x[0].rank() == 1; },
       .kernel =
           [&second](const Scale&, AnyView in, AnyMutableView out) {
             ++second;
             std::copy_n(in.data(), in.byte_size(), out.data());
           }})};
  scale(tensor<float>({1}), 3);
  EXPECT_EQ(second, 1);
  scale(tensor<float>({1}), 2);
  EXPECT_EQ(first, 1);
  // The first one's kernel is for f32: f64 takes the default.
  EXPECT_EQ(scale(Tensor(1.5), 3).item<double>(), 4.5);
  EXPECT_EQ(first + second, 2);
  EXPECT_TRUE(
      has(block_path(Scale{1}, {type<double>()}).text, "its kernel is for f32, operand 0 is f64"));
  EXPECT_TRUE(has(block_path(Scale{1}, {type<float>()}).text, "native"));
}

struct Never {
  int x = 0;
};
TEST(Block, PathOfABlockThatNobodyHas) {
  RecordProperty("covers", "BLOCK-12");
  EXPECT_EQ(block_path(Never{}, {type<float>()}).kind, BlockPath::Kind::none);
}

TEST(Block, FieldsTellBlocksApart) {
  RecordProperty("covers", "BLOCK-04");
  const auto program =
      jit([](Tensor x) { return scale(x, 3) + scale(x, 4) + scale(x, 3); }).program(Tensor(1.0f));
  EXPECT_TRUE(has(program.text(), "scale{factor = 3}")) << program;
  EXPECT_TRUE(has(program.text(), "scale{factor = 4}")) << program;
  EXPECT_EQ(program.equations(), 4u) << "equal blocks are one: " << program;
  program.verify();
}

TEST(Block, OtherDefaultsDoNotMix) {
  auto with = [](float by) {
    return jit([by](Tensor x) {
      return block(
          Scale{1}, [by](Tensor v) { return v + by; }, x);
    })(Tensor(1.0f));
  };
  EXPECT_EQ(with(1).item<float>(), 2);
  EXPECT_EQ(with(5).item<float>(), 6);
}

TEST(Block, ResultsAreCheckedAgainstADeclaration) {
  RecordProperty("covers", "BLOCK-05");
  const Tensor x = tensor<float>({1, 2});
  auto twice = [](Tensor v) { return v * 2.0f; };
  expect_error<TypeError>([&] { block_like(type<int>({7}), Scale{}, twice, x); },
                          {"scale", "s32[7]", "f32[2]"});
  EXPECT_EQ(block_like(type<float>({2}), Scale{}, twice, x).to_vector<float>(), (Floats{2, 4}));
}

struct Parts {
  std::string mode = "a";
  std::vector<int> axes = {0, 1};
  DType dtype = DType::bf16;
};
TEST(Block, OperandsAndResultsAreContainers) {
  RecordProperty("covers", "BLOCK-06");
  using Map = std::map<std::string, Tensor>;
  auto f = [](Tensor x) {
    return block(
        Parts{},
        [](const Parts&, std::pair<Tensor, Tensor> p, Tensor n) {
          return Map{{"a", p.first * n}, {"b", p.second}};
        },
        std::pair{x, x + 1.0f}, 2.0f);
  };
  const Map out = jit(f)(Tensor(3.0f));
  EXPECT_EQ(out.at("a").item<float>(), 6);
  EXPECT_EQ(out.at("b").item<float>(), 4);
  EXPECT_TRUE(
      has(jit(f).program(Tensor(3.0f)).text(), "{axes = [0, 1], dtype = \"bf16\", mode = \"a\"}"));
}

TEST(Block, DerivativesAreTheDefaults) {
  RecordProperty("covers", "BLOCK-07");
  int fired = 0;
  for (const bool native : {false, true}) {
    const Removed handle{native ? native_scale(fired) : OverrideHandle()};
    auto f = [](Tensor x) { return scale(x * x, 3); };
    EXPECT_EQ(grad(f)(Tensor(3.0f)).item<float>(), 18);
    EXPECT_EQ(jit(grad(f))(Tensor(3.0f)).item<float>(), 18);
    EXPECT_EQ(jit(grad(grad(f)))(Tensor(3.0f)).item<float>(), 6);
    auto cubed = [](Tensor x) {
      return block(
          Scale{3}, [](Tensor v) { return v * v * v; }, x);
    };
    EXPECT_EQ(jit(grad(grad(cubed)))(Tensor(2.0f)).item<float>(), 12);
    EXPECT_EQ(jit(hessian(cubed))(Tensor(2.0f)).item<float>(), 12);
    EXPECT_EQ(jit(grad([&](Tensor x) { return jvp(cubed, x, Tensor(1.0f)).second; }))(Tensor(2.0f))
                  .item<float>(),
              12);
  }
  EXPECT_GT(fired, 0);
}

TEST(Block, StaysABlockUnderDerivatives) {
  int fired = 0;
  const Removed handle{native_scale(fired)};
  auto f = jit(value_and_grad([](Tensor x) { return sum(scale(tanh(x), 3)); }));
  const auto [y, slope] = f(tensor<float>({0, 0}));
  EXPECT_EQ(fired, 1) << f.program(tensor<float>({0, 0}));
  EXPECT_EQ(slope.to_vector<float>(), (Floats{3, 3}));
}

TEST(Block, CapturedTensorsAreDifferentiatedToo) {
  auto f = [](Tensor x, Tensor w) {
    return block(
        Scale{2}, [&](Tensor v) { return v * w; }, x);
  };
  EXPECT_EQ(jit(grad<1>(f))(Tensor(3.0f), Tensor(5.0f)).item<float>(), 3);
  EXPECT_EQ(jit(vmap(f, {.in_axes = {unmapped, 0}}))(Tensor(3.0f), tensor<float>({1, 2}))
                .to_vector<float>(),
            (Floats{3, 6}));
}

OverrideHandle scale_with_vjp(int& forward, int& backward) {
  return override_block<Scale>(
      {.kernel =
           [](const Scale& s, View<const float> in, View<float> out) {
             for (std::int64_t i = 0; i < in.size(); ++i)
               out[i] = in[i] * static_cast<float>(s.factor);
           },
       .vjp = {
           .forward =
               [&forward](const Scale& s, std::span<const Tensor> x) {
                 const float by = static_cast<float>(s.factor);
                 const Tensor y = call(
                     x[0],
                     [&forward, by](View<const float> in, View<float> out) {
                       ++forward;
                       for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * by;
                     },
                     x[0]);
                 return std::pair{std::vector<Tensor>{y}, std::vector<Tensor>{}};
               },
           .backward =
               [&backward](const Scale& s, std::span<const Tensor>, std::span<const Tensor> ct) {
                 const float by = static_cast<float>(s.factor);
                 return std::vector<Tensor>{call(
                     ct[0],
                     [&backward, by](View<const float> in, View<float> out) {
                       ++backward;
                       for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * by;
                     },
                     ct[0])};
               }},
       .batch = VmapMethod::broadcast_all});
}

TEST(Block, AnOverrideBringsItsOwnDerivative) {
  RecordProperty("covers", "BLOCK-08");
  int forward = 0, backward = 0;
  const Removed handle{scale_with_vjp(forward, backward)};
  auto f = [](Tensor x) { return sum(scale(x, 3)); };
  auto both = jit(value_and_grad(f));
  const auto [y, slope] = both(tensor<float>({1, 2}));
  EXPECT_EQ(y.item<float>(), 9);
  EXPECT_EQ(slope.to_vector<float>(), (Floats{3, 3}));
  EXPECT_EQ(forward, 1);
  EXPECT_EQ(backward, 1);
  EXPECT_FALSE(has(both.lower(tensor<float>({1, 2})).stablehlo(), "multiply"));
  EXPECT_EQ(grad(f)(tensor<float>({1, 2})).to_vector<float>(), (Floats{3, 3}));
  // Forward mode has the default's.
  EXPECT_EQ(jit([&](Tensor x) { return jvp(f, x, ones_like(x)).second; })(tensor<float>({1, 2}))
                .item<float>(),
            6);
  // Batches, inside and outside.
  const Tensor rows = tensor<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(jit(vmap(grad(f)))(rows).to_vector<float>(), (Floats{3, 3, 3, 3}));
  EXPECT_EQ(jit(grad([&](Tensor x) { return sum(vmap(f)(x)); }))(rows).to_vector<float>(),
            (Floats{3, 3, 3, 3}));
}

TEST(Block, BatchesAreTheDefaultsOrTheOverrides) {
  RecordProperty("covers", "BLOCK-09");
  const Tensor rows = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  auto f = jit(vmap([](Tensor x) { return scale(x, 2); }));
  const Floats doubled = {2, 4, 6, 8, 10, 12};
  EXPECT_EQ(f(rows).to_vector<float>(), doubled);
  struct Row {
    std::optional<VmapMethod> method;
    int firings;
  };
  for (const Row& row : {Row{{}, 0}, Row{VmapMethod::sequential, 3},
                         Row{VmapMethod::broadcast_all, 1}, Row{VmapMethod::expand_dims, 1}}) {
    int fired = 0;
    const Removed handle{native_scale(fired, row.method)};
    EXPECT_EQ(f(rows).to_vector<float>(), doubled);
    EXPECT_EQ(fired, row.firings);
    EXPECT_EQ(jit(vmap(vmap([](Tensor x) { return scale(x, 2); })))(rows).to_vector<float>(),
              doubled);
    EXPECT_EQ(jit(vmap(grad([](Tensor x) { return sum(scale(x, 2)); })))(rows).to_vector<float>(),
              Floats(6, 2));
  }
}

TEST(Block, BatchedInsideABranchOnlyLiveElementsCount) {
  RecordProperty("covers", "BLOCK-09");
  int fired = 0;
  const Removed handle{native_scale(fired, VmapMethod::sequential)};
  auto f = jit(vmap([](Tensor p, Tensor x) {
    return cond(
        p, [](Tensor v) { return scale(v, 2); }, [](Tensor v) { return v; }, x);
  }));
  EXPECT_EQ(f(tensor<bool>({true, false, true}), tensor<float>({1, 2, 3})).to_vector<float>(),
            (Floats{2, 2, 6}));
  EXPECT_EQ(fired, 2);
}

struct Outer {
  int dummy = 0;
};
TEST(Block, NestedBlocksCallsAndHooks) {
  RecordProperty("covers", "BLOCK-10");
  int fired = 0, called = 0, shown = 0;
  const Removed handle{native_scale(fired)};
  auto f = [&](Tensor x) {
    return block(
        Outer{},
        [&](Tensor v) {
          const Tensor squared = call(
              v,
              [&called](View<const float> in, View<float> out) {
                ++called;
                for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * in[i];
              },
              v);
          return tap(scale(squared, 1), [&shown](View<const float>) { ++shown; });
        },
        x);
  };
  EXPECT_EQ(jit(f)(tensor<float>({1, 2})).to_vector<float>(), (Floats{1, 4}));
  EXPECT_EQ((std::array{fired, called, shown}), (std::array{1, 1, 1}));
  EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), (Floats{1, 4}));
  EXPECT_EQ((std::array{fired, called, shown}), (std::array{2, 2, 2}));
}

TEST(Block, InsideLoopsAndUnderCheckpoint) {
  int fired = 0;
  const Removed handle{native_scale(fired)};
  auto loop = [](Tensor x) {
    return fori_loop(
        0, 4, [](Tensor, Tensor v) { return scale(v, 2); }, x);
  };
  EXPECT_EQ(jit(loop)(Tensor(1.0f)).item<float>(), 16);
  EXPECT_EQ(fired, 4);
  EXPECT_EQ(jit(grad(loop))(Tensor(1.0f)).item<float>(), 16);
  EXPECT_EQ(jit(grad(checkpoint([](Tensor x) { return square(scale(x, 3)); })))(Tensor(1.0f))
                .item<float>(),
            18);
}

TEST(Block, CustomRulesInsideDoNotLeak) {
  RecordProperty("covers", "BLOCK-17");
  auto f = [](Tensor x) {
    return block(
        Outer{},
        [](Tensor v) {
          auto twice = custom_vjp([](Tensor t) { return t * 2.0f; },
                                  [](Tensor t) {
                                    return std::pair{t * 2.0f, t};
                                  },
                                  [](Tensor kept, Tensor ct) { return ct * 10.0f + 0.0f * kept; });
          return twice(v) + stop_gradient(v);
        },
        x);
  };
  EXPECT_EQ(jit(f)(Tensor(1.0f)).item<float>(), 3);
  EXPECT_EQ(jit(grad(f))(Tensor(1.0f)).item<float>(), 10);
  EXPECT_EQ(jit([&](Tensor x) { return f(x) + grad(f)(x); })(Tensor(1.0f)).item<float>(), 13);
}

/// Lowering may write a constant or a common expression twice; XLA's optimised program is the same.
template <class Plain, class Blocked, class... X>
void expect_no_tax(const std::string& what, Plain plain, Blocked blocked, const X&... x) {
  const auto without = test::instructions_of(jit(plain).compile(x...).optimized());
  EXPECT_GT(without.size(), 3u) << what;
  EXPECT_EQ(without, test::instructions_of(jit(blocked).compile(x...).optimized())) << what;
}

TEST(Block, DefaultIsNoSlowerThanTheCodeWithoutTheBlock) {
  auto plain = [](Tensor x) { return sum(tanh(x * 2.0f)); };
  auto blocked = [plain](Tensor x) { return block(Outer{}, plain, x); };
  const Tensor x = tensor<float>({1, 2}), rows = tensor<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(jit(plain).lower(x).stablehlo(), jit(blocked).lower(x).stablehlo());
  expect_no_tax("as it is", plain, blocked, x);
  expect_no_tax("batched", vmap(plain), vmap(blocked), rows);
  auto forward = [](auto f) { return [f](Tensor v) { return jvp(f, v, v); }; };
  expect_no_tax("forward", forward(plain), forward(blocked), x);
  expect_no_tax("reverse", value_and_grad(plain), value_and_grad(blocked), x);
  expect_no_tax("reverse, batched", vmap(grad(plain)), vmap(grad(blocked)), rows);
  auto loop = [](auto f) {
    return [f](Tensor v) {
      return fori_loop(
          0, 3, [f, v](Tensor, Tensor c) { return f(c) + v; }, v);
    };
  };
  expect_no_tax("in a loop", loop(plain), loop(blocked), x);
  EXPECT_NE(test::instructions_of(jit(plain).compile(x).optimized()),
            test::instructions_of(jit(loop(plain)).compile(x).optimized()));
}

TEST(Block, StandardStepsMatchTheirReferences) {
  RecordProperty("covers", "BLOCK-16");
  const Tensor x = tensor<float>({1, 2, 3});
  EXPECT_EQ(jit([](Tensor v) { return cumsum(v); })(x).to_vector<float>(), (Floats{1, 3, 6}));
  EXPECT_EQ(jit([](Tensor v) { return cumsum(v, 0, true); })(x).to_vector<float>(),
            (Floats{6, 5, 3}));
  const auto [values, places] = jit([](Tensor v) { return top_k(v, 2); })(tensor<float>({3, 1, 2}));
  EXPECT_EQ(values.to_vector<float>(), (Floats{3, 2}));
  EXPECT_EQ(places.to_vector<int>(), (std::vector<int>{0, 2}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor with_nan = tensor<float>({1, nan});
  EXPECT_FALSE(allclose(with_nan, with_nan).item<bool>());
  EXPECT_TRUE(allclose(with_nan, with_nan, 1e-5, 1e-8, true).item<bool>());
  const Tensor impulse = tensor<float>({1, 0, 0, 0});
  const Tensor spectrum = jit([](Tensor v) { return rfft(v); })(impulse);
  EXPECT_EQ(real(spectrum).to_vector<float>(), (Floats{1, 1, 1}));
  EXPECT_EQ(irfft(spectrum).to_vector<float>(), (Floats{1, 0, 0, 0}));
  EXPECT_TRUE(std::isnan(take(x, tensor<int>({0, 7})).to_vector<float>()[1]))
      << "out of range: NaN, as in jax.numpy";
}

TEST(Block, AFailingKernelNamesTheBlock) {
  const Removed handle{
      override_block<Scale>({.kernel = [](const Scale&, View<const float>, View<float>) {
        throw std::runtime_error("no luck");
      }})};
  expect_error<CallbackError>(
      [] { jit([](Tensor x) { return scale(x, 7); })(Tensor(1.0f)).item<float>(); },
      {"scale", "no luck", "block_test.cc"});
}

TEST(Block, AnotherProgramAsOverride) {
  const Removed handle{
      override_block<Scale>({.program = [](const Scale& s, std::span<const Tensor> x) {
        return std::vector<Tensor>{x[0] + x[0] * (s.factor - 1)};
      }})};
  auto f = jit(vmap([](Tensor x) { return scale(x, 3); }));
  EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), (Floats{3, 6}));
  EXPECT_TRUE(has(f.lower(tensor<float>({1, 2})).stablehlo(), "add"));
}

TEST(Block, WrongOverridesAreRefused) {
  expect_error<TypeError>([] { override_block<Scale>({.platform = "cpu"}); },
                          {"scale", "exactly one of kernel, target and program"});
  const Removed handle{override_block<Scale>(
      {.program = [](const Scale&, std::span<const Tensor>) { return std::vector<Tensor>(); }})};
  expect_error<TypeError>([] { jit([](Tensor x) { return scale(x, 3); })(Tensor(1.0f)); },
                          {"scale", "gives ()", "f32[]"});
}

TEST(Block, PrintsShowThePathThatLoweringTakes) {
  RecordProperty("covers", "BLOCK-12");
  auto f = jit([](Tensor v) { return scale(v, 3); });
  const Tensor x = tensor<float>({1, 2});
  EXPECT_TRUE(has(f.program(x).text(), "block[block=scale{factor = 3}] %0  -> default on cpu"))
      << f.program(x);
  int fired = 0;
  const Removed kernel{native_scale(fired)};
  const Removed target{override_block<Scale>({.platform = "cuda", .target = "cuda_scale"})};
  EXPECT_TRUE(has(f.program(x).text(), "-> kernel at")) << f.program(x);
  EXPECT_TRUE(has(f.program(x).text("cuda"), "-> target cuda_scale on cuda"))
      << f.program(x).text("cuda");
}

struct Bend {
  static constexpr std::string_view name = "bend";
};
Tensor bend(const Tensor& x) {
  return block(
      Bend{}, [](Tensor v) { return tanh(v); }, x);
}

TEST(Block, AnOwnDerivativeKeepsWhatItWants) {
  RecordProperty("covers", "BLOCK-08");
  int forward = 0, backward = 0;
  const Removed handle{override_block<Bend>(
      {.program = [](const Bend&,
                     std::span<const Tensor> x) { return std::vector<Tensor>{tanh(x[0])}; },
       .vjp = {.forward =
                   [&](const Bend&, std::span<const Tensor> x) {
                     ++forward;
                     const Tensor y = tanh(x[0]);
                     return std::pair{std::vector<Tensor>{y},
                                      std::vector<Tensor>{1.0f - y * y, Tensor(10.0f)}};
                   },
               .backward =
                   [&](const Bend&, std::span<const Tensor> kept, std::span<const Tensor> ct) {
                     ++backward;
                     return std::vector<Tensor>{kept[0] * kept[1] *
                                                ct[0]};  // ten times too much: seen to be used
                   }}})};
  auto f = [](Tensor x) { return sum(bend(x)); };
  const Tensor zero = tensor<float>({0, 0});
  EXPECT_EQ(grad(f)(zero).to_vector<float>(), (Floats{10, 10}));
  EXPECT_EQ(jit(vmap(grad(f)))(reshape(zero, {2, 1})).to_vector<float>(), (Floats{10, 10}));
  EXPECT_EQ(jit(grad([&](Tensor x) { return sum(vmap(bend)(x)); }))(zero).to_vector<float>(),
            (Floats{10, 10}));
  auto loop = [](Tensor x) {
    return sum(fori_loop(
        0, 2, [](Tensor, Tensor v) { return bend(v); }, x));
  };
  EXPECT_EQ(jit(grad(loop))(zero).to_vector<float>(), (Floats{100, 100}));
  EXPECT_GT(forward, 0);
  EXPECT_GT(backward, 0);
  // An operand that is the same for the whole batch gets the sum.
  EXPECT_EQ(jit(grad([](Tensor x) {
              return sum(vmap([&](Tensor) { return bend(x); })(tensor<float>({1, 2, 3})));
            }))(Tensor(0.0f))
                .item<float>(),
            30);
}

TEST(Block, WrongOwnDerivativesAreRefused) {
  auto with = [](std::vector<Tensor> cotangents) {
    return override_block<Bend>(
        {.program = [](const Bend&,
                       std::span<const Tensor> x) { return std::vector<Tensor>{tanh(x[0])}; },
         .vjp = {.forward =
                     [](const Bend&, std::span<const Tensor> x) {
                       return std::pair{std::vector<Tensor>{tanh(x[0])}, std::vector<Tensor>{}};
                     },
                 .backward = [=](const Bend&, std::span<const Tensor>,
                                 std::span<const Tensor>) { return cotangents; }}});
  };
  auto slope = [] { grad([](Tensor x) { return sum(bend(x)); })(tensor<float>({0, 0})); };
  {
    const Removed handle{with({})};
    expect_error<TypeError>(slope, {"bend", "0 cotangents for 1 operands"});
  }
  const Removed handle{with({Tensor(1.0f)})};
  expect_error<TypeError>(slope, {"bend", "f32[]", "operand 0, which is f32[2]"});
  expect_error<TypeError>(
      [] {
        override_block<Bend>(
            {.program = [](const Bend&,
                           std::span<const Tensor> x) { return std::vector<Tensor>{x[0]}; },
             .vjp = {
                 .backward = [](const Bend&, std::span<const Tensor>, std::span<const Tensor> ct) {
                   return std::vector<Tensor>{ct[0]};
                 }}});
      },
      {"bend", "both forward and backward"});
}

TEST(Block, CapturesUnderBatchesDerivativesAndOverrides) {
  auto f = [](Tensor x, Tensor w) {
    return block(
        Scale{2}, [&](Tensor v) { return v * w; }, x);
  };
  const Tensor three(3.0f), rows = tensor<float>({1, 2});
  auto slopes = vmap(grad<0, 1>(f), {.in_axes = {unmapped, 0}});
  EXPECT_EQ(std::get<0>(jit(slopes)(three, rows)).to_vector<float>(), (Floats{1, 2}));
  EXPECT_EQ(std::get<1>(jit(slopes)(three, rows)).to_vector<float>(), (Floats{3, 3}));
  auto second = grad([&](Tensor w) { return sum(vmap(f, {.in_axes = {unmapped, 0}})(three, w)); });
  EXPECT_EQ(jit(second)(rows).to_vector<float>(), (Floats{3, 3}));
  // An override sees the operands alone: it is used once for the whole batch.
  int fired = 0;
  const Removed handle{native_scale(fired, VmapMethod::sequential)};
  EXPECT_EQ(jit(vmap(f, {.in_axes = {unmapped, 0}}))(three, rows).to_vector<float>(),
            (Floats{6, 6}));
}

TEST(Block, TangentsAloneDoNotBatchTheBlock) {
  int fired = 0;
  const Removed handle{native_scale(fired)};  // without a batching method
  const Tensor x = tensor<float>({1, 2, 3});
  EXPECT_EQ(jit(jacfwd([](Tensor v) { return scale(v, 2); }))(x).to_vector<float>(),
            (Floats{2, 0, 0, 0, 2, 0, 0, 0, 2}));
  EXPECT_EQ(fired, 0) << "its value is not asked for";
  auto both = jit([](Tensor v) {
    return vmap([&](Tensor t) { return jvp([](Tensor u) { return scale(u, 2); }, v, t); },
                {.out_axes = 0})(eye<float>(3))
        .first;
  });
  EXPECT_EQ(both(x).to_vector<float>(), (Floats{2, 4, 6, 2, 4, 6, 2, 4, 6}));
  EXPECT_EQ(fired, 1);
}

TEST(Block, DeadElementsOfABatchDoNotFail) {
  const Tensor batch = tensor<float>({4, 2, 2, 3, 1, 2, 2, 1}, {2, 2, 2});
  auto f = jit(vmap([](Tensor p, Tensor a) {
    return cond(
        p, [](Tensor m) { return linalg::cholesky(m, linalg::Failure::error); },
        [](Tensor m) { return m; }, a);
  }));
  EXPECT_EQ(f(tensor<bool>({true, false}), batch).to_vector<float>()[4], 1);
  expect_error<CallbackError>(
      [&] {
        f(tensor<bool>({false, true}), batch).to_vector<float>();
      },
      {"linalg.cholesky", "matrix 1"});
}

// --- FFI targets
// -------------------------------------------------------------------------------------------------

namespace ffi = xla::ffi;

ffi::Error scale_handler(ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out,
                         double factor, std::int64_t extra) {
  for (std::size_t i = 0; i < in.element_count(); ++i)
    out->typed_data()[i] =
        in.typed_data()[i] * static_cast<float>(factor) + static_cast<float>(extra);
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(block_test_scale, scale_handler,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>()
                                  .Attr<double>("factor")
                                  .Attr<std::int64_t>("extra"));

TEST(Block, TargetsGetTheConfigAsTypedAttributes) {
  RecordProperty("covers", "BLOCK-04 BLOCK-14");
  register_ffi_handler("block_test_scale", block_test_scale);
  const Removed handle{
      override_block<Scale>({.platform = "cpu",
                             .target = FfiTarget("block_test_scale", {{"extra", 100}}),
                             .batch = VmapMethod::broadcast_all})};
  const Tensor x = tensor<float>({1, 2});
  EXPECT_EQ(jit([](Tensor v) { return scale(v, 0.1) + 0.0f; })(x).to_vector<float>(),
            (Floats{1 * 0.1f + 100, 2 * 0.1f + 100}));
  EXPECT_EQ(scale(x, 3).to_vector<float>(), (Floats{103, 106}));
  EXPECT_EQ(vmap([](Tensor v) { return scale(v, 3); })(x).to_vector<float>(), (Floats{103, 106}));
}

ffi::Error copy_handler(ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out,
                        bool in_place) {
  if (in_place && in.typed_data() != out->typed_data()) return ffi::Error::Internal("not in place");
  std::copy_n(std::vector<float>(in.typed_data(), in.typed_data() + in.element_count()).data(),
              in.element_count(), out->typed_data());
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_copy, copy_handler,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Attr<bool>(
        "in_place"));

TEST(Block, TargetsMayAskForLayoutsAndMemory) {
  RecordProperty("covers", "BLOCK-14 CALL-20");
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  FfiTarget copy("block_test_copy", {{"in_place", false}});
  copy.operand_layouts = {{0, 1}};  // column-major
  auto f = [&](Tensor v) { return ffi_call(copy, type<float>({3, 2}), std::nullopt, v); };
  EXPECT_EQ(jit(f)(x).to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}))
      << "the transpose, by its layout";
  expect_error<TypeError>(
      [&] {
        vmap(f)(reshape(x, {1, 2, 3}));
      },
      {"block_test_copy", "no batching method"});
  copy.operand_layouts = {{}};
  copy.result_layouts = {{0, 1}};
  EXPECT_EQ(jit(f)(x).to_vector<float>(), (Floats{1, 4, 2, 5, 3, 6}));
  copy.result_layouts = {{0, 0}};
  expect_error<TypeError>([&] { f(x); }, {"block_test_copy", "result 0", "[0, 0]"});
  copy.result_layouts = {{0}, {1}};
  expect_error<TypeError>([&] { f(x); }, {"2 result layouts for 1 results"});

  FfiTarget in_place("block_test_copy", {{"in_place", true}});
  in_place.aliases = {{0, 0}};
  auto g = [&](Tensor v) { return ffi_call(in_place, v, VmapMethod::broadcast_all, v + 1.0f); };
  EXPECT_EQ(jit(g)(x).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  in_place.aliases = {{0, 1}};
  expect_error<TypeError>([&] { g(x); }, {"alias of result 0 to operand 1"});
}

TEST(Block, TargetsThatAreBatchedOtherwiseAreNotMerged) {
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  const FfiTarget copy("block_test_copy", {{"in_place", false}});
  auto both = [&](std::optional<VmapMethod> method) {
    return checkpoint([&, method](Tensor v) {
      const Tensor once = ffi_call(copy, v, VmapMethod::sequential, v);
      return std::pair(once, ffi_call(copy, v, method, v));
    });
  };
  const Tensor row = tensor<float>({1, 2}), rows = tensor<float>({1, 2, 3, 4}, {2, 2});
  auto calls = [&](std::optional<VmapMethod> method) {
    const std::string text = jit(both(method)).program(row).text();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = text.find("= ffi_call", at)) != text.npos; ++at) ++count;
    return count;
  };
  EXPECT_EQ(calls(VmapMethod::sequential), 1u);
  EXPECT_EQ(calls(VmapMethod::broadcast_all), 2u);
  expect_error<TypeError>([&] { jit(vmap(both(std::nullopt)))(rows); },
                          {"block_test_copy", "no batching method"});
}

TEST(Block, AttributesThatXlaCannotCarryAreRefusedByName) {
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  auto called = [](Attributes attributes) {
    const FfiTarget target("block_test_copy", std::move(attributes));
    return ffi_call(target, type<float>({2}), {}, tensor<float>({1, 2}));
  };
  expect_error<TypeError>(
      [&] {
        called({{"flags", std::vector<bool>{true}}});
      },
      {"'block_test_copy'", "'flags'", "a list of bools"});
  expect_error<TypeError>(
      [&] {
        called({{"words", std::vector<std::string>{"a"}}});
      },
      {"'block_test_copy'", "'words'", "a list of strings"});
  expect_error<TypeError>(
      [&] {
        called({{"", 1}});
      },
      {"'block_test_copy'", "an attribute has no name"});
  const auto e = test::error_of<Error>([&] {
    called({{"in_place", false}, {"more", 1}}).block_until_ready();
  });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "Wrong number of attributes") && has(e->what(), "'block_test_copy'"))
      << e->what();
}

TEST(Block, ResultsOverOperandsHaveTheirTypes) {
  register_ffi_handler("block_test_copy", block_test_copy, "cpu", true);
  FfiTarget in_place("block_test_copy", {{"in_place", true}});
  in_place.aliases = {{0, 0}};
  const Tensor x = tensor<float>({1, 2, 3, 4}, {2, 2});
  expect_error<TypeError>([&] { ffi_call(in_place, type<float>({4}), {}, x); },
                          {"'block_test_copy'", "result 0", "operand 0", "f32[2,2]", "f32[4]"});
  expect_error<TypeError>(
      [&] {
        ffi_call(in_place, type<std::int32_t>({2, 2}), {}, x);
      },
      {"f32[2,2]", "s32[2,2]"});
}

/// Attributes of any names; notes what it saw.
std::vector<float> seen_by_target;
std::vector<std::string> attributes_seen;
ffi::Error note_handler(ffi::Buffer<ffi::F32> in, ffi::Dictionary attributes) {
  seen_by_target.insert(seen_by_target.end(), in.typed_data(),
                        in.typed_data() + in.element_count());
  attributes_seen.push_back(std::to_string(attributes.size()));
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(block_test_note, note_handler,
                              ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Attrs());
ffi::Error plus_handler(ffi::Buffer<ffi::F32> in, ffi::Result<ffi::Buffer<ffi::F32>> out,
                        ffi::Dictionary) {
  seen_by_target.push_back(static_cast<float>(in.element_count()));
  for (std::size_t i = 0; i < in.element_count(); ++i)
    out->typed_data()[i] = in.typed_data()[i] + 1;
  return ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_plus, plus_handler,
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>().Attrs());

TEST(Block, TargetsHaveSideEffects) {
  register_ffi_handler("block_test_note", block_test_note);
  FfiTarget note("block_test_note",
                 {{"a \" name // of } any kind", 1}, {"b", std::vector<double>{1, 2}}});
  auto noted = [&](auto f, const auto&... x) {
    seen_by_target.clear();
    f(x...);
    barrier();
    return seen_by_target;
  };
  expect_error<TypeError>([&] { ffi_call(note, std::tuple<>(), {}, Tensor(1.0f)); },
                          {"without results", "side_effect"});
  note.side_effect = true;
  const auto f = jit([&](Tensor v) {
    ffi_call(note, std::tuple<>(), VmapMethod::sequential, v);
    ffi_call(note, std::tuple<>(), VmapMethod::sequential, v);
    return v * 2.0f;
  });
  EXPECT_EQ(noted(f, tensor<float>({1, 2})), (Floats{1, 2, 1, 2}))
      << "each of them, though nobody uses it";
  EXPECT_EQ(attributes_seen.back(), "2");
  auto sorted = [&](Floats v) {
    std::ranges::sort(v);
    return v;
  };
  EXPECT_EQ(sorted(noted(jit(vmap(f)), tensor<float>({1, 2}))), (Floats{1, 1, 2, 2}));
  EXPECT_EQ(sorted(noted(vmap([&](Tensor v) {
                           ffi_call(note, std::tuple<>(), VmapMethod::sequential, Tensor(5.0f));
                           return v;
                         }),
                         tensor<float>({1, 2}))),
            (Floats{5, 5}))
      << "once for each element";
  // Elements whose loop has ended have no effect.
  const auto loops = jit(vmap([&](Tensor n) {
    return while_loop([](Tensor i) { return i > 0.0f; },
                      [&](Tensor i) {
                        ffi_call(note, std::tuple<>(), VmapMethod::sequential, i);
                        return i - 1.0f;
                      },
                      n);
  }));
  EXPECT_EQ(sorted(noted(loops, tensor<float>({1, 3}))), (Floats{1, 1, 2, 3}));
  ASSERT_EQ(noted([&] { ffi_call(note, std::tuple<>(), {}, Tensor(7.0f)); }), (Floats{7}))
      << "at once";
}

TEST(Block, TargetsAreBatchedOneByOne) {
  register_ffi_handler("block_test_plus", block_test_plus);
  const FfiTarget plus("block_test_plus");
  auto f = [&](Tensor v) { return ffi_call(plus, v, VmapMethod::sequential, v); };
  const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  seen_by_target.clear();
  EXPECT_EQ(jit(vmap(f))(x).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(seen_by_target, (Floats{3, 3}));
  seen_by_target.clear();
  EXPECT_EQ(vmap(vmap(f))(x).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(seen_by_target, Floats(6, 1.0f));
  EXPECT_EQ(vmap(f, {.in_axes = 1})(x).to_vector<float>(), (Floats{2, 5, 3, 6, 4, 7}));
  expect_error<TypeError>([&] { ffi_call(plus, x, VmapMethod::parallel, x); },
                          {"sequential, expand_dims or broadcast_all"});
  const Removed handle{override_block<Scale>(
      {.platform = "cpu", .target = "block_test_plus", .batch = VmapMethod::sequential})};
  EXPECT_EQ(vmap([](Tensor v) { return scale(v, 3); })(x).to_vector<float>(),
            (Floats{2, 3, 4, 5, 6, 7}));
}

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    block_test_refuse,
    +[](ffi::Buffer<ffi::F32>, ffi::Result<ffi::Buffer<ffi::F32>>) {
      return ffi::Error(ffi::ErrorCode::kOutOfRange, "boom");
    },
    ffi::Ffi::Bind().Arg<ffi::Buffer<ffi::F32>>().Ret<ffi::Buffer<ffi::F32>>());

TEST(Block, WhatATargetRefusesKeepsItsCodeAndText) {
  register_ffi_handler("block_test_refuse", block_test_refuse);
  const auto f = jit(
      [](Tensor v) { return ffi_call(FfiTarget("block_test_refuse"), v, std::nullopt, v + 1.0f); });
  for (int i = 0; i < 2; ++i)
    expect_error<Error>([&] { f(Tensor(1.0f)).block_until_ready(); }, {"boom"},
                        ErrorCode::out_of_range);
  EXPECT_EQ(jit([](Tensor v) { return v + 1.0f; })(Tensor(1.0f)).item<float>(), 2);
}

TEST(Block, BarrierListsAllThatTargetsRefused) {
  register_ffi_handler("block_test_refuse", block_test_refuse);
  const auto f = jit(
      [](Tensor v) { return ffi_call(FfiTarget("block_test_refuse"), v, std::nullopt, v + 1.0f); });
  for (int i = 0; i < 3; ++i) f.start(Tensor(1.0f));
  const auto e = test::error_of<CallbackError>([] { barrier(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ErrorCode::out_of_range);
  EXPECT_TRUE(has(e->what(), "boom") && has(e->what(), "and 2 more")) << e->what();
  EXPECT_EQ(e->count(), 3u);
  ASSERT_EQ(e->others().size(), 2u);
  EXPECT_TRUE(has(e->others()[1], "boom")) << e->others()[1];
  barrier();
}

TEST(Block, TargetsThatNobodyRegisteredAreReportedBeforeCompiling) {
  RecordProperty("covers", "BLOCK-15");
  const Removed handle{override_block<Scale>({.target = "block_test_missing"})};
  expect_error<TypeError>([] { jit([](Tensor x) { return scale(x, 3); }).lower(Tensor(1.0f)); },
                          {"scale", "block_test_missing", "cpu"});
  register_ffi_handler("block_test_refused", block_test_scale);
  const Removed other{
      override_block<Scale>({.target = FfiTarget("block_test_refused", {{"factor", 1}})})};
  expect_error<TypeError>([] { jit([](Tensor x) { return scale(x, 3); }).lower(Tensor(1.0f)); },
                          {"'factor'", "a field of the config"});
  expect_error<TypeError>([] { register_ffi_handler("postern_x", block_test_scale); },
                          {"postern_"});
}

}  // namespace
}  // namespace postern
