// Host functions that try to end their thread.
#include "support.h"

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::run_program;

TEST(ThreadEnd, IsRefusedOnEachKindOfThread) {
  for (const char* how : {"caller", "at once", "evaluated", "staged", "started", "limited", "tap",
                          "elements", "shared", "state"}) {
    const auto ended = run_program("thread_ends", {how}, {}, 100s);
    EXPECT_EQ(ended.code, 0) << how << ": " << ended.out << ended.err;
  }
}

TEST(ThreadEnd, IsRefusedOnAThreadOfXlas) {
  if (test::skipped_in_stages("a program over several devices is not cut")) return;
  const auto ended = run_program("thread_ends", {"xla"}, {}, 100s);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(ThreadEnd, ACancelledThreadEndsWhenItsProgramHas) {
  const auto ended = run_program("thread_ends", {"cancelled"}, {}, 100s);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

}  // namespace
}  // namespace postern
