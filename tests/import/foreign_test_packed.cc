// Arrays with elements of less than a byte in programs from elsewhere.
#include <fmt/format.h>

#include "foreign_test.h"

namespace postern::test {
namespace {

/// %r of %a, tensor<2x3x4xE>, and of %i, tensor<2x1xi32>.
struct Moving {
  const char *name, *operation, *result;
};
constexpr Moving moving[] = {
    {"transpose", "%r = stablehlo.transpose %a, dims = [2, 0, 1] : (tensor<2x3x4xE>) -> R",
     "tensor<4x2x3xE>"},
    {"generic",
     "%r = \"stablehlo.transpose\"(%a) <{permutation = array<i64: 1, 0, 2>}> : (tensor<2x3x4xE>) "
     "-> R",
     "tensor<3x2x4xE>"},
    {"in_place", "%r = stablehlo.transpose %a, dims = [0, 1, 2] : (R) -> R", "tensor<2x3x4xE>"},
    {"of_none",
     "%n = stablehlo.slice %a [0:2, 1:1, 0:4] : (tensor<2x3x4xE>) -> tensor<2x0x4xE>\n"
     "%r = stablehlo.transpose %n, dims = [1, 2, 0] : (tensor<2x0x4xE>) -> R",
     "tensor<0x4x2xE>"},
    {"broadcast", "%r = stablehlo.broadcast_in_dim %a, dims = [3, 1, 0] : (tensor<2x3x4xE>) -> R",
     "tensor<4x3x2x2xE>"},
    {"gather",
     "%r = \"stablehlo.gather\"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, "
     "2], collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>, slice_sizes = "
     "array<i64: 2, 1, 4>}> : (tensor<2x3x4xE>, tensor<2x1xi32>) -> R",
     "tensor<2x2x4xE>"},
    {"dot",
     "%r = stablehlo.dot_general %a, %a, batching_dims = [1] x [1], contracting_dims = [2] x [2] "
     ": (tensor<2x3x4xE>, tensor<2x3x4xE>) -> R",
     "tensor<3x2x2xE>"},
    {"dot_of_few",
     "%r = stablehlo.dot_general %a, %a, contracting_dims = [0] x [0] : (tensor<2x3x4xE>, "
     "tensor<2x3x4xE>) -> R",
     "tensor<3x4x3x4xE>"},
    {"convolution",
     "%r = stablehlo.convolution(%a, %a) dim_numbers = [b, 0, f]x[o, 0, i]->[f, b, 0], window = {} "
     "{batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x3x4xE>, "
     "tensor<2x3x4xE>) -> R",
     "tensor<2x2x1xE>"},
    {"converted",
     "%w = stablehlo.convert %a : (tensor<2x3x4xE>) -> tensor<2x3x4xf32>\n"
     "%t = stablehlo.transpose %w, dims = [2, 1, 0] : (tensor<2x3x4xf32>) -> tensor<4x3x2xf32>\n"
     "%r = stablehlo.convert %t : (tensor<4x3x2xf32>) -> R",
     "tensor<4x3x2xE>"},
    {"in_loop",
     "%z = stablehlo.constant dense<0> : tensor<i32>\n%o = stablehlo.constant dense<1> : "
     "tensor<i32>\n%m = stablehlo.constant dense<5> : tensor<i32>\n"
     "%s = stablehlo.slice %a [0:1, 0:2, 1:3] : (tensor<2x3x4xE>) -> tensor<1x2x2xE>\n"
     "%b = stablehlo.reshape %s : (tensor<1x2x2xE>) -> R\n"
     "%k, %r = stablehlo.while(%n = %z, %v = %b) : tensor<i32>, R cond {\n"
     "%c = stablehlo.compare LT, %n, %m : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
     "stablehlo.return %c : tensor<i1>\n} do {\n%j = stablehlo.add %n, %o : tensor<i32>\n"
     "%t = stablehlo.transpose %v, dims = [1, 0] : (R) -> R loc(\"here\")\n"
     "stablehlo.return %j, %t : tensor<i32>, R\n}",
     "tensor<2x2xE>"},
};

std::string of_element(std::string text, const std::string& result, const std::string& element) {
  const auto all = [&](const std::string& from, const std::string& to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  all(" R", " " + result);
  all("(R", "(" + result);
  all("xE>", "x" + element + ">");
  return text;
}

// XLA lays them out anew by strides in bytes that they have not, see imported::moves_axes.
TEST(ForeignPacked, IntegersOfLessThanAByteMoveAsBytesDo) {
  Texts programs;
  const auto add = [&](const Moving& m, const std::string& element, const std::string& as) {
    const std::string given = of_element(m.result, "", element);
    std::string text =
        "func.func @main() -> (tensor<2x3x4xi32>, " + of_element(m.result, "", "i32") + ") {\n" +
        "%n0 = stablehlo.iota dim = 0 : tensor<24xi32>\n%q = stablehlo.multiply %n0, %n0 : "
        "tensor<24xi32>\n%p = stablehlo.constant dense<3> : tensor<24xi32>\n"
        "%d = stablehlo.divide %q, %p : tensor<24xi32>\n"
        "%d2 = stablehlo.reshape %d : (tensor<24xi32>) -> tensor<2x3x4xi32>\n"
        "%aa = stablehlo.convert %d2 : (tensor<2x3x4xi32>) -> tensor<2x3x4xE>\n"
        "%a = stablehlo.optimization_barrier %aa : tensor<2x3x4xE>\n"
        "%i = stablehlo.constant dense<[[2], [1]]> : tensor<2x1xi32>\n" +
        m.operation + "\n%beside = stablehlo.add %a, %a : tensor<2x3x4xE>\n";
    text = of_element(text, m.result, element);
    const auto result = [&](const std::string& value, const std::string& type) {
      const std::string few = of_element(type, "", as), whole = of_element(type, "", element);
      std::string from = value;
      if (as != element) {
        from += "_few";
        text += fmt::format("{} = stablehlo.convert {} : ({}) -> {}\n", from, value, whole, few);
      }
      text += fmt::format("{}_all = stablehlo.convert {} : ({}) -> {}\n", value, from, few,
                          of_element(type, "", "i32"));
    };
    result("%beside", "tensor<2x3x4xE>");
    result("%r", m.result);
    text += "return %beside_all, %r_all : tensor<2x3x4xi32>, " + of_element(m.result, "", "i32") +
            "\n}\n";
    programs[fmt::format("{}.{}.{}", m.name, as, element == as ? "packed" : "bytes")] = text;
  };
  std::size_t turn = 0;
  for (const Moving& m : moving) {
    ++turn;
    for (const std::string as : {"i2", "i4", "ui2", "ui4"}) {
      if (++turn % test::stride(2) != 0) continue;
      add(m, as, as);
      add(m, as[0] == 'u' ? "ui8" : "i8", as);
    }
  }
  const auto seen = each_of(programs);
  for (const auto& [name, what] : seen) {
    EXPECT_TRUE(what.starts_with("ok ")) << name << ": " << what;
    if (!name.ends_with(".packed")) continue;
    EXPECT_EQ(what, seen.at(name.substr(0, name.rfind('.')) + ".bytes")) << name;
  }
}

}  // namespace
}  // namespace postern::test
