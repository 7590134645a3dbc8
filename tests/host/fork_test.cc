// fork: before the first use all is well; after it the child is told so, and ends.
#include "support.h"

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::run_program;

void expect_ok(const std::string& how) {
  const auto ended = run_program("forks", {how}, {}, 300s);
  EXPECT_EQ(ended.code, 0) << how << ": " << ended.out << ended.err;
  EXPECT_EQ(ended.err, "");
}

TEST(Fork, BeforeTheFirstUseBothProcessesWork) { expect_ok("before"); }
TEST(Fork, AfterUseTheChildIsRefusedAndEnds) { expect_ok("after"); }
TEST(Fork, AHostFunctionMayFork) { expect_ok("inside"); }

}  // namespace
}  // namespace postern
