// Programs from elsewhere as functions: inside of others, with derivatives, batched, at every size.
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "foreign_test.h"

namespace postern::test {
using namespace internal;
namespace {

using Interpreted = Foreign;

auto traced(const Loaded& program) {
  return [program](const Tensors& x) { return program.run(x); };
}

std::string bytes_of(const Tensor& x) {
  std::string out(x.type().byte_size(), '\0');
  x.read(out.data());
  return out;
}

/// The largest difference beside the largest number.
double difference(const Tensor& x, const Tensor& y) {
  const auto real_part = [](const Tensor& t) {
    return convert(is_complex(t.dtype()) ? abs(t) : t, DType::f64).to_vector<double>();
  };
  const std::vector<double> a = real_part(x), b = real_part(y);
  double scale = 1, out = 0;
  for (const double v : b)
    if (std::isfinite(v)) scale = std::max(scale, std::abs(v));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return std::numeric_limits<double>::infinity();
    if (a[i] != b[i] && !std::isnan(a[i])) out = std::max(out, std::abs(a[i] - b[i]) / scale);
  }
  return out;
}

TEST_F(Interpreted, GivesWhatTheProgramGivesAlone) {
  if (skipped_in_stages("LAPACK in programs of JAX is custom calls")) return;
  std::istringstream lines(text_in("expected.txt"));
  int seen = 0;
  for (std::string line; std::getline(lines, line); ++seen) {
    const std::string name = line.substr(0, line.find(' '));
    SCOPED_TRACE(name);
    const Loaded program = load(folder + name);
    const Tensors x = waves(program), alone = program.run(x), inside = jit(traced(program))(x);
    ASSERT_EQ(inside.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(to_string(inside[i].type()), to_string(alone[i].type())) << i;
      // Decompositions mirror the triangle that LAPACK reads; other builds may fuse otherwise.
      if (name.find("linalg") != name.npos || name.starts_with("pivoted") ||
          std::getenv("POSTERN_PLUGIN"))
        EXPECT_LT(difference(inside[i], alone[i]), 1e-5) << i;
      else
        EXPECT_EQ(bytes_of(inside[i]), bytes_of(alone[i])) << i;
    }
  }
  EXPECT_EQ(seen, 22);
}

/// A function of tests/data/stablehlo/functions.txt: "//// name", value, a gradient for each
/// argument, and its text.
struct FromJax {
  std::string name, text;
  std::vector<std::vector<double>> numbers;
};
std::vector<FromJax> functions_of_jax() {
  std::vector<FromJax> out;
  std::istringstream lines(text_in("functions.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("//// ")) {
      out.back().text += line + "\n";
      continue;
    }
    const std::string rest = line.substr(5);
    if (std::isalpha(static_cast<unsigned char>(rest[0])) != 0 && rest != "nan" && rest != "inf") {
      out.push_back({rest, {}, {}});
      continue;
    }
    std::istringstream words(rest);
    std::vector<double>& numbers = out.back().numbers.emplace_back();
    for (std::string word; words >> word;) numbers.push_back(std::stod(word));
  }
  return out;
}

Tensors arguments_of(const Loaded& program) {
  Tensors out;
  for (const Type& t : program.inputs()) {
    std::vector<float> numbers;
    for (std::int64_t i = 0; i < t.size(); ++i)
      numbers.push_back(static_cast<float>(
          std::sin(1.3 * static_cast<double>(i) + 7.0 * static_cast<double>(out.size()) + 1)));
    out.push_back(Tensor(t, numbers.data()));
  }
  return out;
}

void expect_near(const Tensor& got, const std::vector<double>& wanted, const std::string& what) {
  const std::vector<double> numbers = convert(got, DType::f64).to_vector<double>();
  ASSERT_EQ(numbers.size(), wanted.size()) << what;
  double scale = 1;
  for (const double w : wanted) scale = std::max(scale, std::abs(w));
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(numbers[i], wanted[i], 3e-4 * scale) << what << " element " << i;
}

TEST_F(Interpreted, DerivativesAreJaxs) {
  if (skipped_in_stages("LAPACK in programs of JAX is custom calls")) return;
  int seen = 0;
  for (const FromJax& f : functions_of_jax()) {
    SCOPED_TRACE(f.name);
    const Loaded program = load_text(f.text, f.name);
    const Tensors x = arguments_of(program);
    const auto [value, gradient] =
        jit(value_and_grad([&](const Tensors& a) { return program.run(a).at(0); }))(x);
    expect_near(value, f.numbers.at(0), "value");
    ASSERT_EQ(f.numbers.size(), 1 + gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i)
      expect_near(gradient[i], f.numbers[1 + i], fmt::format("gradient {}", i));
    ++seen;
  }
  EXPECT_EQ(seen, 115);
}

TEST_F(Interpreted, UnderVmapEachElementGivesWhatItGivesAlone) {
  if (skipped_in_stages("LAPACK in programs of JAX is custom calls")) return;
  int number = 0;
  for (const FromJax& f : functions_of_jax()) {
    if (number++ % 3 != 0) continue;
    SCOPED_TRACE(f.name);
    const Loaded program = load_text(f.text, f.name);
    const Tensors x = arguments_of(program);
    Tensors half, both;
    for (const Tensor& t : x) {
      half.push_back(t * 0.5f);
      both.push_back(stack({t, half.back()}));
    }
    const Tensor y = jit(vmap(traced(program)))(both).at(0);
    EXPECT_LT(difference(y[0], program.run(x).at(0)), 1e-4);
    EXPECT_LT(difference(y[1], program.run(half).at(0)), 1e-4);
  }
}

TEST_F(Interpreted, HostFunctionsAreSitesOfTheProgramAround) {
  int calls = 0;
  register_function("demo.scale", [&](const Attributes& a, View<const float> in, View<float> out) {
    ++calls;
    for (std::int64_t i = 0; i < in.size(); ++i)
      out[i] = in[i] * static_cast<float>(a.get<double>("factor"));
  });
  register_function("demo.two",
                    [](View<const float> in, View<float> both, View<std::int32_t> count) {
                      both[0] = in[0];
                      both[1] = in[1];
                      count[0] = static_cast<std::int32_t>(in.size());
                    });
  for (const std::string file : {"calls.mlir", "exported.mlir", "calls.jax", "portable.mlirbc"}) {
    SCOPED_TRACE(file);
    const Loaded program = load(folder + file);
    const Tensors x = waves(program), alone = program.run(x);
    calls = 0;
    const Tensors inside = jit(traced(program))(x);
    EXPECT_EQ(calls, 1);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_EQ(bytes_of(inside[i]), bytes_of(alone[i])) << i;
    const std::string text = to_string(jit(traced(program)).program(x));
    EXPECT_TRUE(has(text, "call[name=demo.scale")) << text;
    const Tensors both{stack({x[0], x[0]})};
    EXPECT_EQ(jit(vmap(traced(program)))(both).at(1).dims(), (Dims{2, 2}));
  }
}

TEST_F(Interpreted, RunsInEveryModeAndIsSaved) {
  const Loaded program = load(folder + "control.jax");
  const Tensors x = waves(program), alone = program.run(x);
  for (const Mode mode : all_modes) {
    const Tensors inside = jit(traced(program), {.mode = mode})(x);
    for (std::size_t i = 0; i < alone.size(); ++i)
      EXPECT_LT(difference(inside[i], alone[i]), 1e-6) << i;
  }
  const TemporaryFolder folder_here;
  const std::string file = folder_here.path() + "/again.mlir";
  save(file, jit(traced(program)).lower(x));
  const Loaded again = load(file);
  for (std::size_t i = 0; i < alone.size(); ++i)
    EXPECT_EQ(bytes_of(again.run(x).at(i)), bytes_of(alone[i])) << i;
  EXPECT_EQ(bytes_of(jit(traced(again))(x).at(0)), bytes_of(alone[0])) << "it is open too";
}

TEST_F(Interpreted, WhatPosternSavedShowsAndPrintsInsideOfOthers) {
  std::vector<float> seen;
  register_function("demo.add", [&](View<const float> a, View<const float> b) {
    seen.push_back(a[0]);
    seen.push_back(b[0]);
  });
  auto f = jit([](Tensor x) {
    const auto [a, b] =
        tap({.name = "both", .ordered = true}, std::pair{x * 2.0f, x + 1.0f}, Named{"demo.add"});
    print("b is {}", b);
    return std::pair{b * 3.0f, a};
  });
  const Tensor x = tensor<float>({1, 2});
  const Loaded again = load_text(saved_text(f.lower(x)));
  const Tensors alone = again(x);
  EXPECT_EQ(std::exchange(seen, {}), (std::vector<float>{2, 2}));
  testing::internal::CaptureStdout();
  const Tensors inside = jit([&](Tensor v) { return again(v); })(x);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "b is [2. 3.]\n");
  EXPECT_EQ(seen, (std::vector<float>{2, 2}));
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(bytes_of(inside[i]), bytes_of(alone[i])) << i;
  const Tensor g = grad([&](Tensor v) { return sum(again(v)[0]); })(x);
  EXPECT_EQ(g.to_vector<float>(), (std::vector<float>{3, 3}));
  // What it keeps for its way back stays with it.
  auto loop = [](Tensor v) {
    return while_loop([](Tensor w) { return sum(w) < 100.0f; }, [](Tensor w) { return w * w; }, v);
  };
  const Loaded back = load_text(saved_text(
      jit([&](Tensor v) { return grad([&](Tensor w) { return sum(loop(w)); })(v); }).lower(x)));
  expect_error<Error>([&] { jit([&](Tensor v) { return back(v); })(x); }, {"its way back"},
                      ErrorCode::unimplemented);
}

TEST_F(Interpreted, SizesThatAreOpenAreThoseOfTheArguments) {
  for (const std::string file : {"sizes.jax", "sizes.mlir"}) {
    SCOPED_TRACE(file);
    const Loaded program = load(folder + file);
    EXPECT_EQ(to_string(program.inputs()), "(f32[-1], f32[-1])");
    for (const std::int64_t n : {2, 3, 7}) {
      const Tensor x = waves(type<float>({n})), y = cos(x);
      const Tensors got = program(x, y);
      Tensor both = reshape(concatenate({x, y}), {n, 2});
      const auto tolerance = [&](const Tensor& a, const Tensor& b) {
        EXPECT_EQ(a.dims(), b.dims());
        EXPECT_LT(difference(a, b), 1e-5) << n;
      };
      tolerance(got[0], slice(flip(cumsum(sort(x)), 0), {0}, {n - 1}) * static_cast<float>(n));
      tolerance(got[1], matmul(both, transpose(both)));
      tolerance(got[2], x * iota<float>(n));
      auto loss = [&](Tensor a) { return sum(program(a, y)[2]); };
      tolerance(grad(loss)(x), iota<float>(n));
    }
    const Tensor one = ones(type<float>({1})), two = ones(type<float>({2}));
    expect_error<TypeError>([&] { program(one, one); }, {"n >= 2", "'n' = 1"});
    expect_error<TypeError>([&] { program(two, ones(type<float>({3}))); }, {"args[1].shape"});
    expect_error<TypeError>(
        [&] {
          program(ones(type<float>({2, 2})), two);
        },
        {"argument 0", "f32[-1]", "f32[2,2]"});
    EXPECT_EQ(program.run({two, two}, {.deadline = 60s}).at(2).dims(), (Dims{2}));
    EXPECT_EQ(program.start({two, two}).result().at(2).dims(), (Dims{2}));
  }
}

constexpr const char* windows = R"(
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %c) <{padding = dense<[[1, 0]]> : tensor<1x2xi64>,
      window_dimensions = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.multiply %b, %b : tensor<f32>
    %2 = stablehlo.add %a, %1 : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
})";

TEST_F(Interpreted, ABodyOfItsOwnRunsBatchedAndHasADerivative) {
  const Loaded program = load_text(windows, "windows.mlir");
  const Tensor x = tensor<float>({1, 2, 3, 4});
  const std::vector<float> wanted = program(x)[0].to_vector<float>();
  const auto f = [&](Tensor v) { return program(v)[0]; };
  EXPECT_EQ(jit(f)(x).to_vector<float>(), wanted);
  EXPECT_EQ(jit([&](Tensor v) { return f(f(v)); })(x).to_vector<float>(),
            program(program(x)[0])[0].to_vector<float>());
  EXPECT_EQ(vmap(f)(stack({x, x * 2.0f}))[1].to_vector<float>(),
            program(x * 2.0f)[0].to_vector<float>());
  const auto slope = grad([&](Tensor v) { return sum(f(v)); });
  EXPECT_EQ(slope(x).to_vector<float>(), (std::vector<float>{4, 8, 12, 8}));
  EXPECT_EQ(vmap(slope)(stack({x, x * 2.0f}))[1].to_vector<float>(),
            (std::vector<float>{8, 16, 24, 16}));
  const auto second = grad([&](Tensor v) { return sum(slope(v)); });
  EXPECT_EQ(second(x).to_vector<float>(), (std::vector<float>{4, 4, 4, 2}));
}

// In @main, in functions that are called twice, in a loop and in a branch.
TEST_F(Interpreted, LargeConstantsAreHandedOnAsMemory) {
  const Loaded program = load(folder + "weights.jax");
  ASSERT_EQ(to_string(program.inputs()), "(f32[2,128])");
  EXPECT_LT(program.stablehlo().size(), 20'000u);
  const Tensors x = waves(program);
  const std::vector<float> wanted = program.run(x)[0].to_vector<float>();
  EXPECT_EQ(program.run(x, RunOptions())[0].to_vector<float>(), wanted);
  EXPECT_EQ(program.start(x).result()[0].to_vector<float>(), wanted);
  std::vector<float> here(8), kept(3);
  const std::vector<float> given = x[0].to_vector<float>();
  const void* const in[] = {given.data()};
  void* const out[] = {here.data(), kept.data()};
  native(program)(in, out);
  EXPECT_EQ(here, wanted);
  const auto f = [&](Tensor v) { return sum(program(v)[0]); };
  const auto [y, dy] = jvp(f, x[0], ones_like(x[0]));
  const auto [z, pull_back] = vjp(f, x[0]);
  EXPECT_NEAR(sum(std::get<0>(pull_back(Tensor(1.0f)))).item<float>(), dy.item<float>(), 1e-3);
  const Tensor both = vmap([&](Tensor v) { return program(v)[0]; })(stack({x[0], x[0] * 2.0f}));
  EXPECT_LT(difference(both[0], program.run(x)[0]), 1e-5);
  const Loaded saved = load_text(saved_text(jit(f).lower(x[0])));
  EXPECT_NEAR(saved.run(x)[0].item<float>(), f(x[0]).item<float>(), 1e-4);
}

// The interpretation is over, and the program gone, when the rule is asked.
TEST_F(Interpreted, ADerivativeOutlivesItsProgram) {
  const auto pull_back = [] {
    const Loaded program = load_text(windows, "windows.mlir");
    const auto f = [program](Tensor v) { return sum(program(v)[0]); };
    return vjp(f, tensor<float>({1, 2, 3, 4})).second;
  }();
  EXPECT_EQ(std::get<0>(pull_back(Tensor(1.0f))).to_vector<float>(),
            (std::vector<float>{4, 8, 12, 8}));
}

std::string with_body(const std::string& operation, const std::string& body,
                      const std::string& types) {
  return "func.func @main(%x: tensor<4xf32>, %u: tensor<2xf32>) -> tensor<4xf32> {\n"
         "  %i = stablehlo.constant dense<[[1], [3]]> : tensor<2x1xi32>\n"
         "  %c = stablehlo.constant dense<0.0> : tensor<f32>\n"
         "  %0 = " +
         operation + " ({\n  ^bb0(%a: tensor<f32>, %b: tensor<f32>):\n" + body + "  }) : " + types +
         " -> tensor<4xf32>\n  return %0 : tensor<4xf32>\n}\n";
}

TEST_F(Interpreted, WhatHasNoDerivativeIsNamedWithItsLine) {
  const auto refused = [](const std::string& text, std::string_view operation,
                          std::string_view why) {
    const Loaded program = load_text(text, "bodies.mlir");
    const Tensor x = tensor<float>({1, 2, 3, 4}), u = tensor<float>({5, 6});
    const auto f = [&](Tensor a, Tensor b) { return sum(program(a, b)[0]); };
    EXPECT_EQ(jit(f)(x, u).item<float>(), sum(program(x, u)[0]).item<float>());
    expect_error<TypeError>([&] { grad(f)(x, u); },
                            {operation, why, "no derivative", "bodies.mlir:4"});
  };
  const std::string halves =
      "    %h = stablehlo.multiply %a, %b : tensor<f32>\n"
      "    %s = stablehlo.add %h, %b : tensor<f32>\n"
      "    stablehlo.return %s : tensor<f32>\n";
  const std::string scatter =
      "\"stablehlo.scatter\"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<"
      "inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}>";
  const std::string types = "(tensor<4xf32>, tensor<2x1xi32>, tensor<2xf32>)";
  refused(with_body(scatter, halves, types), "scatter", "unique");
  std::string once = with_body(scatter, halves, types);
  once.replace(once.find("1>}>"), 4, "1>, unique_indices = true}>");
  const Loaded unique = load_text(once);
  const auto [dx, du] = grad<0, 1>([&](Tensor a, Tensor b) { return sum(unique(a, b)[0]); })(
      tensor<float>({1, 2, 3, 4}), tensor<float>({5, 6}));
  EXPECT_EQ(dx.to_vector<float>(), (std::vector<float>{1, 5, 1, 6}));
  EXPECT_EQ(du.to_vector<float>(), (std::vector<float>{3, 5}));
  refused(
      "func.func @main(%x: tensor<4xf32>, %u: tensor<2xf32>) -> tensor<4x1xf32> {\n"
      "  %0 = stablehlo.reshape %x : (tensor<4xf32>) -> tensor<4x1xf32>\n"
      "  %c = stablehlo.constant dense<1.0> : tensor<1xf32>\n"
      "  %1 = \"stablehlo.batch_norm_inference\"(%0, %c, %c, %c, %c) <{epsilon = 0.5 : f32, "
      "feature_index = 1 : i64}> : (tensor<4x1xf32>, tensor<1xf32>, tensor<1xf32>, "
      "tensor<1xf32>, tensor<1xf32>) -> tensor<4x1xf32>\n"
      "  return %1 : tensor<4x1xf32>\n}\n",
      "stablehlo.batch_norm_inference", "by its text alone");
}

TEST_F(Interpreted, AFileWithOneFunctionNeedsNoMain) {
  const std::string one =
      "func.func public @predict(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = call @twice(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "  return %0 : tensor<2xf32>\n}\n"
      "func.func private @twice(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = stablehlo.add %x, %x : tensor<2xf32>\n"
      "  return %0 : tensor<2xf32>\n}\n";
  const Tensor x = tensor<float>({1, 2});
  const Loaded program = load_text(one);
  EXPECT_EQ(program(x)[0].to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(jit([&](Tensor v) { return program(v)[0]; })(x).to_vector<float>(),
            (std::vector<float>{2, 4}));
  std::string two = one;
  two.replace(two.find("private"), 7, "public");
  expect_error<Error>([&] { load_text(two, "two.mlir"); },
                      {"two.mlir:5", "several public functions"}, ErrorCode::invalid_argument);
}

using Names = std::vector<std::string>;

TEST_F(Interpreted, NamesAreTheFile) {
  const Loaded trees = load(folder + "trees.jax");
  EXPECT_EQ(trees.input_names(),
            (Names{"args[0]['scale']", "args[0]['x']", "args[1][0]", "args[1][1]"}));
  EXPECT_EQ(trees.output_names(),
            (Names{"result['parts'][0]", "result['parts'][1][0]", "result['sum']"}));
  // As JAX writes it, from 0.4 to 0.12: by attribute, by location, by a location's name.
  const Loaded text = load_text(R"(
#loc1 = loc("params['w']")
#loc2 = loc("file.py":3:7)
module @jit_f {
  func.func public @main(%arg0: tensor<2xf32> {jax.arg_info = "p['b']", mhlo.x = 1 : i32},
                         %arg1: tensor<2xf32> loc(#loc1), %arg2: tensor<2xf32> loc("x"),
                         %arg3: tensor<2xf32> loc("file.py":1:2), %arg4: tensor<2xf32> loc(#loc2),
                         %scale: tensor<f32>)
      -> (tensor<2xf32> {jax.result_info = "result['y'][0]"}, tensor<f32>) {
    return %arg0, %scale : tensor<2xf32>, tensor<f32>
  }
})");
  EXPECT_EQ(text.input_names(), (Names{"p['b']", "params['w']", "x", "", "", "scale"}));
  EXPECT_EQ(text.output_names(), (Names{"result['y'][0]", ""}));
  const Loaded saved =
      load_text(saved_text(jit([](Tensor x) { return x; }).lower(abstract(type<float>({2})))));
  EXPECT_EQ(saved.input_names(), Names{""});
  EXPECT_EQ(saved.output_names(), Names{""});
}

TEST_F(Interpreted, AnyPublicFunctionIsAnEntry) {
  const std::string text =
      "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = call @\"twice it\"(%x) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "  return %0 : tensor<2xf32>\n}\n"
      "func.func public @\"twice it\"(%y: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = stablehlo.add %y, %y : tensor<2xf32>\n"
      "  return %0 : tensor<2xf32>\n}\n"
      "func.func public @both(%z: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  %0 = call @main(%z) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "  %1 = call @\"twice it\"(%0) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "  return %1 : tensor<2xf32>\n}\n";
  const Tensor x = tensor<float>({1, 2});
  const std::vector<std::pair<std::string, float>> entries = {
      {"", 2}, {"main", 2}, {"twice it", 2}, {"both", 4}};
  for (const auto& [entry, factor] : entries) {
    const Loaded f = load_text(text, "text", {.entry = entry});
    const std::vector<float> expected = {factor, 2 * factor};
    EXPECT_EQ(f(x)[0].to_vector<float>(), expected) << entry;
    EXPECT_EQ(jit([&](Tensor v) { return f(v)[0]; })(x).to_vector<float>(), expected) << entry;
    EXPECT_EQ(f.input_names().size(), 1U);
  }
  expect_error<Error>([&] { load_text(text, "two.mlir", {.entry = "none"}); },
                      {"two.mlir:1", "no function @none", "@main, @twice it, @both"},
                      ErrorCode::not_found);
  for (const std::string file : {"trees.jax", "portable.mlirbc"})
    expect_error<Error>([&] { load(folder + file, {.entry = "none"}); }, {"none"},
                        ErrorCode::not_found);
  EXPECT_EQ(load(folder + "portable.mlirbc", {.entry = "main"}).inputs().size(),
            load(folder + "portable.mlirbc").inputs().size());
  const std::string saved =
      saved_text(jit([](Tensor v) { return v; }).lower(abstract(type<float>({2}))));
  expect_error<Error>([&] { load_text(saved, "saved", {.entry = "none"}); }, {"no function 'none'"},
                      ErrorCode::not_found);
}

TEST_F(Interpreted, DamagedProgramsAreErrors) {
  std::mt19937 random(11);
  int whole = 0, refused = 0;
  for (const std::string file : {"control.jax", "indices.jax", "windows.jax", "sizes.jax",
                                 "folded.mlirbc", "mixed.mlir", "sizes.mlir"}) {
    const std::string bytes = text_in(file);
    for (int i = 0; i < 120; ++i) {
      std::string damaged = bytes;
      damaged[random() % bytes.size()] = static_cast<char>(random());
      try {
        const Loaded program = load_text(damaged, file);
        Tensors x;
        for (Type t : program.inputs()) {
          for (std::int64_t& extent : t.dims)
            if (extent < 0) extent = 3;
          x.push_back(abstract(t));
        }
        (void)jit(traced(program)).program(x);
        ++whole;
      } catch (const Error&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(whole, 50);
  EXPECT_GT(refused, 50);
}

TEST_F(Interpreted, OneNumberForManyElementsIsNoArray) {
  const Loaded program = load_text(
      "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
      "  %c = stablehlo.constant dense<2.0> : tensor<1048576x1048576xf32>\n"
      "  %0 = stablehlo.slice %c [0:1, 0:1] : (tensor<1048576x1048576xf32>) -> tensor<1x1xf32>\n"
      "  %1 = stablehlo.reshape %0 : (tensor<1x1xf32>) -> tensor<f32>\n"
      "  %2 = stablehlo.multiply %1, %x : tensor<f32>\n"
      "  return %2 : tensor<f32>\n}\n");
  const auto f = [&](Tensor x) { return program(x)[0]; };  // 4 TiB, were it an array
  EXPECT_EQ(to_string(jit(f).program(Tensor(3.0f)).outputs()), "(f32[])");
}

}  // namespace
}  // namespace postern::test
