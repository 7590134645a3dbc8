// Programs that are nested so deep that XLA would run out of stack.
#include "support.h"

namespace postern::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr const char* small_stack = "4096";  // KiB; a sanitizer's frames are several times as large
#else
constexpr const char* small_stack = "512";
#endif

TEST(Error, DeepProgramsCompileOnSmallStacksOrAreRefused) {
  for (const char* form : {"cond", "while"})
    for (const char* stack : {small_stack, "8192"}) {
      const Ended ended = run_program("deep_nesting", {"100", stack, form});
      EXPECT_EQ(ended.code, 0) << form << ", stack of " << stack << " KiB: " << ended.err;
      EXPECT_EQ(ended.out, std::string(form) == "cond" ? "200\n" : "100\n") << form;
    }
  const Ended refused = run_program("deep_nesting", {"1000", "8192", "cond"});
  EXPECT_EQ(refused.code, 0) << refused.err;
  EXPECT_TRUE(has(refused.out, "resource_exhausted: ") && has(refused.out, "500 levels deep"))
      << refused.out;
}

}  // namespace
}  // namespace postern::test
