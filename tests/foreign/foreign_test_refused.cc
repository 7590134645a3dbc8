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
      {"func.func @main(%a: tensor<?xf32>) -> tensor<?xf32> {}", "no fixed type",
       ErrorCode::unimplemented},
      {"func.func @main(%a: !quant.any) {}", "values of type !quant.any cannot be passed",
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

TEST_F(Foreign, ArtifactsThatCannotBeRunAreRefusedWithTheReason) {
  struct Case {
    const char *file, *why;
    ErrorCode code;
  };
  for (const Case& c :
       {Case{"refused_shapes.jax", "shapes that are not fixed ('n')", ErrorCode::unimplemented},
        Case{"refused_platform.jax", "exported for tpu, this process runs on cpu",
             ErrorCode::failed_precondition},
        Case{"refused_devices.jax", "exported for 2 devices", ErrorCode::unimplemented}}) {
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
  refused(with(whole, "multiply_v1", "multiply_v9"),
          {"load: name: ", "vhlo.multiply_v9 is newer than this reader"});
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
       {"calls.jax", "portable.mlirbc", "control.jax", "platforms.jax", "refused_shapes.jax"}) {
    const std::string whole = text_in(file);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string bytes = whole;
      for (const int change : {0x01, 0xff}) {
        bytes[at] = static_cast<char>(whole[at] ^ change);
        try_to_load(bytes);
      }
      bytes.resize(at);
      if (at % 7 == 0) try_to_load(bytes);
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_GT(refused, 1000);
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

}  // namespace
}  // namespace postern::test
