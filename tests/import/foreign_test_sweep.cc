// Programs over which XLA ends the process, hangs, or folds to something else: each is run in a
// process of its own.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "foreign_test.h"

namespace postern::test {
namespace {

/// %r of %x and %y, all of them f32. Of `a` with the rest of its lines after its '|'.
struct Body {
  const char *name, *text;
};
const std::string four =
    "%b = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<4xf32>\n";
const std::string taken =
    "\n%h = stablehlo.slice %s [1:2] : (tensor<4xf32>) -> tensor<1xf32>\n"
    "%r = stablehlo.reshape %h : (tensor<1xf32>) -> tensor<f32>";
const std::string adds =
    "({\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%o = stablehlo.add %p, %q : tensor<f32>\n"
    "stablehlo.return %o : tensor<f32>\n})";

std::string collective(const std::string& name, const std::string& attributes,
                       const std::string& region = "") {
  return four + "%s = \"stablehlo." + name + "\"(%b) <{" + attributes + "}> " + region +
         " : (tensor<4xf32>) -> tensor<4xf32>" + taken;
}
const std::string groups = "replica_groups = dense<0> : tensor<1x1xi64>";

/// What has no place in a body that is applied to elements.
Texts refused_in_bodies() {
  const std::string square =
      "%b = stablehlo.broadcast_in_dim %x, dims = [] : (tensor<f32>) -> tensor<4x4xf32>\n";
  const std::string corner =
      "\n%h = stablehlo.slice %c [0:1, 0:1] : (tensor<4x4xf32>) -> tensor<1x1xf32>\n"
      "%r = stablehlo.reshape %h : (tensor<1x1xf32>) -> tensor<f32>";
  return {
      {"host",
       "%r = stablehlo.custom_call @demo.f(%x) {api_version = 4 : i32} : (tensor<f32>) -> "
       "tensor<f32>"},
      {"lapack",
       "%m = stablehlo.reshape %x : (tensor<f32>) -> tensor<1x1xf32>\n"
       "%q:2 = stablehlo.custom_call @lapack_spotrf_ffi(%m) {backend_config = {uplo = 76 : ui8}, "
       "api_version = 4 : i32} : (tensor<1x1xf32>) -> (tensor<1x1xf32>, tensor<i32>)\n"
       "%r = stablehlo.reshape %q#0 : (tensor<1x1xf32>) -> tensor<f32>"},
      {"while",
       "%w = stablehlo.while(%v = %x) : tensor<f32> cond {\n"
       "%c = stablehlo.compare LT, %v, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
       "stablehlo.return %c : tensor<i1>\n} do {\n%k = stablehlo.add %v, %v : tensor<f32>\n"
       "stablehlo.return %k : tensor<f32>\n}\n%r = stablehlo.add %w, %y : tensor<f32>"},
      {"in_branch",
       "%n = stablehlo.convert %x : (tensor<f32>) -> tensor<i32>\n"
       "%r = \"stablehlo.case\"(%n) ({\nstablehlo.return %x : tensor<f32>\n}, {\n"
       "%k = stablehlo.custom_call @demo.f(%x) {api_version = 4 : i32} : (tensor<f32>) -> "
       "tensor<f32>\nstablehlo.return %k : tensor<f32>\n}) : (tensor<i32>) -> tensor<f32>"},
      {"fft",
       four + "%f = stablehlo.fft %b, type = RFFT, length = [4] : (tensor<4xf32>) -> "
              "tensor<3xcomplex<f32>>\n%e = stablehlo.real %f : (tensor<3xcomplex<f32>>) -> "
              "tensor<3xf32>\n%h = stablehlo.slice %e [1:2] : (tensor<3xf32>) -> tensor<1xf32>\n"
              "%r = stablehlo.reshape %h : (tensor<1xf32>) -> tensor<f32>"},
      {"cholesky", square + "%c = stablehlo.cholesky %b, lower = true : tensor<4x4xf32>" + corner},
      {"triangular_solve",
       square +
           "%c = \"stablehlo.triangular_solve\"(%b, %b) <{left_side = true, lower = true, "
           "transpose_a = #stablehlo<transpose NO_TRANSPOSE>, unit_diagonal = false}> : "
           "(tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>" +
           corner},
      {"partition_id",
       "%p = stablehlo.partition_id : tensor<ui32>\n%r = stablehlo.convert %p : (tensor<ui32>) -> "
       "tensor<f32>"},
      {"sort",
       four +
           "%s = \"stablehlo.sort\"(%b) <{dimension = 0 : i64}> ({\n^bb0(%p: tensor<f32>, %q: "
           "tensor<f32>):\n%o = stablehlo.compare LT, %p, %q : (tensor<f32>, tensor<f32>) -> "
           "tensor<i1>\nstablehlo.return %o : tensor<i1>\n}) : (tensor<4xf32>) -> tensor<4xf32>" +
           taken},
      {"reduce_window",
       four + "%s = \"stablehlo.reduce_window\"(%b, %y) <{window_dimensions = array<i64: 1>}> " +
           adds + " : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>" + taken},
      {"scatter",
       four +
           "%i = stablehlo.constant dense<[[1], [2]]> : tensor<2x1xi32>\n"
           "%u = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<2xf32>\n"
           "%s = \"stablehlo.scatter\"(%b, %i, %u) <{scatter_dimension_numbers = "
           "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], "
           "index_vector_dim = 1>}> " +
           adds + " : (tensor<4xf32>, tensor<2x1xi32>, tensor<2xf32>) -> tensor<4xf32>" + taken},
      {"all_reduce", collective("all_reduce", groups, adds)},
      {"all_gather", collective("all_gather", "all_gather_dim = 0 : i64, " + groups)},
      {"all_to_all",
       collective("all_to_all",
                  "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = 1 : i64, " +
                      groups)},
      {"reduce_scatter",
       collective("reduce_scatter", "scatter_dimension = 0 : i64, " + groups, adds)},
      {"collective_permute",
       collective("collective_permute", "source_target_pairs = dense<0> : tensor<1x2xi64>")},
  };
}

/// What may stand there.
Texts allowed_in_bodies() {
  return {
      {"add", "%r = stablehlo.add %x, %y : tensor<f32>"},
      {"case",
       "%n = stablehlo.convert %x : (tensor<f32>) -> tensor<i32>\n"
       "%r = \"stablehlo.case\"(%n) ({\nstablehlo.return %x : tensor<f32>\n}, {\n"
       "%k = stablehlo.add %y, %y : tensor<f32>\nstablehlo.return %k : tensor<f32>\n}) : "
       "(tensor<i32>) -> tensor<f32>"},
      {"reduce", four +
                     "%r = stablehlo.reduce(%b init: %y) applies stablehlo.add across dimensions = "
                     "[0] : (tensor<4xf32>, tensor<f32>) -> tensor<f32>"},
      {"erf",
       "%r = stablehlo.custom_call @mhlo.erf(%x) {mhlo.attributes = {}, mhlo.version = 1 : i64} : "
       "(tensor<f32>) -> tensor<f32>"},
      {"constants",
       "%c = stablehlo.constant dense<1.0> : tensor<f32>\n%d = stablehlo.tanh %c : tensor<f32>\n"
       "%r = stablehlo.maximum %d, %x : tensor<f32>"},
  };
}

/// Programs in whose bodies that stands, by what the bodies are of.
Texts with_body(const std::string& text) {
  const std::string begin = "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n" + text + "\n",
                    body = begin + "stablehlo.return %r : tensor<f32>\n",
                    test = begin +
                           "%t = stablehlo.compare LT, %r, %y : (tensor<f32>, tensor<f32>) -> "
                           "tensor<i1>\nstablehlo.return %t : tensor<i1>\n";
  const auto program = [](const std::string& operation, const std::string& type) {
    return fmt::format(
        "func.func @main(%a: tensor<8xf32>) -> {1} {{\n"
        "%z = stablehlo.constant dense<0.0> : tensor<f32>\n{0} -> {1}\nreturn %out : {1}\n}}\n",
        operation, type);
  };
  const std::string one = "tensor<f32>", all = "tensor<8xf32>";
  const std::string windows =
      "%half = stablehlo.slice %a [0:4] : (tensor<8xf32>) -> tensor<4xf32>\n"
      "%out = \"stablehlo.select_and_scatter\"(%a, %half, %z) <{window_dimensions = array<i64: "
      "2>, window_strides = array<i64: 2>}> ({\n";
  const std::string types = "}) : (tensor<8xf32>, tensor<4xf32>, tensor<f32>)";
  const std::string chooses =
      "^bb0(%p0: tensor<f32>, %q0: tensor<f32>):\n%o0 = stablehlo.compare GE, %p0, %q0 : "
      "(tensor<f32>, tensor<f32>) -> tensor<i1>\nstablehlo.return %o0 : tensor<i1>\n";
  const std::string sums =
      "^bb0(%p0: tensor<f32>, %q0: tensor<f32>):\n%o0 = stablehlo.add %p0, %q0 : tensor<f32>\n"
      "stablehlo.return %o0 : tensor<f32>\n";
  const std::string reduces =
      "%out = \"stablehlo.reduce\"(%a, %z) <{dimensions = array<i64: 0>}> ({\n";
  return {
      {"reduce", program(reduces + body + "}) : (tensor<8xf32>, tensor<f32>)", one)},
      {"reducer",
       program("%out = stablehlo.reduce(%a init: %z) across dimensions = [0] : (tensor<8xf32>, "
               "tensor<f32>)",
               one)},
      {"called",
       program(reduces + "^bb0(%x: tensor<f32>, %y: tensor<f32>):\n%r = func.call @f(%x, %y) : "
                         "(tensor<f32>, tensor<f32>) -> tensor<f32>\nstablehlo.return %r : "
                         "tensor<f32>\n}) : (tensor<8xf32>, tensor<f32>)",
               one) +
           "func.func private @f(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {\n"
           "%r = call @g(%x, %y) : (tensor<f32>, tensor<f32>) -> tensor<f32>\nreturn %r : "
           "tensor<f32>\n}\nfunc.func private @g(%x: tensor<f32>, %y: tensor<f32>) -> "
           "tensor<f32> {\n" +
           text + "\nreturn %r : tensor<f32>\n}\n"},
      {"reduce_window",
       program("%out = \"stablehlo.reduce_window\"(%a, %z) <{window_dimensions = array<i64: 1>}> "
               "({\n" +
                   body + "}) : (tensor<8xf32>, tensor<f32>)",
               all)},
      {"scatter",
       program("%at = stablehlo.constant dense<[[1], [1]]> : tensor<2x1xi32>\n%two = "
               "stablehlo.slice %a [0:2] : (tensor<8xf32>) -> tensor<2xf32>\n%out = "
               "\"stablehlo.scatter\"(%a, %at, %two) <{scatter_dimension_numbers = "
               "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = "
               "[0], index_vector_dim = 1>}> ({\n" +
                   body + "}) : (tensor<8xf32>, tensor<2x1xi32>, tensor<2xf32>)",
               all)},
      {"sort", program("%out = \"stablehlo.sort\"(%a) <{dimension = 0 : i64}> ({\n" + test +
                           "}) : (tensor<8xf32>)",
                       all)},
      {"map", program("%out = \"stablehlo.map\"(%a, %a) <{dimensions = array<i64: 0>}> ({\n" +
                          body + "}) : (tensor<8xf32>, tensor<8xf32>)",
                      all)},
      {"selects", program(windows + test + "}, {\n" + sums + types, all)},
      {"scatters", program(windows + chooses + "}, {\n" + body + types, all)},
  };
}

TEST(ForeignSweep, BodiesHoldWhatXlaCanApply) {
  Texts programs;
  const auto add = [&](const Texts& bodies, const std::string& kind) {
    for (const auto& [name, body] : bodies)
      for (auto& [owner, text] : with_body(body)) {
        if (owner == "reducer") {  // the pretty form
          const std::size_t types = text.find(" -> tensor<f32>\nreturn");
          text.insert(types + 15, "\nreducer(%x: tensor<f32>, %y: tensor<f32>) {\n" + body +
                                      "\nstablehlo.return %r : tensor<f32>\n}");
        }
        programs[kind + "." + owner + "." + name] = text;
      }
  };
  add(refused_in_bodies(), "refused");
  add(allowed_in_bodies(), "ok");
  for (const auto& [name, what] : each_of(programs)) {
    EXPECT_TRUE(what.starts_with(name.substr(0, name.find('.')) + " ")) << name << ": " << what;
    if (name.starts_with("refused")) {
      EXPECT_TRUE(has(what, "cannot be in the body")) << name << ": " << what;
    }
  }
  EXPECT_EQ(programs.size(), 9 * (16 + 5));
}

TEST(ForeignSweep, WhatThePluginCannotDoIsRefusedWithItsLine) {
  struct Case {
    std::string operands, operation, types;  // of one operand %a, perhaps twice
    const char* why;
  };
  const std::string empty = "dense<> : tensor<0x0xi64>", none = "dense<> : tensor<1x0xi64>";
  const auto gather = [](const std::string& g) {
    return "\"stablehlo.all_gather\"(%a) <{all_gather_dim = 0 : i64, replica_groups = " + g + "}>";
  };
  const auto exchange = [](const std::string& g) {
    return "\"stablehlo.all_to_all\"(%a) <{split_dimension = 0 : i64, concat_dimension = 0 : i64, "
           "split_count = 1 : i64, replica_groups = " +
           g + "}>";
  };
  const std::string scatters =
      "\"stablehlo.reduce_scatter\"(%a) <{scatter_dimension = 0 : i64, replica_groups = " + empty +
      "}> ({\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%o = stablehlo.add %p, %q : "
      "tensor<f32>\nstablehlo.return %o : tensor<f32>\n})";
  const std::string sorts =
      "\"stablehlo.sort\"(%a) <{dimension = 0 : i64}> ({\n^bb0(%p: tensor<i2>, %q: tensor<i2>):\n"
      "%o = stablehlo.compare LT, %p, %q : (tensor<i2>, tensor<i2>) -> tensor<i1>\n"
      "stablehlo.return %o : tensor<i1>\n})";
  for (const Case& c : {
           Case{"tensor<4xf32>", exchange(empty), "(tensor<4xf32>) -> tensor<4xf32>",
                "'all_to_all' has groups of no device"},
           Case{"tensor<4xf32>", exchange(none), "(tensor<4xf32>) -> tensor<4xf32>",
                "'all_to_all' has groups of no device"},
           Case{"tensor<4xf32>", gather(empty), "(tensor<4xf32>) -> tensor<8xf32>",
                "'all_gather' gives what it is given"},
           Case{"tensor<4xf32>", scatters, "(tensor<4xf32>) -> tensor<2xf32>",
                "'reduce_scatter' gives what it is given"},
           Case{"tensor<4xi2>", "stablehlo.concatenate %a, %a, dim = 0",
                "(tensor<4xi2>, tensor<4xi2>) -> tensor<8xi2>", "'concatenate' of 2-bit integers"},
           Case{"tensor<4xui2>", "stablehlo.concatenate %a, %a, dim = 0",
                "(tensor<4xui2>, tensor<4xui2>) -> tensor<8xui2>", "'concatenate' of 2-bit"},
           Case{"tensor<4xi2>", sorts, "(tensor<4xi2>) -> tensor<4xi2>", "'sort' of 2-bit"},
           Case{"tensor<4xf32>", "stablehlo.bitcast_convert %a",
                "(tensor<4xf32>) -> tensor<4x32xi1>", "'bitcast_convert' from"},
           Case{"tensor<4x8xi1>", "stablehlo.bitcast_convert %a",
                "(tensor<4x8xi1>) -> tensor<4xi8>", "'bitcast_convert' from"},
           Case{"tensor<4x2xcomplex<f32>>", "stablehlo.bitcast_convert %a",
                "(tensor<4x2xcomplex<f32>>) -> tensor<4xcomplex<f64>>", "'bitcast_convert' from"},
           Case{"tensor<4xcomplex<f32>>", "stablehlo.remainder %a, %a", "tensor<4xcomplex<f32>>",
                "'remainder' of complex numbers"},
           Case{"!stablehlo.token", "\"stablehlo.infeed\"(%a) <{infeed_config = \"\"}>",
                "(!stablehlo.token) -> !stablehlo.token", "'infeed' waits for a queue"},
           Case{"!stablehlo.token", "\"stablehlo.outfeed\"(%a) <{outfeed_config = \"\"}>",
                "(!stablehlo.token) -> !stablehlo.token", "'outfeed' waits for a queue"},
       }) {
    SCOPED_TRACE(c.operation);
    const std::size_t arrow = c.types.find("-> ");
    const std::string result = arrow == c.types.npos ? c.types : c.types.substr(arrow + 3);
    expect_error<Error>(
        [&] {
          load_text(fmt::format("func.func @main(%a: {}) -> {} {{\n\n%r = {} : {}\n"
                                "return %r : {}\n}}\n",
                                c.operands, result, c.operation, c.types, result),
                    "name");
        },
        {"load: name:3: ", c.why}, ErrorCode::unimplemented);
  }
}

/// Operations on constants %a and %b of an element type, with their results'.
struct Folded {
  std::string operation, operands, result;
};

std::vector<Folded> operations_of(const std::string& element, char kind) {
  const std::string t = "tensor<4x" + element + ">", bits = "tensor<4xi1>";
  std::string one =
      "negate sign exponential log sqrt rsqrt tanh sine cosine logistic cbrt floor "
      "exponential_minus_one log_plus_one round_nearest_even";
  std::string two = "add subtract multiply divide power maximum minimum remainder atan2";
  if (kind == 'i') {
    one = "not popcnt count_leading_zeros negate";
    two =
        "add subtract multiply divide power maximum minimum remainder and or xor shift_left "
        "shift_right_arithmetic shift_right_logical";
  } else if (kind == 'b') {
    one = "not";
    two = "add multiply maximum minimum and or xor";
  } else if (kind == 'c') {
    one = "negate exponential log sqrt rsqrt tanh sine cosine";
    two = "add subtract multiply divide power";
  }
  std::vector<Folded> out;
  std::istringstream ones(one), twos(two);
  for (std::string name; ones >> name;) out.push_back({name + " %a", t, t});
  for (std::string name; twos >> name;) out.push_back({name + " %a, %b", t, t});
  for (const char* how : {"EQ", "LT", "GE"})
    if (kind != 'c' || std::string(how) == "EQ")
      out.push_back({fmt::format("compare {}, %a, %b", how), fmt::format("({0}, {0})", t), bits});
  out.push_back({"clamp %a, %b, %b", t, t});
  const std::string square = "tensor<2x2x" + element + ">";
  if (kind != 'b')
    out.push_back({"dot_general %sa, %sb, contracting_dims = [1] x [0]",
                   fmt::format("({0}, {0})", square), square});
  out.push_back({"transpose %sa, dims = [1, 0]", "(" + square + ")", square});
  out.push_back({"reverse %a, dims = [0]", t, t});
  return out;
}

/// The program of them; `hidden`: XLA must not know its constants.
std::string of_constants(const std::string& element, char kind, const char* a, const char* b,
                         bool hidden) {
  std::string body, names, types;
  int n = 0;
  const auto constant = [&](const char* name, const std::string& values) {
    const std::string t = "tensor<4x" + element + ">";
    body += fmt::format("%{0}{1} = stablehlo.constant dense<[{2}]> : {3}\n", name,
                        hidden ? "0" : "", values, t);
    if (hidden) body += fmt::format("%{0} = stablehlo.optimization_barrier %{0}0 : {1}\n", name, t);
    body += fmt::format("%s{0} = stablehlo.reshape %{0} : ({1}) -> tensor<2x2x{2}>\n", name, t,
                        element);
  };
  constant("a", a);
  constant("b", b);
  for (const Folded& f : operations_of(element, kind)) {
    const bool whole = f.operands == f.result;
    body += fmt::format("%r{} = stablehlo.{} : {}{}\n", n, f.operation, f.operands,
                        whole ? "" : " -> " + f.result);
    names += fmt::format("{}%r{}", n ? ", " : "", n);
    types += (n++ ? ", " : "") + f.result;
  }
  return fmt::format("func.func @main() -> ({1}) {{\n{0}return {2} : {1}\n}}\n", body, types,
                     names);
}

TEST(ForeignSweep, ConstantsGiveWhatArgumentsWould) {
  struct Case {
    const char* element;
    char kind;
    const char *a, *b;
  };
  Texts programs;
  for (const Case& c :
       {Case{"f32", 'f', "0x7FC00000, 1.5, -2.25, 0.0", "1.0, 0x7FC00000, 0.5, -0.0"},
        Case{"f64", 'f', "0x7FF8000000000000, 1.5, -2.25, 0.0",
             "1.0, 0x7FF8000000000000, 0.5, 2.0"},
        Case{"f16", 'f', "0x7E00, 1.5, -2.25, 0.0", "1.0, 0x7E00, 0.5, -0.0"},
        Case{"bf16", 'f', "0x7FC0, 1.5, -2.25, 0.0", "1.0, 0x7FC0, 0.5, -0.0"},
        Case{"i1", 'b', "true, false, true, false", "true, true, false, false"},
        Case{"i2", 'i', "-2, 1, -1, 0", "1, 1, -1, -2"},
        Case{"i4", 'i', "-8, 7, -1, 0", "3, 7, -1, 0"},
        Case{"i8", 'i', "-128, 7, -1, 0", "3, 127, -1, 0"},
        Case{"i32", 'i', "-2147483648, 7, -1, 0", "3, 2147483647, -1, 0"},
        Case{"ui8", 'i', "255, 7, 1, 0", "3, 255, 1, 0"},
        Case{"ui64", 'i', "18446744073709551615, 7, 1, 0", "3, 9, 1, 0"},
        Case{"complex<f32>", 'c', "(1.5,0x7FC00000), (1.5,-2.0), (0.0,0.0), (3.0,4.0)",
             "(1.0,2.0), (0.5,0.25), (-1.0,1.0), (2.0,-3.0)"}})
    for (const bool hidden : {false, true})
      programs[fmt::format("{}.{}", c.element, hidden ? "hidden" : "known")] =
          of_constants(c.element, c.kind, c.a, c.b, hidden);
  const auto seen = each_of(programs);
  for (const auto& [name, what] : seen) {
    EXPECT_TRUE(what.starts_with("ok ")) << name << ": " << what;
    if (!name.ends_with(".known")) continue;
    EXPECT_EQ(what, seen.at(name.substr(0, name.rfind('.')) + ".hidden")) << name;
  }
  EXPECT_EQ(seen.size(), 24u);
}

TEST(ForeignSweep, ConstantsInFunctionsAndLoops) {
  const std::string nan = "0x7FC00000";
  const std::string t = "tensor<2xf32>", f = "(tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>";
  const std::string known = "%a = stablehlo.constant dense<[" + nan + ", 1.0]> : " + t +
                            "\n%b = stablehlo.constant dense<[1.0, " + nan + "]> : " + t + "\n";
  const std::string greatest =
      "func.func private @greatest(%p: tensor<2xf32> {a.b = 1}, %q: tensor<2xf32>) -> "
      "tensor<2xf32> {\n%a = stablehlo.maximum %p, %q : tensor<2xf32>\nreturn %a : "
      "tensor<2xf32>\n}\n";
  const Loaded called =
      load_text("func.func @main() -> (" + t + ", " + t + ") {\n" + known +
                "%0 = call @greatest(%a, %b) : " + f + "\n%1 = call @given() : () -> " + t +
                "\n%2 = stablehlo.maximum %1, %b : " + t + "\nreturn %0, %2 : " + t + ", " + t +
                "\n}\n" + greatest + "func.func private @given() -> " + t + " {\n" + known +
                "return %a : " + t + "\n}\n");
  for (const Tensor& r : called.run({})) EXPECT_EQ(to_string(r), "[nan nan]");
  // A name may stand for something else in another region.
  const Loaded branches =
      load_text("func.func @main(%n: tensor<i32>, %x: tensor<2xf32>) -> " + t +
                " {\n%b = stablehlo.constant dense<2.0> : " + t +
                "\n%0 = \"stablehlo.case\"(%n) ({\n%a = stablehlo.constant dense<[" + nan +
                ", 1.0]> : " + t + "\n%c = stablehlo.maximum %a, %b : " + t +
                "\nstablehlo.return %c : " + t + "\n}, {\n%a = stablehlo.add %x, %x : " + t +
                "\n%c = stablehlo.maximum %a, %b : " + t + "\nstablehlo.return %c : " + t +
                "\n}) : (tensor<i32>) -> " + t + "\nreturn %0 : " + t + "\n}\n");
  const Tensor x = tensor<float>({3, 0});
  EXPECT_EQ(to_string(branches(Tensor(0), x).at(0)), "[nan  2.]");
  EXPECT_EQ(to_string(branches(Tensor(1), x).at(0)), "[6. 2.]");
  // Shapes stay constants.
  const Loaded shaped = load_text(
      "func.func @main(%x: tensor<4xf32>) -> tensor<2x2xf32> {\n"
      "%a = stablehlo.constant dense<1> : tensor<2xi32>\n"
      "%b = stablehlo.add %a, %a : tensor<2xi32>\n"
      "%0 = stablehlo.dynamic_reshape %x, %b : (tensor<4xf32>, tensor<2xi32>) -> tensor<2x2xf32>\n"
      "return %0 : tensor<2x2xf32>\n}\n");
  EXPECT_EQ(shaped(tensor<float>({1, 2, 3, 4})).at(0).size(), 4);
}

}  // namespace
}  // namespace postern::test
