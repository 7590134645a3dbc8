// The library with LAPACK's kernels: when it is opened, and what is said where it can't be.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using test::has;
using test::run_program;

const std::string installed = POSTERN_TEST_LIBRARIES "/../../packages/lapack/libpostern_lapack.so";

TEST(Lapack, IsOpenedByTheFirstThatNeedsIt) {
  RecordProperty("covers", "BLOCK-13 LINALG-09");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const auto ended = run_program("first_linalg", {"opens"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out,
            "solved: [[7.]\n [7.]]\n"
            "before: 1 libraries, OpenBLAS is not there\n"  // that for cumsum
            "after: 2 libraries, OpenBLAS is there\n"
            "solved: [[7.]\n [7.]]\n"
            "handler: lapack_spotrf_ffi\n");
}

TEST(Lapack, ManyThreadsMayNeedItAtOnce) {
  const auto ended = run_program("first_linalg", {"threads"});
  EXPECT_EQ(ended.out, "alike, 1 libraries\n") << ended.err;
}

/// The thread that loads it waits for one that opens ours. The third is what reads the foreign
/// program.
TEST(Lapack, IsOpenedWhileAnotherLibraryIsLoaded) {
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const auto ended =
      run_program("first_linalg", {"load", POSTERN_TEST_LIBRARIES "/uses_linalg.so"});
  EXPECT_EQ(ended.out,
            "uses_linalg: 0 overrides, 0 handlers\n"
            "foreign: done\n"
            "loaded: 3 libraries, OpenBLAS is there\n")
      << ended.err;
}

TEST(Lapack, IsALibraryAsOthersAre) {
  RecordProperty("covers", "BLOCK-13");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const auto ended = run_program("first_linalg", {"load", installed});
  EXPECT_EQ(ended.out,
            "postern_lapack: 7 overrides, 60 handlers\n"
            "foreign: done\n"
            "loaded: 2 libraries, OpenBLAS is there\n")
      << ended.err;
}

TEST(Lapack, WhoNeedsItIsToldWhatIsMissing) {
  RecordProperty("covers", "BLOCK-13");
  if (test::skipped_in_stages("kernels are custom calls")) return;
  const auto ended =
      run_program("first_linalg", {"missing"}, {{"POSTERN_LAPACK", "/no/such/lapack.so"}});
  const std::string why = "load_library: /no/such/lapack.so: /no/such/lapack.so: cannot open ",
                    cholesky = "cholesky: not_found: linalg.cholesky: " + why;
  EXPECT_TRUE(has(ended.out, cholesky)) << ended.out << ended.err;
  EXPECT_NE(ended.out.find(cholesky), ended.out.rfind(cholesky)) << "each time";
  EXPECT_TRUE(has(ended.out, "eigvals: not_found: linalg.eigvals: " + why)) << ended.out;
  EXPECT_TRUE(
      has(ended.out, "foreign: not_found: load: text:2: custom call 'lapack_spotrf_ffi': " + why))
      << ended.out;
  EXPECT_TRUE(
      ended.out.ends_with("printed: said\n"
                          "default: done\n"
                          "again: done\n"
                          "foreign again: done\n"))
      << ended.out;
}

TEST(Lapack, WhereOpenBlasIsMissingTheErrorNamesIt) {
  const test::TemporaryFolder folder;
  std::ostringstream text;
  text << std::ifstream(installed, std::ios::binary).rdbuf();
  std::string library = text.str();
  const std::string needed = "libopenblas.so.0";
  ASSERT_TRUE(has(library, needed));
  library.replace(library.find(needed), needed.size(), "libopenblas.so.7");
  const std::string path = folder.path() + "/lapack.so";
  std::ofstream(path, std::ios::binary) << library;
  const auto ended = run_program("first_linalg", {"missing"}, {{"POSTERN_LAPACK", path}});
  EXPECT_TRUE(has(ended.out, "cholesky: failed_precondition: linalg.cholesky: load_library: " +
                                 path + ": libopenblas.so.7: cannot open shared object file"))
      << ended.out << ended.err;
}

}  // namespace
}  // namespace postern
