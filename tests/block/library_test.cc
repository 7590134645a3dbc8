// Libraries: shared objects that bring FFI handlers and overrides, and what is wrong with some.
#include <postern/library.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "libraries/blocks.h"
#include "support.h"

namespace postern {
namespace {

using test::expect_error;
using test::has;

std::string library(const std::string& name) {
  return std::string(POSTERN_TEST_LIBRARIES) + "/" + name + ".so";
}

TEST(Library, BringsHandlersAndOverrides) {
  RecordProperty("covers", "BLOCK-13 BLOCK-02 CALL-19");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const Tensor x = tensor<float>({1, 2});
  const Tensor a = eye(DType::f32, 7, 7) * 4.0f + 1.0f;
  auto scaled = jit([](Tensor v) { return library_scale(v, 3); });
  auto factor = jit([](Tensor m) { return linalg::cholesky(m); });
  const auto before = scaled(x).to_vector<float>(), l_before = factor(a).to_vector<float>();
  EXPECT_FALSE(has(scaled.lower(x).stablehlo(), "test_library_scale"));

  const LibraryInfo info = load_library(library("good"));
  EXPECT_EQ(info.name, "good");
  EXPECT_EQ(info.version, "1.2");
  EXPECT_EQ(info.overrides, 2u);
  EXPECT_EQ(info.handlers,
            (std::vector<std::string>{"test_library_scale", "test_library_cholesky"}));
  EXPECT_TRUE(has(scaled.lower(x).stablehlo(), "@test_library_scale") ||
              has(scaled.lower(x).stablehlo(), "\"test_library_scale\""));
  EXPECT_EQ(scaled(x).to_vector<float>(), before);
  EXPECT_TRUE(has(factor.lower(a).stablehlo(), "test_library_cholesky"));
  const auto l = factor(a).to_vector<float>();
  for (std::size_t i = 0; i < l.size(); ++i) EXPECT_NEAR(l[i], l_before[i], 1e-6);
  // Its gradient is the block's own formula, its batch the default.
  EXPECT_EQ(jit(grad([](Tensor v) { return sum(library_scale(v, 3)); }))(x).to_vector<float>(),
            (std::vector<float>{3, 3}));
  EXPECT_EQ(jit(vmap([](Tensor v) { return library_scale(v, 3); }))(x).to_vector<float>(), before);

  // Again: what is there.
  EXPECT_EQ(load_library(library("good")).overrides, 2u);
  EXPECT_EQ(load_library(std::string(POSTERN_TEST_LIBRARIES) + "/./good.so").name, "good");
  std::size_t listed = 0;
  for (const LibraryInfo& l2 : loaded_libraries()) listed += l2.name == "good";
  EXPECT_EQ(listed, 1u);
  const auto names = ffi_handlers();
  EXPECT_NE(std::ranges::find(names, "test_library_scale"), names.end());
}

TEST(Library, AMissingFileIsReportedInTheLoadersWords) {
  RecordProperty("covers", "BLOCK-13");
  try {
    load_library("/no/such/library.so");
    FAIL();
  } catch (const PluginError& e) {
    EXPECT_EQ(e.code(), ErrorCode::not_found);
    EXPECT_TRUE(has(e.what(), "load_library: /no/such/library.so: ")) << e.what();
    EXPECT_TRUE(has(e.what(), "cannot open shared object file")) << e.what();
  }
}

TEST(Library, NamesThatNoFileCanHave) {
  RecordProperty("covers", "BLOCK-13");
  const std::string folder = std::filesystem::temp_directory_path().string() + "/";
  for (const std::string& in : {std::string(), folder}) {
    const std::string path = in + std::string(300, 'x') + ".so";
    expect_error<PluginError>([&] { load_library(path); }, {"load_library: " + path},
                              ErrorCode::not_found);
  }
}

TEST(Library, AFileThatIsNoSharedObject) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "postern_library_test.so").string();
  std::ofstream(path) << "hello";
  expect_error<PluginError>([&] { load_library(path); }, {path, "file too short"});
  std::filesystem::remove(path);
}

TEST(Library, WithoutEntryPoint) {
  expect_error<PluginError>([] { load_library(library("no_entry")); },
                            {"no_entry.so", "POSTERN_LIBRARY"});
}

TEST(Library, BuiltForAnotherVersion) {
  expect_error<PluginError>([] { load_library(library("wrong_version")); },
                            {"version 999", "this is version 2", "build it again"});
}

TEST(Library, ThatThrowsWhileLoadingLeavesNothingBehind) {
  RecordProperty("covers", "BLOCK-13");
  for (int i = 0; i < 2; ++i)
    expect_error<PluginError>([] { load_library(library("throws")); },
                              {"throws.so", "no licence found"});
  EXPECT_EQ(library_scale(Tensor(2.0), 3).item<double>(), 6);
  for (const LibraryInfo& info : loaded_libraries()) EXPECT_NE(info.name, "throws");
}

TEST(Library, ThatAsksForItselfIsRefused) {
  expect_error<PluginError>([] { load_library(library("asks_for_itself")); },
                            {"asks_for_itself.so", "its load function asks for the library itself"},
                            ErrorCode::threw);
}

/// Kernels share the threads of the library.
TEST(Library, ParallelForThrowsTheLowestFailure) {
  std::vector<int> seen(1000);
  parallel_for(1000, [&](std::int64_t i) { ++seen[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(seen, std::vector<int>(1000, 1));
  for (const std::int64_t none : {0, -1}) parallel_for(none, [&](std::int64_t) { FAIL(); });
  EXPECT_GE(core_count(), 1);
  std::atomic<int> done{0};
  expect_error<std::runtime_error>(
      [&] {
        parallel_for(100, [&](std::int64_t i) {
          if (i % 10 == 3) throw std::runtime_error(std::to_string(i) + "th part");
          ++done;
        });
      },
      {"3th part"});
  EXPECT_EQ(done, 90) << "the others are done all the same";
}

}  // namespace
}  // namespace postern
