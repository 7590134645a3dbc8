// Programs from elsewhere that cannot be run, and files that are damaged.
#include <random>

#include "foreign_test.h"

namespace postern::test {
using namespace internal;
namespace {

TEST_F(Foreign, TextThatCannotBeRunIsRefusedWithItsLine) {
  struct Case {
    const char *text, *why;
    ErrorCode code;
  };
  const Case cases[] = {
      {"", "neither a saved program nor StableHLO", ErrorCode::invalid_argument},
      {"hello", "neither a saved program nor StableHLO", ErrorCode::invalid_argument},
      {"func.func @main(%a: tensor<*xf32>) -> tensor<*xf32> {}", "no fixed type",
       ErrorCode::unimplemented},
      {"func.func @main(%a: !quant.any) {}", "values are quantized", ErrorCode::unimplemented},
      {"func.func @main(%a: tensor<3x!quant.uniform<i8:f32, 0.1>>) {}", "values are quantized",
       ErrorCode::unimplemented},
      {"func.func @main(%a: tensor<3xf31>) {}", "no element type f31", ErrorCode::unimplemented},
      {"func.func @main(%a: tensor<3xf32>", "never closed", ErrorCode::invalid_argument},
      {"func.func @main() {\n %0 = stablehlo.custom_call @f(%a {} : () -> ()",
       "name:2: a '(' is never closed", ErrorCode::invalid_argument},
      {"func.func @main() {\n %0 = stablehlo.custom_call @f() {a = \"", "has no end",
       ErrorCode::invalid_argument},
      {"func.func @main() {\n\n %0 = \"stablehlo.custom_call\"() {call_target_name = \"f\"}",
       "name:3: a custom call in MLIR's generic form", ErrorCode::unimplemented},
      {"func.func @main() { %0 = stablehlo.custom_call @f(%t) : (tuple<tensor<f32>>) -> "
       "tensor<f32> }",
       "cannot be passed", ErrorCode::unimplemented},
      {"module @f attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {\n"
       "func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }}",
       "name:1: it is for several devices", ErrorCode::unimplemented},
      {"module @f attributes {mhlo.num_replicas = 2 : i32} {\n"
       "func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> }}",
       "name:1: it is for several devices", ErrorCode::unimplemented},
      {"func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
       "%0 = \"stablehlo.all_reduce\"(%a) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> "
       "({}) : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32> }",
       "name:2: it is for several devices", ErrorCode::unimplemented},
      {"func.func @main(%a: tensor<2xf32>) -> tensor<2xf32> {\n"
       "%0 = \"stablehlo.collective_permute\"(%a) {source_target_pairs = dense<[[0, 1]]> : "
       "tensor<1x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>\n return %0 : tensor<2xf32> }",
       "name:2: it is for several devices", ErrorCode::unimplemented},
      {"func.func @main(%a: tensor<4xf32>) -> tensor<2xf32> {\n"
       "%0 = stablehlo.custom_call @ApproxTopK(%a) {backend_config = \"\", "
       "called_computations = [@compare]} : (tensor<4xf32>) -> tensor<2xf32>\n"
       "return %0 : tensor<2xf32> }",
       "name:2: there is no function @compare", ErrorCode::invalid_argument},
      {"ML\xefR\x01", "bytecode of version 0", ErrorCode::unimplemented},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    try {
      load_text(c.text, "name");
      ADD_FAILURE() << "it was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), c.code) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.why), std::string::npos) << e.what();
    }
  }
}

// The body is XLA's to read; its lines are those of the file, whatever stands in it besides.
TEST_F(Foreign, BodiesThatDoNotParseAreRefusedWithTheirLine) {
  const std::string head =
      "// of three lines\nmodule {\nfunc.func @main(%t: !stablehlo.token, %a: tensor<2xi32>,\n"
      "    %b: tensor<2xi32>) -> (tensor<2xi32>, !stablehlo.token) {\n"
      "%0 = stablehlo.divide %a, %b : tensor<2xi32>\n"
      "%1:2 = stablehlo.custom_call @demo.add(%t,\n  %0) {api_version = 4 : i32,\n"
      "  has_side_effect = true} : (!stablehlo.token, tensor<2xi32>) -> (!stablehlo.token,\n"
      "  tensor<2xi32>)\n%c = stablehlo.constant dense<1> : tensor<2xi32>\n"
      "%d = stablehlo.add %c, %c : tensor<2xi32>\n";
  const std::string tail = "return %1#1, %1#0 : tensor<2xi32>, !stablehlo.token\n}\n}\n";
  EXPECT_NO_THROW(load_text(head + tail));
  struct Case {
    std::string line, why;
  };
  for (const Case& c :
       {Case{"%2 = stablehlo.add %a, %nothing : tensor<2xi32>\n", "undeclared SSA value"},
        Case{"%2 = stablehlo.reshape %a : (tensor<2xi32>) -> tensor<3xi32>\n",
             "number of output elements (3)"},
        Case{"%2 = stablehlo. %a : tensor<2xi32>\n", ""},
        Case{"%2 = stablehlo.no_such_thing %a : tensor<2xi32>\n", "no_such_thing"}})
    expect_error<Error>([&] { load_text(head + c.line + tail, "name"); },
                        {"load: name:12: ", c.why}, ErrorCode::invalid_argument);
}

TEST_F(Foreign, NamesOfTypesAttributesAndBytesAreRead) {
  const std::string text =
      "\xef\xbb\xbf!t = tensor<2xf32>\n!u = !t\n#one = #stablehlo.gather<\n  collapsed_slice_dims "
      "= [0],\n  start_index_map = [0], index_vector_dim = 1>\n#alone = dense<0> : "
      "tensor<1x1xi64>\n#loc1 = loc(\"#one\":1:2)\nmodule {\nfunc.func @main(%a: !u) -> !t {\n"
      "%i = stablehlo.constant dense<[[1], [0]]> : tensor<2x1xi32>\n"
      "%0 = \"stablehlo.gather\"(%a, %i) <{dimension_numbers = #one, slice_sizes = array<i64: 1>}> "
      ": (!t, tensor<2x1xi32>) -> !t loc(#loc1)\n"
      "%1 = \"stablehlo.all_reduce\"(%0) <{replica_groups = #alone}> ({\n"
      "^bb0(%p: tensor<f32>, %q: tensor<f32>):\n%s = stablehlo.add %p, %q : tensor<f32>\n"
      "stablehlo.return %s : tensor<f32>\n}) : (!t) -> !t\n"
      "%c = stablehlo.constant dense_resource<blob> : tensor<2xf32>\n"
      "%2 = stablehlo.add %1, %c : !u\n";
  const std::string end = "return %2 : !t\n}\n}\n\n";
  const std::string bytes =
      "{-#\n  dialect_resources: {\n    builtin: {\n      blob: "
      "\"0x040000000000803F00000040\"\n    }\n  }\n#-}\n";
  const Loaded program = load_text(text + end + bytes);
  EXPECT_EQ(to_string(program.inputs()), "(f32[2])");
  EXPECT_EQ(program(tensor<float>({3, 5})).at(0).to_vector<float>(), (std::vector<float>{6, 5}));
  expect_error<Error>([&] { load_text(text + end, "name"); },
                      {"name:17: ", "dense_resource 'blob' are not in the file"});
  expect_error<Error>(
      [&] { load_text(text + "%3 = stablehlo.add %2, %9 : !t\n" + end + bytes, "name"); },
      {"name:19: "});
  std::string many = "!a0 = tuple<tensor<2xf32>, tensor<2xf32>>\n";
  for (int i = 1; i < 60; ++i) many += fmt::format("!a{0} = tuple<!a{1}, !a{1}>\n", i, i - 1);
  expect_error<Error>([&] { load_text(many + "func.func @main(%a: !a59) {}", "name"); },
                      {"more text than a file of its size"}, ErrorCode::resource_exhausted);
}

TEST_F(Foreign, OtherFormatsAreNamed) {
  using namespace std::string_literals;
  for (const auto& [bytes, what] :
       {std::pair{"PK\x03\x04\x14\x00"s, "zip archive"},
        std::pair{"\x1c\x00\x00\x00TFL3\x14"s, "TFLite"},
        std::pair{"\x08\x08\x12\x07pytorch"s, "ONNX"},
        std::pair{"\x0a\x05jit_f\x12\x04main"s, "protocol buffer"},
        std::pair{"\x0a\x20\x0a\x05jit_f\x12\x04main"s, "protocol buffer"},
        std::pair{"HloModule jit_f\n"s, "HLO text"}})
    expect_error<Error>([&, &file = bytes] { load_text(file, "name"); },
                        {"load: name: this is ", what}, ErrorCode::unimplemented);
}

TEST_F(Foreign, ArtifactsThatCannotBeRunAreRefusedWithTheReason) {
  struct Case {
    const char *file, *why;
    ErrorCode code;
  };
  for (const Case& c :
       {Case{"refused_platform.jax", "exported for tpu, this process runs on cpu",
             ErrorCode::failed_precondition},
        Case{"refused_devices.jax", "exported for 2 devices", ErrorCode::unimplemented},
        Case{"refused_body.mlirbc",
             "custom call 'demo.add' cannot be in the body of a reduction, scatter, sort or map, "
             "nor "
             "in a function that it calls (the file is of StableHLO_v1.13.0)",
             ErrorCode::unimplemented},
        Case{"refused_queue.mlirbc", "operation 'infeed' waits for a queue",
             ErrorCode::unimplemented},
        Case{"platforms.mlir", "platforms.mlir:4: it was exported for several platforms",
             ErrorCode::unimplemented}}) {
    SCOPED_TRACE(c.file);
    try {
      load(folder + c.file);
      ADD_FAILURE() << "it was read";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), c.code) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.why), std::string::npos) << e.what();
    }
  }
}

/// A file whose bytes are changed in place: the tables of bytecode are found by what they hold.
std::string with(std::string file, const std::string& before, const std::string& after) {
  const auto at = file.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  return at == std::string::npos ? file : file.replace(at, before.size(), after);
}

TEST_F(Foreign, WhatIsNewerThanTheReaderIsNamed) {
  const std::string whole = text_in("portable.mlirbc");
  auto refused = [](const std::string& file, std::initializer_list<std::string_view> words) {
    expect_error<Error>([&] { load_text(file, "name"); }, words);
  };
  refused(
      with(whole, "multiply_v1", "multiply_v9"),
      {"load: name: ", "vhlo.multiply_v9 is newer than this reader", "the file is of StableHLO_v"});
  refused(with(whole, std::string("vhlo\0", 5), std::string("vhxo\0", 5)),
          {"vhxo.func_v1 is newer than this reader"});
  refused(with(whole, std::string("ML\xefR\x0d"), std::string("ML\xefR\x11")),
          {"bytecode of version 8", "knows 6"});
  refused(with(whole, std::string("main\0", 5), std::string("mine\0", 5)), {"no function @main"});
}

TEST_F(Foreign, AttributesOfThemselvesAreRefused) {
  const std::string whole = text_in("portable.mlirbc");
  int deep = 0;
  for (std::size_t at = 0; at + 2 < whole.size(); ++at) {
    if (whole[at] != 3 || whole[at + 1] != 3) continue;  // an array of one
    std::string bytes = whole;
    for (int index = 0; index < 128; ++index) {
      bytes[at + 2] = static_cast<char>(2 * index + 1);
      try {
        load_text(bytes);
      } catch (const Error& e) {
        deep +=
            e.code() == ErrorCode::resource_exhausted && has(e.what(), "nested more than 100 deep");
      }
    }
  }
  EXPECT_GT(deep, 0);
}

TEST_F(Foreign, DamagedArtifactsNeverCrashTheReader) {
  RecordProperty("covers", "IR-12");
  int read = 0, refused = 0;
  auto try_to_load = [&](const std::string& bytes) {
    try {
      static_cast<void>(load_text(bytes).required_functions());
      ++read;
    } catch (const Error& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with("load: ")) << e.what();
      ++refused;
    }
  };
  for (const char* file :
       {"calls.jax", "portable.mlirbc", "control.jax", "platforms.jax", "sizes.jax"}) {
    const std::string whole = text_in(file);
    for (std::size_t at = 0; at < whole.size(); at += test::stride(5)) {
      std::string bytes = whole;
      for (const int change : {0x01, 0xff}) {
        bytes[at] = static_cast<char>(whole[at] ^ change);
        try_to_load(bytes);
      }
      bytes.resize(at);
      if (at % 7 == 0) try_to_load(bytes);
    }
  }
  EXPECT_GT(read, 300);
  EXPECT_GT(refused, 300);
}

TEST_F(Foreign, DamagedTextNeverCrashesTheReader) {
  std::mt19937 random(7);
  for (const char* file : {"calls.mlir", "mixed.mlir", "exported.mlir"}) {
    const std::string whole = text_in(file);
    for (int i = 0; i < 300; ++i) {
      std::string text = whole;
      switch (i % 3) {
        case 0: text.resize(random() % text.size()); break;
        case 1: text[random() % text.size()] = "<>(){}[]\",:=x0 \\"[random() % 16]; break;
        default: text.erase(random() % text.size(), random() % 200);
      }
      try {
        load_text(text);
      } catch (const Error&) {
      }
    }
  }
}

TEST_F(Foreign, WhoNeedsThePackageIsToldWhatIsMissing) {
  const TemporaryFolder scratch;
  const std::string file = scratch.path() + "/programs";
  std::ofstream(file) << "//// one\nfunc.func @main() { return }\n";
  const std::string live = POSTERN_TEST_LIBRARIES "/../../packages/live/libpostern_live.so";
  const std::pair<std::string, std::string> table[] = {
      {"/no/such/import.so", "load: load_library: /no/such/import.so: /no/such/import.so: cannot "},
      {live, "load: program: this is no saved program, and there is no package import"}};
  for (const auto& [path, why] : table) {
    const Ended ended = run_program("foreign_each", {file}, {{"POSTERN_IMPORT", path}});
    EXPECT_TRUE(has(ended.out, "one refused " + why)) << ended.out << ended.err;
  }
}

}  // namespace
}  // namespace postern::test
