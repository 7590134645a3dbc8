// Looking into programs from elsewhere, changing them inside, and derivatives that came along.
#include <mutex>

#include "foreign_test.h"

namespace postern::test {
namespace {

using Changed = Foreign;

using Shown = std::vector<std::pair<std::string, double>>;  // name, first number

/// A function that keeps what it is shown.
Callee keeping(Shown& shown) {
  return [&shown](const TapInfo& info, std::span<const AnyView> values) {
    const Tensor first(values[0].type(), values[0].data());
    shown.emplace_back(info.name, convert(first, DType::f64).to_vector<double>().at(0));
  };
}

std::vector<std::string> names(const Shown& shown) {
  std::vector<std::string> out;
  for (const auto& [name, value] : shown) out.push_back(name);
  return out;
}

using Names = std::vector<std::string>;

TEST_F(Changed, OperationsHaveTheNamesThatJaxGaveThem) {
  for (const char* file : {"scopes.mlir", "scopes.jax"}) {
    SCOPED_TRACE(file);
    std::map<std::string, std::string> kinds;
    for (const LoadedOperation& at : load(folder + file).operations())
      kinds[at.name] = at.operation;
    EXPECT_EQ(kinds["jit(scopes)/layer_0/tanh"], "stablehlo.tanh");
    EXPECT_EQ(kinds["jit(scopes)/layer_1/jit(relu)"], "func.call @relu");
    EXPECT_EQ(kinds["jit(scopes)/layer_1/jit(relu)/max"], "stablehlo.maximum");
    EXPECT_EQ(kinds["jit(scopes)/while/body/closed_call/loop/sin"], "stablehlo.sine");
  }
  for (const LoadedOperation& at : load(folder + "scopes.jax").operations())
    if (at.operation == "stablehlo.sine") {
      EXPECT_TRUE(to_string(at.place).starts_with("golden_stablehlo:")) << to_string(at.place);
      EXPECT_EQ(to_string(at.results), "(f32[2,3])");
    }
}

TEST_F(Changed, TapsShowWhatMatchesAndChangeNothing) {
  for (const char* file : {"scopes.mlir", "scopes.jax"}) {
    SCOPED_TRACE(file);
    const Loaded program = load(folder + file);
    const Tensors x = waves(program);
    const auto wanted = program.run(x)[0].to_vector<float>();
    const auto shows = [&](const std::string& pattern) {
      Shown shown;
      const Tensors y = program.with_tap(pattern, keeping(shown)).run(x);
      EXPECT_EQ(y[0].to_vector<float>(), wanted) << pattern;
      return shown;
    };
    const Shown tanh = shows("layer_0/tanh");
    ASSERT_EQ(names(tanh), Names{"jit(scopes)/layer_0/tanh"});
    EXPECT_NEAR(tanh[0].second, -0.13450335, 1e-6);  // JAX's
    EXPECT_EQ(names(shows("tanh")),
              (Names{"jit(scopes)/layer_0/tanh", "jit(scopes)/layer_1/tanh"}));
    EXPECT_EQ(names(shows("@relu")),
              (Names{"jit(scopes)/layer_0/jit(relu)", "jit(scopes)/layer_1/jit(relu)"}));
    EXPECT_EQ(names(shows("layer_?/jit(relu)/max")),
              (Names{"jit(scopes)/layer_0/jit(relu)/max", "jit(scopes)/layer_1/jit(relu)/max"}));
    EXPECT_EQ(names(shows("stablehlo.sine")),
              Names(3, "jit(scopes)/while/body/closed_call/loop/sin"));
    EXPECT_GE(shows("layer_1/*").size(), 4u);
    EXPECT_GT(shows("*").size(), 20u);
  }
}

TEST_F(Changed, ALineOfATextIsAPattern) {
  const Loaded program = load_text(
      "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = stablehlo.sine %x : tensor<2xf32>\n"
      "  %1 = stablehlo.cosine %0 : tensor<2xf32>\n"
      "  return %1 : tensor<2xf32>\n}\n",
      "two.mlir");
  const Tensor x = tensor<float>({0, 1});
  for (const char* pattern : {":3", "two.mlir:3", "cosine"}) {
    Shown shown;
    program.with_tap(pattern, keeping(shown))(x);
    EXPECT_EQ(shown, (Shown{{"stablehlo.cosine", 1}})) << pattern;
  }
}

TEST_F(Changed, ChangesWorkUnderEveryTransformation) {
  const Loaded program = load(folder + "scopes.jax");
  const Tensors x = waves(program);
  Shown shown;
  const Loaded tapped = program.with_tap("layer_0/tanh", keeping(shown), {.derivatives = true});
  const auto loss = [&](Tensor v) { return sum(tapped(v, x[1], x[2])[0]); };
  const std::vector<float> slope = jit(grad(loss))(x[0]).to_vector<float>();
  const std::vector<float> jax = {-0.28525916f, 0.35077152f, -0.40926316f,
                                  -0.24116394f, 0.2968f,     -0.34649563f};
  for (std::size_t i = 0; i < jax.size(); ++i) EXPECT_NEAR(slope[i], jax[i], 1e-5) << i;
  EXPECT_EQ(shown.size(), 2u);  // the value, and its cotangent
  shown.clear();
  jit(vmap(loss))(stack({x[0], 2 * x[0]}));
  EXPECT_EQ(shown.size(), 1u);
}

TEST_F(Changed, HooksListenForWhoRunsTheProgram) {
  const Loaded program = load(folder + "scopes.mlir").with_hook("layer_?/tanh");
  const Tensors x = waves(program);
  Shown shown;
  program.run(x);
  EXPECT_TRUE(shown.empty());
  program.run(x, {.hooks = {{"jit(scopes)/layer_1/tanh", keeping(shown)}}});
  EXPECT_EQ(names(shown), Names{"jit(scopes)/layer_1/tanh"});
  EXPECT_EQ(live_hooks().size(), 2u);
  for (const LiveHook& hook : live_hooks())
    if (hook.name() == "jit(scopes)/layer_0/tanh") {
      const Listening on = hook.turn_on(keeping(shown));
      program.run(x);
    }
  EXPECT_EQ(shown.back().first, "jit(scopes)/layer_0/tanh");
}

TEST_F(Changed, AReplacementTakesAnOperationsPlace) {
  const Loaded program = load(folder + "scopes.mlir");
  const Tensors x = waves(program);
  int calls = 0;
  const auto square = [&](const Tensors& operands) {
    ++calls;
    EXPECT_EQ(operands.size(), 1u);
    return Tensors{operands[0] * operands[0]};
  };
  const Loaded squared = program.with_replacement("tanh", square);
  const auto wanted = [&](Tensor v) {
    Tensor y = v;
    for (const Tensor& w : {x[1], x[2]}) {
      const Tensor z = matmul(y, w);
      y = maximum(z * z + 0.5f, 0.0f);
    }
    for (int i = 0; i < 3; ++i) y = 0.5f * y + sin(y);
    return sum(y);
  };
  const auto changed = [&](Tensor v) { return sum(squared(v, x[1], x[2])[0]); };
  EXPECT_NEAR(jit(changed)(x[0]).item<float>(), jit(wanted)(x[0]).item<float>(), 1e-4);
  EXPECT_EQ(calls, 2);
  const auto a = jit(grad(changed))(x[0]).to_vector<float>(),
             b = jit(grad(wanted))(x[0]).to_vector<float>();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-4) << i;
  // What is changed twice is shown as it then is.
  Shown shown;
  squared.with_tap("layer_0/tanh", keeping(shown)).run(x);
  EXPECT_NEAR(shown.at(0).second, std::pow(std::atanh(-0.13450335), 2), 1e-5);
}

TEST_F(Changed, BodiesThatAreAppliedToElementsStayAsTheyAre) {
  const Loaded program = load_text(R"(
func.func @main(%x: tensor<4xf32>, %n: tensor<f32>) -> tensor<f32> {
  %0 = "stablehlo.reduce"(%x, %n) <{dimensions = array<i64: 0>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.multiply %a, %b : tensor<f32>
    %2 = stablehlo.add %1, %a : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
})");
  const auto kinds = [&] {
    Names out;
    for (const LoadedOperation& at : program.operations()) out.push_back(at.operation);
    return out;
  };
  EXPECT_EQ(kinds(), Names{"stablehlo.reduce"});
  Shown shown;
  program.with_tap("*", keeping(shown)).run(waves(program));
  EXPECT_EQ(shown.size(), 1u);
}

// Rules that look at the operation that made a value do not see one that was replaced.
TEST_F(Changed, AReplacedConstantIsSeenByOperationsThatStayText) {
  const Loaded program = load_text(R"(
func.func @main(%x: tensor<2x1xf32>) -> tensor<2x1xf32> {
  %c = stablehlo.constant dense<1.0> : tensor<1xf32>
  %0 = "stablehlo.batch_norm_inference"(%x, %c, %c, %c, %c) <{epsilon = 0.0 : f32,
    feature_index = 1 : i64}> : (tensor<2x1xf32>, tensor<1xf32>, tensor<1xf32>, tensor<1xf32>,
    tensor<1xf32>) -> tensor<2x1xf32>
  return %0 : tensor<2x1xf32>
})");
  const Tensor x = tensor<float>({{8}, {12}});
  const auto near = [&](const Loaded& changed, std::vector<float> wanted) {
    const std::vector<float> got = changed(x)[0].to_vector<float>();
    for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(got.at(i), wanted[i], 1e-4);
  };
  near(program, {8, 12});
  const auto fours = [](const Tensors&) { return Tensors{tensor<float>({4})}; };
  near(program.with_replacement("constant", fours), {12, 20});
  Shown shown;
  near(program.with_tap("batch_norm_inference", keeping(shown)), {8, 12});
  EXPECT_EQ(shown.size(), 1u);
}

TEST_F(Changed, PlacesThatWereReplacedAreThoseOfAnArgmax) {
  const Loaded program = load_text(R"(
func.func @main(%x: tensor<4xf32>) -> tensor<i32> {
  %i = stablehlo.iota dim = 0 : tensor<4xi32>
  %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %c = stablehlo.constant dense<0> : tensor<i32>
  %1:2 = stablehlo.reduce(%x init: %cst), (%i init: %c) across dimensions = [0] :
    (tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
   reducer(%arg1: tensor<f32>, %arg3: tensor<f32>) (%arg2: tensor<i32>, %arg4: tensor<i32>)  {
    %2 = stablehlo.compare GT, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %3 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.or %2, %3 : tensor<i1>
    %5 = stablehlo.compare EQ, %arg1, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %6 = stablehlo.compare LT, %arg2, %arg4, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %7 = stablehlo.and %5, %6 : tensor<i1>
    %8 = stablehlo.or %4, %7 : tensor<i1>
    %9 = stablehlo.select %4, %arg1, %arg3 : tensor<i1>, tensor<f32>
    %10 = stablehlo.select %8, %arg2, %arg4 : tensor<i1>, tensor<i32>
    stablehlo.return %9, %10 : tensor<f32>, tensor<i32>
  }
  return %1#1 : tensor<i32>
})");
  const Tensor x = tensor<float>({1, 5, 7, 3});
  EXPECT_EQ(program(x)[0].item<std::int32_t>(), 2);
  const Loaded changed = program.with_replacement("iota", [](const Tensors&) {
    return Tensors{tensor<std::int32_t>({10, 20, 30, 40})};
  });
  EXPECT_EQ(changed(x)[0].item<std::int32_t>(), 30);
}

// Regions beside each other may use a name again.
TEST_F(Changed, ALoopsValueIsNoConstantOfABranchThatHasItsName) {
  const std::string norm = R"("stablehlo.batch_norm_inference"(%v, %k, %k, %k, %k) <{
      epsilon = 0.0 : f32, feature_index = 1 : i64}> : (tensor<2x1xf32>, tensor<1xf32>,
      tensor<1xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x1xf32>
)";
  const Loaded program = load_text(R"(
func.func @main(%x: tensor<2x1xf32>, %n: tensor<i32>) -> tensor<2x1xf32> {
  %0 = "stablehlo.case"(%n) ({
    %k = stablehlo.constant dense<1.0> : tensor<1xf32>
    %v = stablehlo.add %x, %x : tensor<2x1xf32>
    %1 = )" + norm + R"(
    stablehlo.return %1 : tensor<2x1xf32>
  }, {
    stablehlo.return %x : tensor<2x1xf32>
  }) : (tensor<i32>) -> tensor<2x1xf32>
  %four = stablehlo.constant dense<4.0> : tensor<1xf32>
  %2:3 = "stablehlo.while"(%n, %four, %0) ({
  ^bb0(%i: tensor<i32>, %k: tensor<1xf32>, %v: tensor<2x1xf32>):
    %end = stablehlo.constant dense<1> : tensor<i32>
    %3 = stablehlo.compare LT, %i, %end, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  }, {
  ^bb0(%i: tensor<i32>, %k: tensor<1xf32>, %v: tensor<2x1xf32>):
    %one = stablehlo.constant dense<1> : tensor<i32>
    %4 = stablehlo.add %i, %one : tensor<i32>
    %5 = )" + norm + R"(
    stablehlo.return %4, %k, %5 : tensor<i32>, tensor<1xf32>, tensor<2x1xf32>
  }) : (tensor<i32>, tensor<1xf32>, tensor<2x1xf32>) ->
    (tensor<i32>, tensor<1xf32>, tensor<2x1xf32>)
  return %2#2 : tensor<2x1xf32>
})");
  const Tensor x = tensor<float>({{4}, {6}}), n = Tensor(std::int32_t{0});
  const auto f = jit([&](const Tensors& v) { return program.run(v).at(0); });
  const std::vector<float> alone = program(x, n)[0].to_vector<float>(),
                           inside = f(Tensors{x, n}).to_vector<float>();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(inside[i], alone[i], 1e-4);
  EXPECT_NEAR(inside[0], 12, 1e-4);  // 4 * (8 - 4) / 2 + 4
}

TEST_F(Changed, WhatDoesNotFitIsATypeError) {
  const Loaded program = load(folder + "scopes.mlir");
  const auto same = [](const Tensors& x) { return x; };
  Shown shown;
  expect_error<TypeError>(
      [&] { return program.with_tap("layer_7/*", keeping(shown)); },
      {"no operation of the program matches 'layer_7/*'; there are ", "jit(scopes)"});
  expect_error<TypeError>([&] { return program.with_hook(""); }, {"matches ''"});
  expect_error<TypeError>([&] { return program.with_replacement("tanh", nullptr); },
                          {"with_replacement: there is no function"});
  const Loaded wrong = program.with_replacement("layer_0/dot_general", same);
  expect_error<TypeError>([&] { return wrong.run(waves(program)); },
                          {"in place of 'jit(scopes)/layer_0/dot_general' results must be "
                           "(f32[2,3]), got (f32[2,3], f32[3,3])"});
  const Loaded throws = program.with_replacement(
      "tanh", [](const Tensors&) -> Tensors { throw std::runtime_error("not today"); });
  EXPECT_THROW(throws.run(waves(program)), std::runtime_error);
  EXPECT_EQ(program.run(waves(program)).size(), 1u);  // as it was
}

/// sum(square(sin(x))) * n, where square is a host function with a derivative in the artifact.
TEST_F(Changed, DerivativesThatCameAlongAreUsedWhereThereAreNoOthers) {
  register_function("demo.square", [](View<const float> x, View<float> y) {
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = x[i] * x[i];
  });
  const Loaded program = load(folder + "ruled.jax");
  const Tensor x = tensor<float>({2, 2.8414710f, 2.9092975f}), n = Tensor(std::int32_t{2});
  const auto f = [&](Tensor v) { return program(v, n)[0]; };
  const auto plain = [](Tensor v) { return 2.0f * sum(sin(v) * sin(v)); };
  EXPECT_NEAR(jit(f)(x).item<float>(), plain(x).item<float>(), 1e-5);
  const auto near = [](const Tensor& a, const Tensor& b) {
    const auto left = a.to_vector<float>(), right = b.to_vector<float>();
    for (std::size_t i = 0; i < left.size(); ++i) EXPECT_NEAR(left[i], right[i], 1e-4) << i;
  };
  near(jit(grad(f))(x), grad(plain)(x));
  const auto total = [](auto g) { return [g](Tensor v) { return sum(grad(g)(v)); }; };
  near(jit(grad(total(f)))(x), grad(total(plain))(x));
  // Two orders are in the file; the third is the host function's own, and it has none.
  EXPECT_THROW(jit(grad(total(total(f))))(x), TypeError);
  // What was changed is no longer what they are of.
  const Loaded cosine = program.with_replacement(
      "stablehlo.sine", [](const Tensors& operands) { return Tensors{cos(operands[0])}; });
  EXPECT_THROW(jit(grad([&](Tensor v) { return cosine(v, n)[0]; }))(x), TypeError);
  near(jit(vmap(grad(f)))(stack({x, 2 * x})), stack({grad(plain)(x), grad(plain)(2 * x)}));
}

}  // namespace
}  // namespace postern::test
