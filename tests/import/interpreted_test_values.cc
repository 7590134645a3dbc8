// What values are, however the text writes them: inside of other programs as alone.
#include <fmt/format.h>
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <array>

#include "foreign_test.h"
#include "platform/platform.h"

namespace postern::test {
namespace {

/// The program's results, alone and inside of another, which must be of one kind and bytes.
Tensors both(const std::string& text) {
  const Loaded program = load_text(text, "values.mlir");
  const Tensors alone = program.run({});
  const Tensors inside = jit([&] { return program.run({}); })();
  EXPECT_EQ(alone.size(), inside.size());
  for (std::size_t i = 0; i < std::min(alone.size(), inside.size()); ++i) {
    EXPECT_EQ(to_string(alone[i].type()), to_string(inside[i].type()));
    std::string a(alone[i].type().byte_size(), '\0'), b = a;
    alone[i].read(a.data());
    inside[i].read(b.data());
    EXPECT_EQ(a, b) << i << ": " << alone[i] << " " << inside[i];
  }
  return inside;
}

std::string constant(const std::string& dense, const std::string& type) {
  return "func.func @main() -> " + type + " {\n  %c = stablehlo.constant " + dense + "  :  " +
         type + "\n  return %c : " + type + "\n}\n";
}

// One number for all elements, of so few that their bits would fill no more than its byte.
TEST(InterpretedValues, OneBooleanIsNoRowOfBits) {
  EXPECT_EQ(both(constant("dense<true>", "tensor<3xi1>"))[0].to_vector<bool>(),
            (std::vector<bool>{true, true, true}));
  EXPECT_EQ(both(constant("dense<[true, false, true]>", "tensor<3xi1>"))[0].to_vector<bool>(),
            (std::vector<bool>{true, false, true}));
  both(constant("dense<true>", "tensor<2x8xi1>"));
}

TEST(InterpretedValues, ConstantsOfMlirsOwnAreValues) {
  EXPECT_EQ(both(R"(func.func @main() -> tensor<2xi32> {
  %c = arith.constant dense<[1, 2]> : tensor<2xi32>
  %0 = stablehlo.add %c, %c : tensor<2xi32>
  return %0 : tensor<2xi32>
})")[0]
                .to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{2, 4}));
}

TEST(InterpretedValues, FloatsAreNumbersOrBits) {
  both(constant("dense<[0xFF80, -2.5, 0x0001, 2.5, 0x7FC0]>", "tensor<5xbf16>"));
  both(constant("dense<[0.0, -0.0, 0.125, 3.1415, 0x07, 0xFF]>", "tensor<6xf8E4M3FN>"));
  both(constant("dense<0x81>", "tensor<4xf8E5M2>"));
  both(constant("dense<[1.5, 0x7FC00000]>", "tensor<2xf32>"));
}

TEST(InterpretedValues, NumbersThatATypeLacksAreThoseOfTheProgramAlone) {
  both(constant("dense<[0.0, 1.0, 0.1, 3.1415, 0x00, 0x80]>", "tensor<6xf8E8M0FNU>"));
  EXPECT_EQ(both(R"(func.func @main() -> tensor<3xi1> {
  %z = stablehlo.constant dense<[(-1.0, 0.0), (0.0, 1.0), (1.0, 0.0)]> : tensor<3xcomplex<f64>>
  %0 = stablehlo.convert %z : (tensor<3xcomplex<f64>>) -> tensor<3xi1>
  return %0 : tensor<3xi1>
})")[0]
                .to_vector<bool>(),
            (std::vector<bool>{true, false, true}));
}

TEST(InterpretedValues, AMappedBodyIsOfAllElements) {
  const Loaded program = load_text(R"(
func.func @main(%x: tensor<2x2xf32>, %y: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %0 = "stablehlo.map"(%x, %y) <{dimensions = array<i64: 0, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %1 = stablehlo.multiply %a, %b : tensor<f32>
    %2 = stablehlo.sine %1 : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
})");
  const Tensors x = waves(program);
  const Tensors inside = jit([&](const Tensors& v) { return program.run(v); })(x);
  EXPECT_EQ(inside[0].to_vector<float>(), program.run(x)[0].to_vector<float>());
  const Tensor g = grad([&](Tensor v) { return sum(program(v, x[1])[0]); })(x[0]);
  const std::vector<float> wanted = (cos(x[0] * x[1]) * x[1]).to_vector<float>();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(g.to_vector<float>()[i], wanted[i], 1e-6);
}

// A body that is no order, as where a NaN is: the pairs of a window are as XLA takes them.
TEST(InterpretedValues, ASelectionGoesAlongItsWindow) {
  const Loaded program = load_text(R"(
func.func @main(%x: tensor<8xf32>, %source: tensor<2xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.select_and_scatter"(%x, %source, %zero) <{
    window_dimensions = array<i64: 4>, window_strides = array<i64: 4>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %ge = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %ge : tensor<i1>
  }, {
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %sum = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %sum : tensor<f32>
  }) : (tensor<8xf32>, tensor<2xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
})",
                                   "select.mlir");
  const float nan = std::nanf("");
  const Tensor x = tensor<float>({5, 1, nan, 2, nan, 3, 4, 4}), source = tensor<float>({1, 10});
  const std::vector<float> alone = program.run({x, source})[0].to_vector<float>();
  EXPECT_EQ(alone, (std::vector<float>{0, 0, 0, 1, 0, 0, 10, 0}));
  const auto f = [&](Tensor s) { return program.run({x, s})[0]; };
  const auto [y, moves] = jvp(f, std::tuple{source}, std::tuple{source});
  EXPECT_EQ(y.to_vector<float>(), alone);
  EXPECT_EQ(moves.to_vector<float>(), alone);
}

TEST(InterpretedValues, TuplesAreTheirElements) {
  const Tensors y = both(R"(func.func @main() -> (tensor<2xf32>, tensor<i64>) {
  %a = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = stablehlo.constant dense<3> : tensor<i64>
  %c = stablehlo.tuple %b : tuple<tensor<i64>>
  %d = stablehlo.tuple %a, %c : tuple<tensor<2xf32>, tuple<tensor<i64>>>
  %0 = stablehlo.get_tuple_element %d[0]
    : (tuple<tensor<2xf32>, tuple<tensor<i64>>>) -> tensor<2xf32>
  %1 = stablehlo.get_tuple_element %d[1]
    : (tuple<tensor<2xf32>, tuple<tensor<i64>>>) -> tuple<tensor<i64>>
  %2 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<i64>>) -> tensor<i64>
  return %0, %2 : tensor<2xf32>, tensor<i64>
})");
  EXPECT_EQ(y.at(1).item<std::int64_t>(), 3);
}

// Its last operand is where it is on the mesh, which the function is not given.
TEST(InterpretedValues, ACallOnAMeshOfOneDevice) {
  const auto add = [](const CallInfo& info, float v) {
    return v + 10 + static_cast<float>(info.coordinates.size());
  };
  register_function("interpreted_test.add", add);
  const Loaded program = load_text(
      "func.func @main(%x: tensor<f32>) -> tensor<f32> {\n"
      "  %at = stablehlo.constant dense<0> : tensor<ui32>\n"
      "  %0 = stablehlo.custom_call @postern_guest(%x, %at) {api_version = 4 : i32,\n"
      "    backend_config = {function = \"interpreted_test.add\", name = \"add\",\n"
      "      kind = \"call\", axes = \"1 x\"}} : (tensor<f32>, tensor<ui32>) -> tensor<f32>\n"
      "  return %0 : tensor<f32>\n}\n");
  const auto f = [&](Tensor x) { return program(x)[0] * 2.0f; };
  EXPECT_EQ(program(Tensor(1.0f))[0].item<float>(), 12);
  EXPECT_EQ(jit(f)(Tensor(1.0f)).item<float>(), 24);
  unregister_function("interpreted_test.add");
}

/// How often a program says it.
std::size_t times_in(const std::string& text, const std::string& word) {
  std::size_t out = 0;
  for (std::size_t i = text.find(word); i != text.npos; i = text.find(word, i + 1)) ++out;
  return out;
}

// Equal random numbers are drawn twice, and those that nobody uses too.
TEST(InterpretedValues, DrawsAreNotMerged) {
  std::string text =
      "func.func @main(%low: tensor<f32>) -> (tensor<8xf32>, tensor<8xf32>) {\n"
      "  %high = stablehlo.constant dense<4.0> : tensor<f32>\n"
      "  %dims = stablehlo.constant dense<8> : tensor<1xi64>\n";
  for (const char* result : {"%0", "%1", "%2"})
    text += fmt::format(
        "  {} = stablehlo.rng %low, %high, %dims, distribution = UNIFORM : (tensor<f32>, "
        "tensor<f32>, tensor<1xi64>) -> tensor<8xf32>\n",
        result);
  const Loaded program = load_text(text + "  return %0, %1 : tensor<8xf32>, tensor<8xf32>\n}\n");
  const auto f = [&](const Tensors& x) { return program.run(x); };
  const Tensors low = {Tensor(2.0f)};
  EXPECT_EQ(times_in(to_string(jit(f).program(low)), "name=stablehlo.rng"), 3u);
  for (const Tensor& drawn : jit(f)(low))
    for (const float number : drawn.to_vector<float>()) {
      EXPECT_GE(number, 2);
      EXPECT_LE(number, 4);
    }
}

// Its options stand in a dictionary, whose keys may be in quotes.
TEST(InterpretedValues, TheSmallestAreNotTheLargest) {
  for (const char* largest :
       {"largest = true", "\"largest\" = true", "largest = false", "\"largest\" = false"}) {
    SCOPED_TRACE(largest);
    const Loaded program = load_text(fmt::format(
        "func.func @main(%x: tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>) {{\n"
        "  %0:2 = stablehlo.custom_call @mhlo.topk(%x) {{mhlo.attributes = {{k = 2 : i64, {}}},\n"
        "    mhlo.version = 1 : i64}} : (tensor<4xf32>) -> (tensor<2xf32>, tensor<2xi32>)\n"
        "  return %0#0, %0#1 : tensor<2xf32>, tensor<2xi32>\n}}\n",
        largest));
    const auto f = jit([&](const Tensors& x) { return program.run(x); });
    const Tensors x = {tensor<float>({1, 4, 2, 3})};
    const bool as_written = times_in(to_string(f.program(x)), "name=stablehlo.custom_call") == 1;
    EXPECT_EQ(as_written, has(largest, "false"));
    if (!as_written) {
      EXPECT_EQ(f(x).at(0).to_vector<float>(), (std::vector<float>{4, 3}));
    }
  }
}

// As JAX sorts floats, but for the numbers in the body: then it is another order.
TEST(InterpretedValues, ASortsConstantsSayItsOrder) {
  const float nan = std::nanf("");
  const auto order = [](const char* zero, const char* in_its_place, const char* last) {
    std::string text = R"(
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
)";
    for (const char side : {'a', 'b'})
      text += fmt::format(R"(
    %zero_{0} = stablehlo.constant dense<{1}> : tensor<f32>
    %is_{0} = stablehlo.compare EQ, %{0}, %zero_{0}, FLOAT : ({4}, {4}) -> tensor<i1>
    %place_{0} = stablehlo.constant dense<{2}> : tensor<f32>
    %put_{0} = stablehlo.select %is_{0}, %place_{0}, %{0} : tensor<i1>, tensor<f32>
    %nan_{0} = stablehlo.compare NE, %{0}, %{0}, FLOAT : ({4}, {4}) -> tensor<i1>
    %last_{0} = stablehlo.constant dense<{3}> : tensor<f32>
    %key_{0} = stablehlo.select %nan_{0}, %last_{0}, %put_{0} : tensor<i1>, tensor<f32>
)",
                          side, zero, in_its_place, last, "tensor<f32>");
    return load_text(text + R"(
    %5 = stablehlo.compare LT, %key_a, %key_b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %5 : tensor<i1>
  }) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
})");
  };
  const auto sorted = [&](const Loaded& program, bool as_text) {
    const Tensor x = tensor<float>({3, nan, -1, 2});
    const auto f = jit([&](Tensor v) { return program(v)[0]; });
    EXPECT_EQ(has(to_string(f.program(x)), "name=stablehlo.sort"), as_text);
    std::vector<float> alone = program(x)[0].to_vector<float>(), inside = f(x).to_vector<float>();
    for (std::vector<float>* numbers : {&alone, &inside})
      for (float& number : *numbers)
        if (std::isnan(number)) number = 1e9f;
    EXPECT_EQ(inside, alone);
    return inside;
  };
  const char *zero = "0.000000e+00", *last = "0x7FC00000";
  EXPECT_EQ(sorted(order(zero, zero, last), false), (std::vector<float>{-1, 2, 3, 1e9f}));
  EXPECT_EQ(sorted(order("2.0", "9.0", last), true), (std::vector<float>{-1, 3, 2, 1e9f}));
  sorted(order(zero, zero, "0xFFC00000"), true);
  sorted(order(zero, zero, zero), true);
}

// Where products may be rounded, a program's own word on its precision stands, also for what is
// made of it.
TEST(InterpretedValues, ProductsKeepTheirPrecision) {
  const struct Rounded {
    Rounded() { internal::platforms::let_products_be_rounded(true); }  // Config::tf32
    ~Rounded() { internal::platforms::let_products_be_rounded(false); }
  } rounded;
  const auto body = [](const std::string& operation, const char* types) {
    return fmt::format(
        "func.func @main(%x: {0}, %y: {0}) -> {0} {{\n  %0 = {1}\n  return %0 : {0}\n}}\n", types,
        operation);
  };
  const char* const matrix = "tensor<2x2xf32>";
  const char* const image = "tensor<1x1x3xf32>";
  const auto dot = [&](const std::string& precision) {
    return body("stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]" + precision +
                    " : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>",
                matrix);
  };
  const auto general = [&](const std::string& precision) {
    return body(
        "\"stablehlo.dot_general\"(%x, %y) {dot_dimension_numbers = #stablehlo.dot<"
        "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>" +
            precision + "} : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>",
        matrix);
  };
  const auto conv = [&](const std::string& precision) {
    return body(
        "stablehlo.convolution(%x, %y) dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0], "
        "window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : "
        "i64" +
            precision + "} : (tensor<1x1x3xf32>, tensor<1x1x3xf32>) -> tensor<1x1x3xf32>",
        image);
  };
  const std::string of_attribute =
      ", precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision HIGHEST>]";
  const auto highest = [](const Loaded& program, const Tensor& x) {
    const auto f = [&](Tensor v, Tensor w) { return program(v, w)[0]; };
    const auto slopes = grad<0, 1>([&](Tensor v, Tensor w) { return sum(sin(f(v, w))); });
    const Tensor each = stack({x, x});
    return std::array{times_in(jit(f).lower(x, x).stablehlo(), "HIGHEST"),
                      times_in(jit(slopes).lower(x, x).stablehlo(), "HIGHEST"),
                      times_in(jit(vmap(f)).lower(each, each).stablehlo(), "HIGHEST")};
  };
  const Tensor x = ones(type<float>({2, 2})), row = ones(type<float>({1, 1, 3}));
  const std::array<std::size_t, 3> none = {0, 0, 0}, all = {2, 6, 2};
  EXPECT_EQ(highest(load_text(dot("")), x), none);
  EXPECT_EQ(highest(load_text(dot(", precision = [HIGH, HIGH]")), x), none);
  EXPECT_EQ(highest(load_text(dot(", precision = [HIGHEST, HIGHEST]")), x), all);
  EXPECT_EQ(highest(load_text(general(of_attribute)), x), all);
  EXPECT_EQ(highest(load_text(conv("")), row), none);
  EXPECT_EQ(highest(load_text(conv(of_attribute)), row), all);
}

std::vector<float> noted;
xla::ffi::Error note_values(xla::ffi::Buffer<xla::ffi::F32> in, xla::ffi::Dictionary) {
  noted.insert(noted.end(), in.typed_data(), in.typed_data() + in.element_count());
  return xla::ffi::Error::Success();
}
XLA_FFI_DEFINE_HANDLER_SYMBOL(interpreted_test_note, note_values,
                              xla::ffi::Ffi::Bind().Arg<xla::ffi::Buffer<xla::ffi::F32>>().Attrs());

TEST(InterpretedValues, WhatHasASideEffectRunsThoughItGivesNothing) {
  if (skipped_in_stages("targets are custom calls")) return;
  register_ffi_handler("interpreted_test_note", interpreted_test_note);
  const Loaded program = load_text(
      "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
      "  stablehlo.custom_call @interpreted_test_note(%x) {api_version = 4 : i32,\n"
      "    backend_config = {}, has_side_effect = true} : (tensor<2xf32>) -> ()\n"
      "  %0 = stablehlo.multiply %x, %x : tensor<2xf32>\n"
      "  return %0 : tensor<2xf32>\n}\n");
  const auto f = [&](Tensor v) { return program(v)[0]; };
  const auto shown = [&](const auto& run) {
    noted.clear();
    run();
    barrier();
    std::ranges::sort(noted);
    return noted;
  };
  const Tensor x = tensor<float>({1, 2});
  const std::vector<float> once = {1, 2}, each = {1, 2, 3, 4};
  EXPECT_EQ(shown([&] { f(x).to_vector<float>(); }), once) << "alone";
  EXPECT_EQ(shown([&] { jit(f)(x).to_vector<float>(); }), once);
  EXPECT_EQ(shown([&] { jit(vmap(f))(stack({x, x + 2.0f})).to_vector<float>(); }), each);
  // What all elements share is done for each, and for none that has come to its end.
  const std::vector<float> twice = {1, 1, 2, 2}, thrice = {1, 1, 1, 2, 2, 2};
  const auto shares =
      jit(vmap([&](Tensor v, Tensor all) { return v + f(all); }, {.in_axes = {0, unmapped}}));
  EXPECT_EQ(shown([&] { shares(stack({x, x}), x).to_vector<float>(); }), twice);
  for (const bool shared : {true, false}) {
    const auto repeats = jit(vmap(
        [&](Tensor times, Tensor v, Tensor all) {
          const auto goes_on = [](std::pair<Tensor, Tensor> s) { return s.first > 0; };
          const auto step = [&](std::pair<Tensor, Tensor> s) {
            return std::pair{s.first - 1, s.second + f(shared ? all : v)};
          };
          return while_loop(goes_on, step, std::pair{times, v}).second;
        },
        {.in_axes = {0, 0, unmapped}}));
    EXPECT_EQ(shown([&] {
                EXPECT_EQ(repeats(tensor<int>({1, 2}), stack({x, x}), x).to_vector<float>(),
                          (std::vector<float>{2, 6, 3, 10}));
              }),
              thrice)
        << shared;
  }
  const auto slope = jit(grad([&](Tensor v) { return sum(f(v)); }));
  EXPECT_FALSE(shown([&] {
                 EXPECT_EQ(slope(x).to_vector<float>(), (std::vector<float>{2, 4}));
               }).empty());
}

}  // namespace
}  // namespace postern::test
