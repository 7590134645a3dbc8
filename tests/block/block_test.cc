// Blocks: defaults, overrides, their choice and removal.
#include "block_test.h"
#include "hlo.h"

namespace postern {
namespace {

using test::has;
using test::Removed, test::Scale, test::expect_error, test::native_scale, test::scale;
using Floats = std::vector<float>;

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
  if (test::skipped_in_stages("kernels are custom calls")) return;
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
  if (test::skipped_in_stages("kernels are custom calls")) return;
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
    expect_error<TypeError>(act,
                            {what, "'vulkan' is no known platform", "known are cpu, cuda, rocm"});
  };
  refused([] { override_block<Scale>({.platform = "vulkan", .target = "t"}); },
          "override_block 'scale'");
  refused([&] { block_path(Scale{3}, {x.type()}, "vulkan"); }, "block_path");
  refused([&] { f.program(x).text("vulkan"); }, "text");
  refused([] { ffi_handlers("vulkan"); }, "ffi_handlers");
  const auto handler = [](XLA_FFI_CallFrame*) -> XLA_FFI_Error* { return nullptr; };
  refused([&] { register_ffi_handler("block_test_rocm", handler, "vulkan"); },
          "register_ffi_handler 'block_test_rocm'");
  EXPECT_TRUE(has(block_path(Scale{3}, {x.type()}).text, "no override is registered"))
      << "one that was refused is not kept";
}

TEST(Block, TheLatestThatAcceptsIsTaken) {
  RecordProperty("covers", "BLOCK-03 BLOCK-12");
  if (test::skipped_in_stages("kernels are custom calls")) return;
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

struct Outer {
  int dummy = 0;
};
TEST(Block, NestedBlocksCallsAndHooks) {
  RecordProperty("covers", "BLOCK-10");
  int fired = 0, called = 0, shown = 0;
  const int kernels = int{plugin_info().calls_back};  // else the default is taken
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
  EXPECT_EQ((std::array{fired, called, shown}), (std::array{kernels, 1, 1}));
  EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), (Floats{1, 4}));
  EXPECT_EQ((std::array{fired, called, shown}), (std::array{2 * kernels, 2, 2}));
}

TEST(Block, InsideLoopsAndUnderCheckpoint) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
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
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const Removed handle{
      override_block<Scale>({.kernel = [](const Scale&, View<const float>, View<float>) {
        throw std::runtime_error("no luck");
      }})};
  expect_error<CallbackError>(
      [] { jit([](Tensor x) { return scale(x, 7); })(Tensor(1.0f)).item<float>(); },
      {"scale", "no luck", "block_test."});
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
  if (test::skipped_in_stages("kernels are custom calls")) return;
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

}  // namespace
}  // namespace postern
