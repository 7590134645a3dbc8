// Programs from elsewhere: JAX's text and artifacts, their custom calls as host functions.
#include "foreign_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "import/attribute_numbers.h"

namespace postern::test {
using namespace internal;
namespace {

TEST_F(Foreign, JaxProgramsGiveWhatJaxComputes) {  // IR: programs of other frameworks
  std::istringstream lines(text_in("expected.txt"));
  int seen = 0;
  bool left_out = false;
  for (std::string line; std::getline(lines, line); ++seen) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!plugin_info().calls_back && text_in(name).find("lapack_") != std::string::npos) {
      left_out = true;
      continue;
    }
    SCOPED_TRACE(name);
    const Loaded program = load(folder + name);
    EXPECT_TRUE(program.required_functions().empty());
    const Tensors results = program.run(waves(program));
    // A decomposition's error is relative to the norms of what comes of it, also where the result
    // is a residual, and where it falls differs between processors.
    double scale = 1;
    if (name.starts_with("linalg"))
      for (const Tensor& r : results)
        for (const double x : convert(r, DType::f64).to_vector<double>())
          if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
    std::size_t result = 0, at = 0;
    std::vector<double> numbers;
    for (std::string word; words >> word;) {
      if (word == "|") {
        ASSERT_LT(result, results.size());
        numbers = convert(results[result++], DType::f64).to_vector<double>();
        at = 0;
        continue;
      }
      ASSERT_LT(at, numbers.size());
      const double wanted = std::stod(word);
      if (std::isnan(wanted))
        EXPECT_TRUE(std::isnan(numbers[at])) << "result " << result - 1 << " element " << at;
      else if (std::isfinite(wanted))
        EXPECT_NEAR(numbers[at], wanted, 1e-5 * std::max(scale, std::abs(wanted)))
            << "result " << result - 1 << " element " << at;
      else
        EXPECT_EQ(numbers[at], wanted) << "result " << result - 1 << " element " << at;
      ++at;
    }
    EXPECT_EQ(result, results.size());
  }
  EXPECT_EQ(seen, 22);
  if (left_out) skipped_in_stages("LAPACK in programs of JAX is custom calls");
}

TEST_F(Foreign, CustomCallsAreListedAndServedByName) {
  for (const std::string file : {"calls.mlir", "exported.mlir", "calls.jax", "portable.mlirbc"}) {
    SCOPED_TRACE(file);
    const Loaded program = load(folder + file);
    EXPECT_EQ(to_string(program.inputs()), "(f32[2,3])");
    EXPECT_EQ(to_string(program.outputs()), "(f32[], f32[2], s32[1])");
    EXPECT_EQ(program.required_functions(), (std::vector<std::string>{"demo.scale", "demo.two"}));
    ASSERT_EQ(program.sites().size(), 2u);
    const SavedSite& scale = program.sites()[0];
    EXPECT_EQ(
        scale.kind + " " + scale.name + " " + to_string(scale.operands) + to_string(scale.results),
        "call demo.scale (f32[2,3])(f32[2,3])");
    EXPECT_EQ(scale.effect, Effect::unordered);
    EXPECT_EQ(program.sites()[1].effect, Effect::pure);
    // Text tells lines of its own, bytecode those of the Python program.
    EXPECT_TRUE(to_string(scale.place)
                    .starts_with(file.ends_with(".mlir") ? file + ":" : "golden_stablehlo:"))
        << to_string(scale.place);
    EXPECT_EQ(scale.attributes.get<double>("factor"), 3.0);
    EXPECT_EQ(scale.attributes.get<double>("rate"), 0.5);
    EXPECT_EQ(scale.attributes.get<std::string>("name"), "a \"b\"\n");
    EXPECT_EQ(scale.attributes.get<std::vector<std::int64_t>>("axes"),
              (std::vector<std::int64_t>{0, 1}));
    EXPECT_THROW(program.run(waves(program)), CallbackError);

    register_function("demo.scale", [](const Attributes& a, View<const float> in, View<float> out) {
      for (std::int64_t i = 0; i < in.size(); ++i)
        out[i] = in[i] * static_cast<float>(a.get<double>("factor"));
    });
    register_function("demo.two",
                      [](View<const float> in, View<float> both, View<std::int32_t> count) {
                        both[0] = in[0];
                        both[1] = in[1];
                        count[0] = static_cast<std::int32_t>(in.size());
                      });
    const Tensors got = program.run(waves(program));
    double sum = 0;
    for (int i = 0; i < 6; ++i) sum += 6 * std::sin(static_cast<double>(i));
    EXPECT_NEAR(got[0].item<float>(), sum, 1e-5);
    EXPECT_NEAR(got[1].to_vector<float>()[1], 6 * std::sin(1.0), 1e-5);
    EXPECT_EQ(got[2].to_vector<std::int32_t>()[0], 7);
    register_function("demo.scale",
                      [](View<const float>, View<float>) { throw std::runtime_error("no scale"); },
                      {.replace = true});
    try {
      program.run(waves(program)).at(0).block_until_ready();
      ADD_FAILURE() << "it ran";
    } catch (const CallbackError& e) {
      EXPECT_NE(std::string(e.what()).find(std::string("call 'demo.scale' at ")), std::string::npos)
          << e.what();
      EXPECT_NE(std::string(e.what()).find("no scale"), std::string::npos) << e.what();
    }
    TearDown();
  }
}

TEST_F(Foreign, CollectivesOfOneDeviceAreRead) {
  const Loaded program = load_text(
      "module @f attributes {mhlo.num_partitions = 1 : i32} {\n"
      "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
      "%0 = \"stablehlo.all_reduce\"(%a) <{replica_groups = dense<0> : tensor<1x1xi64>}> ({\n"
      "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n"
      "%1 = stablehlo.add %x, %y : tensor<f32>\n"
      "stablehlo.return %1 : tensor<f32>\n"
      "}) : (tensor<2xf32>) -> tensor<2xf32>\n"
      "return %0 : tensor<2xf32> }}");
  EXPECT_EQ(program.run({tensor<float>({1, 2})}).at(0).to_vector<float>(),
            (std::vector<float>{1, 2}));
}

// Of what other platforms would do nothing is left, nor their custom calls.
TEST_F(Foreign, OneOfSeveralPlatformsIsTaken) {
  const Loaded program = load(folder + "platforms_linalg.jax");
  EXPECT_TRUE(program.sites().empty());
  EXPECT_EQ(program.stablehlo().find("cusolver"), std::string::npos);
  EXPECT_EQ(program.stablehlo().find("vhlo.case"), std::string::npos);
}

TEST_F(Foreign, CompositesNeedNoVersion) {
  EXPECT_EQ(load(folder + "composite.mlirbc")(tensor<float>({1, 2})).at(0).to_vector<float>(),
            (std::vector<float>{2, 4}));
}

TEST_F(Foreign, ArtifactsAreNotFoldedToSomethingElse) {
  std::string seen;
  for (const Tensor& t : load(folder + "folded.mlirbc").run({})) seen += to_string(t) + " ";
  EXPECT_EQ(seen, "[nan nan] [nan nan] [true true] [ true false] [nan nan] ");
}

TEST_F(Foreign, ArtifactsMoveIntegersOfLessThanAByteAsBytes) {
  std::string seen;
  for (const Tensor& t :
       load(folder + "packed.mlirbc")(tensor<std::int8_t>({{1, 2}, {3, 0}, {2, 1}})))
    seen += to_string(convert(t, DType::s32)) + "\n";
  EXPECT_EQ(seen,
            "[[1 3 2]\n [2 0 1]]\n[[1 3 2]\n [2 0 1]]\n[[14  4]\n [ 4  5]]\n"
            "[[1 3 2]\n [2 0 1]]\n[[2 4]\n [6 0]\n [4 2]]\n");
}

TEST_F(Foreign, AttributesAreTheSameOfTextAndOfBytes) {
  using Whole = std::vector<std::int64_t>;
  using Real = std::vector<double>;
  const Loaded program = load_text(
      "func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
      "%0 = stablehlo.custom_call @demo.scale(%a) {mhlo.backend_config = {"
      "splat = dense<2> : tensor<4xi64>, reals = dense<1.500000e+00> : tensor<3xf64>, "
      "matrix = dense<[[1, 2], [3, -4]]> : tensor<2x2xi32>, none = array<i64>, "
      "hidden = dense<\"0x0100000002000000\"> : tensor<2xi32>, inf = 0x7F800000 : f32, "
      "infs = dense<[0xFF800000, 1.000000e-01]> : tensor<2xf32>, tenth = 1.000000e-01 : f32, "
      "narrow = 1.000980e-01 : bf16, big = 18446744073709551615 : ui64, small = -3 : i8, "
      "byte = array<ui8: 255>, plain = 7, half = 0.5, empty = dense<> : tensor<0xf32>, "
      "list = [1, 2]}, api_version = 4 : i32} : (tensor<2xf32>) -> tensor<2xf32>\n"
      "return %0 : tensor<2xf32> }");
  const Attributes& a = program.sites().at(0).attributes;
  const auto bytes = [](std::string_view element, const auto&... values) {
    std::string out;
    (out.append(reinterpret_cast<const char*>(&values), sizeof values), ...);
    return [=](std::size_t count) {
      return imported::numbers_of_bytes(element, out, out.size() / sizeof...(values), count)
          .value();
    };
  };
  const auto& items = a.items();
  EXPECT_EQ(items.at("splat"), bytes("i64", std::int64_t{2})(4));
  EXPECT_EQ(items.at("splat"), Attribute(Whole{2, 2, 2, 2}));
  EXPECT_EQ(items.at("reals"), bytes("f64", 1.5)(3));
  EXPECT_EQ(items.at("reals"), Attribute(Real{1.5, 1.5, 1.5}));
  EXPECT_EQ(items.at("matrix"), bytes("i32", 1, 2, 3, -4)(4));
  EXPECT_EQ(items.at("none"), Attribute(Whole{}));
  EXPECT_EQ(items.at("hidden"), Attribute(Whole{1, 2}));
  EXPECT_EQ(items.at("infs"), bytes("f32", -INFINITY, 0.1f)(2));
  EXPECT_EQ(items.at("byte"), bytes("ui8", std::uint8_t{255})(1));
  EXPECT_EQ(items.at("empty"), Attribute(Real{}));
  EXPECT_EQ(a.get<double>("inf"), INFINITY);
  EXPECT_EQ(a.get<double>("tenth"), double{0.1f});
  EXPECT_EQ(a.get<double>("narrow"), 0.10009765625);
  EXPECT_EQ(a.get<std::int64_t>("big"), -1);  // its bits
  EXPECT_EQ(a.get<std::int64_t>("small"), -3);
  EXPECT_EQ(a.get<std::int64_t>("plain"), 7);
  EXPECT_EQ(a.get<double>("half"), 0.5);
  EXPECT_EQ(a.get<std::string>("list"), "[1, 2]");
}

TEST_F(Foreign, LapackIsGivenNothingThatItDidNotAskFor) {
  if (skipped_in_stages("LAPACK in programs of JAX is custom calls")) return;
  using Words = std::vector<std::string>;
  struct Case {
    const char *target, *attributes;
    Words operands, results;  // types
    const char* why;
  };
  const std::string square = "tensor<2x2xf32>", integer = "tensor<i32>";
  for (const Case& c : {
           Case{"spotrf",
                "uplo = 76 : ui8",
                {"tensor<2x3xf32>"},
                {"tensor<2x3xf32>", integer},
                "2 by 3, not square"},
           Case{"spotrf", "uplo = 88 : ui8", {square}, {square, integer}, "one of the letters LU"},
           Case{"spotrf",
                "uplo = 76 : i64",
                {square},
                {square, integer},
                "attribute 'uplo' is missing"},
           Case{"dpotrf",
                "uplo = 76 : ui8",
                {square},
                {square, integer},
                "operand 0 must be f64[2,2], got f32[2,2]"},
           Case{"spotrf",
                "uplo = 76 : ui8",
                {square},
                {"tensor<1x2xf32>", integer},
                "result 0 must be f32[2,2]"},
           Case{"spotrf", "uplo = 76 : ui8", {square}, {square}, "1 operands and 1 results"},
           Case{"sgetrf",
                "",
                {"tensor<3x2x2xf32>"},
                {"tensor<3x2x2xf32>", "tensor<3x2xi32>", integer},
                "result 2 must be s32[3]"},
           Case{"sgetrf",
                "",
                {"tensor<f32>"},
                {"tensor<f32>", integer, integer},
                "operand 0 has 0 axes"},
           Case{"sorgqr",
                "",
                {"tensor<2x3xf32>", "tensor<3xf32>"},
                {"tensor<2x3xf32>"},
                "3 columns of 2 rows"},
           Case{"sgehrd",
                "low = 1 : i32, high = 9 : i32",
                {square},
                {square, "tensor<1xf32>", integer},
                "rows 1 to 9"},
       }) {
    SCOPED_TRACE(c.why);
    Words arguments, names, returned;
    for (std::size_t i = 0; i < c.operands.size(); ++i) {
      names.push_back(fmt::format("%a{}", i));
      arguments.push_back(names.back() + ": " + c.operands[i]);
    }
    for (std::size_t i = 0; i < c.results.size(); ++i) returned.push_back(fmt::format("%0#{}", i));
    const Loaded program = load_text(fmt::format(
        "func.func @main({}) -> ({}) {{\n  %0:{} = stablehlo.custom_call @lapack_{}_ffi({}) "
        "{{api_version = 4 : i32, backend_config = "
        "{{{}}}}} : ({}) -> ({})\n  return {} : {}\n}}",
        fmt::join(arguments, ", "), fmt::join(c.results, ", "), c.results.size(), c.target,
        fmt::join(names, ", "), c.attributes, fmt::join(c.operands, ", "),
        fmt::join(c.results, ", "), fmt::join(returned, ", "), fmt::join(c.results, ", ")));
    EXPECT_TRUE(program.required_functions().empty());
    Tensors given;
    for (const Type& t : program.inputs()) given.push_back(zeros(t));
    expect_error<Error>([&] { program.run(given).at(0).block_until_ready(); }, {c.why});
  }
}

TEST_F(Foreign, CallsInLoopsAreMadeEachTime) {
  int calls = 0;
  register_function("demo.add", [&](View<const float> in, View<float> out) {
    ++calls;
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 10;
  });
  for (const char* file : {"loop.mlir", "loop.jax"}) {
    const Loaded program = load(folder + file);
    EXPECT_EQ(program.run({tensor<float>({0, 1, 2})})[0].to_vector<float>(),
              (std::vector<float>{55, 56, 57}));
    EXPECT_EQ(std::exchange(calls, 0), 5);
  }
}

TEST_F(Foreign, TokensOfOrderedCallbacksBeginAndEndWithTheProgram) {
  RecordProperty("covers", "ORDER-06");
  std::vector<std::int64_t> order;
  register_function(
      "xla_ffi_python_cpu_callback",
      [&](const Attributes& a, std::span<const AnyView> in, std::span<const AnyMutableView> out) {
        order.push_back(a.get<std::int64_t>("index"));
        ASSERT_EQ(in.size(), 1u);
        for (std::size_t i = 0; i < 3 && !out.empty(); ++i)
          out[0].as<float>()[static_cast<std::int64_t>(i)] =
              in[0].as<float>()[static_cast<std::int64_t>(i)] * 10;
      });
  const Loaded program = load(folder + "ordered.mlir");
  EXPECT_EQ(to_string(program.inputs()) + to_string(program.outputs()), "(f32[3])(f32[3])");
  ASSERT_EQ(program.sites().size(), 4u);
  for (const SavedSite& s : program.sites()) EXPECT_EQ(s.effect, Effect::ordered);
  for (int run = 0; run < 2; ++run) {
    order.clear();
    const auto got = program.run({tensor<float>({1, 2, 3})})[0].to_vector<float>();
    EXPECT_EQ(got, (std::vector<float>{((20 * 10 + 1) * 10 + 1) - 10, ((40 * 10 + 1) * 10 + 1) - 20,
                                       ((60 * 10 + 1) * 10 + 1) - 30}));
    // Two chains: the prints' own, and that of the calls.
    std::erase(order, 2);
    EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 1, 3}));
  }
}

TEST_F(Foreign, DonatedArgumentsAreLent) {
  for (const char* attributes :
       {"{tf.aliasing_output = 0 : i32}",
        "{jax.buffer_donor = true, mhlo.sharding = \"{replicated}\"}", "{}"}) {
    const Loaded program = load_text(
        fmt::format("func.func @main(%a: tensor<64xf32> {}, %b: tensor<f32>) -> tensor<64xf32> {{\n"
                    "%0 = stablehlo.add %a, %a : tensor<64xf32>\nreturn %0 : tensor<64xf32>\n}}",
                    attributes));
    const Tensor x = broadcast_to(Tensor(3.0f), {64});
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(program(x, Tensor(1.0f)).at(0).to_vector<float>()[5], 6) << attributes;
    EXPECT_EQ(x.to_vector<float>()[5], 3) << attributes;
  }
}

TEST_F(Foreign, ElementsLieRowMajorWhateverTheTextSays) {
  const Tensor x = tensor<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  for (const char* mode : {"{0,1}", "{1,0}", "auto", "default"}) {
    const std::string said = fmt::format("mhlo.layout_mode = \"{}\"", mode);
    for (const auto& [of_argument, of_result] :
         {std::pair<std::string, std::string>{said, ""}, {"", said}, {said, said}}) {
      const Loaded program = load_text(fmt::format(
          "func.func @main(%a: tensor<2x3xf32> {{{}}}) -> (tensor<2x3xf32> {{jax.result_info = "
          "\"y\"}}, tensor<2x3xf32> {{{}}}) {{\n%0 = stablehlo.add %a, %a : tensor<2x3xf32>\n"
          "return %a, %0 : tensor<2x3xf32>, tensor<2x3xf32>\n}}",
          of_argument, of_result));
      const auto y = program(x);
      EXPECT_EQ(y[0].to_vector<float>(), x.to_vector<float>()) << mode;
      EXPECT_EQ(y[1].to_vector<float>(), (std::vector<float>{0, 2, 4, 6, 8, 10})) << mode;
    }
  }
}

TEST_F(Foreign, TokensAreTakenOffWhateverTheyAreAmong) {
  register_function("demo.add", [](View<const float> in, View<float> out) { out[0] = in[0] + 1; });
  const std::string call =
      "%1:2 = stablehlo.custom_call @demo.add(%a, %t) {has_side_effect = true} : (tensor<f32>, "
      "!stablehlo.token) -> "
      "(tensor<f32>, !stablehlo.token)\n";
  const std::string token = "!stablehlo.token";
  for (const std::string& text : {
           "func.func @main(%a: tensor<f32>, %t: " + token + ") -> (tensor<f32>, " + token +
               ") {\n" + call + "return %1#0, %1#1 : tensor<f32>, " + token + "\n}",
           "func.func @main(%t: " + token +
               " {jax.token = true}, %a: tensor<f32>) -> tensor<f32> attributes {x = 1} {\n" +
               call + "return %1#0 : tensor<f32>\n}",
       })
    EXPECT_EQ(load_text(text)(Tensor(2.0f)).at(0).item<float>(), 3) << text;
  int calls = 0;
  register_function("demo.say", [&](float) { ++calls; });
  const Loaded nothing =
      load_text("func.func @main(%a: tensor<f32>, %t: " + token + ") -> " + token +
                " {\n%1 = stablehlo.custom_call @demo.say(%t, %a) {has_side_effect = true} : (" +
                token + ", tensor<f32>) -> " + token + "\nreturn %1 : " + token + "\n}");
  EXPECT_TRUE(nothing(Tensor(2.0f)).empty());
  barrier();
  EXPECT_EQ(calls, 1);
  unregister_function("demo.say");
  expect_error<Error>([&] { load_text("func.func @main() -> " + token + " { }", "name"); },
                      {"name:1: @main does not return its results"});
  expect_error<Error>(
      [&] {
        load_text("func.func @main() -> " + token + " {\nreturn %1, %2 : " + token + "\n}", "name");
      },
      {"name:2: @main does not return its results"});
}

TEST_F(Foreign, SignaturesOfFunctionsAreChecked) {
  register_function("demo.add", [](View<const double>, View<double>) {});
  EXPECT_THROW(load(folder + "loop.mlir").run({tensor<float>({0, 1, 2})}), Error);
}

// XLA folds what it knows, and ended the process with SIGFPE.
TEST_F(Foreign, DivisionsThatXlaCouldFoldAreMadeWhenTheyRun) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto main = [](const std::string& type, const std::string& body) {
    return fmt::format(
        "module @m {{\n  func.func public @main(%x: {0}) -> {0} {{\n{1}\n    "
        "return %r : {0}\n  }}\n}}\n",
        type, body);
  };
  const auto constants = [](const char* op, const char* type, const char* a, const char* b) {
    return fmt::format(
        "    %a = stablehlo.constant dense<{2}> : {1}\n"
        "    %b = stablehlo.constant dense<{3}> : {1}\n"
        "    %r = stablehlo.{0} %a, %b : {1}",
        op, type, a, b);
  };
  struct Case {
    std::string text;
    std::vector<int> want;
  };
  const std::string two = "tensor<2xi32>";
  const std::vector<Case> cases = {
      {main(two, constants("divide", "tensor<2xi32>", "[5, -5]", "0")), {-1, -1}},
      {main(two, constants("remainder", "tensor<2xi32>", "[5, -5]", "0")), {5, -5}},
      {main(two, constants("divide", "tensor<2xi32>", "-2147483648", "-1")),
       {std::numeric_limits<int>::min(), std::numeric_limits<int>::min()}},
      {main(two, constants("remainder", "tensor<2xi32>", "-2147483648", "-1")), {0, 0}},
      {main("tensor<2xui8>", constants("divide", "tensor<2xui8>", "7", "0")), {255, 255}},
      {main("tensor<2xi8>",
            "    %c = stablehlo.constant dense<[-1, -128]> : tensor<2xi8>\n"
            "    %r = stablehlo.count_leading_zeros %c : tensor<2xi8>"),
       {0, 0}},
      // what becomes a constant, in MLIR's generic form too, and what is called by a name of ours
      {main(two,
            "    %hidden_0 = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n"
            "    %z = stablehlo.subtract %x, %x : tensor<2xi32>\n"
            "    %r = \"stablehlo.remainder\"(%hidden_0, %z) : (tensor<2xi32>, "
            "tensor<2xi32>) -> tensor<2xi32>"),
       {1, 2}},
      {main(two,
            "    %c = stablehlo.constant dense<0> : tensor<i32>\n"
            "    %a = stablehlo.constant dense<[1, 2]> : tensor<2xi32>\n"
            "    %w:2 = \"stablehlo.while\"(%c, %a) ({\n"
            "    ^bb0(%i: tensor<i32>, %v: tensor<2xi32>):\n"
            "      %n = stablehlo.constant dense<2> : tensor<i32>\n"
            "      %t = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> "
            "tensor<i1>\n"
            "      \"stablehlo.return\"(%t) : (tensor<i1>) -> ()\n    }, {\n"
            "    ^bb0(%i: tensor<i32>, %v: tensor<2xi32>):\n"
            "      %one = stablehlo.constant dense<1> : tensor<i32>\n"
            "      %j = stablehlo.add %i, %one : tensor<i32>\n"
            "      %z = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> "
            "tensor<2xi32>\n"
            "      %q = stablehlo.divide %a, %z {mhlo.frontend_attributes = {a = \"b : c\"}} "
            ": tensor<2xi32>\n"
            "      \"stablehlo.return\"(%j, %q) : (tensor<i32>, tensor<2xi32>) -> ()\n"
            "    }) : (tensor<i32>, tensor<2xi32>) -> (tensor<i32>, tensor<2xi32>)\n"
            "    %r = stablehlo.add %w#1, %x : tensor<2xi32>"),
       {-1, -1}},
      {text_in("divided.mlirbc"), {-1, -1, 2, 3}},
  };
  for (const Case& c : cases)
    EXPECT_EXIT(
        {
          const Loaded program = load_text(c.text);
          const Tensors y = program.run({zeros(program.inputs().at(0))});
          std::vector<int> got;
          for (const Tensor& t : y)
            for (const int n : convert(t, DType::s32).to_vector<int>()) got.push_back(n);
          EXPECT_EQ(got, c.want);
          if (c.text.starts_with("module")) {  // what was hidden may be hidden again
            EXPECT_NO_THROW(load_text(program.stablehlo()).run({zeros(program.inputs().at(0))}));
          }
          std::_Exit(testing::Test::HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "")
        << "case " << &c - cases.data();
}

}  // namespace
}  // namespace postern::test
