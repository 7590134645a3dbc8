// How runs end, and who is told: parts of the runtime by themselves.
#include <postern/error.h>

#include "host/run_state.h"
#include "host/unobserved.h"
#include "support.h"

namespace postern::test {
namespace {

using namespace internal::host;

// Its deadline may pass just behind its end.
TEST(Ends, ARunThatEndedWellIsNotLate) {
  RunState run;
  run.open();
  run.close();
  run.fail_late();
  EXPECT_EQ(run.outcome(), Outcome::done);
  EXPECT_EQ(run.take_unobserved(), nullptr);
}

TEST(Ends, BarrierTellsOfFailuresOfEveryType) {
  for (const bool error_first : {true, false}) {
    const auto plain = std::make_exception_ptr(std::runtime_error("plain"));
    const auto error = std::make_exception_ptr(Error(ErrorCode::data_loss, "typed"));
    keep_unobserved(error_first ? error : plain);
    keep_unobserved(error_first ? plain : error);
    const auto told = error_of<CallbackError>([] { barrier(); });
    ASSERT_TRUE(told);
    EXPECT_TRUE(has(told->what(), error_first ? "typed" : "plain")) << told->what();
    ASSERT_EQ(told->others().size(), 1u);
    EXPECT_TRUE(has(told->others()[0], error_first ? "plain" : "typed")) << told->others()[0];
    barrier();
  }
}

}  // namespace
}  // namespace postern::test
