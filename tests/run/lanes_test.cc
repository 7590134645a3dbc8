// Runs that are inside their calls at once keep nobody out, each case in a process of its own.
#include <future>

#include "run/runtime.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;

void expect_ok(const std::vector<std::string>& how) {
  const auto ended = test::run_program("lanes", how, {}, 90s);
  EXPECT_EQ(ended.code, 0) << how[0] << ": " << ended.out << ended.err;
}

TEST(Lanes, ManyThreadsInsideTheirCallsAtOnce) {
  RecordProperty("covers", "REENTRY-03");
  for (const char* count : {"26", "40", "100"}) expect_ok({"together", count});
  for (const char* count : {"26", "70"}) expect_ok({"together heavy", count});
}

TEST(Lanes, StuckFunctionsOfCancelledRunsKeepNobodyOut) {
  RecordProperty("covers", "TIME-04");
  expect_ok({"stuck", "80"});
}

TEST(Lanes, ChainsOfProgramsOnOtherDevices) {
  RecordProperty("covers", "FOREIGN-04");
  for (const char* links : {"2", "3", "4", "6"}) expect_ok({"chain", links});
}

TEST(Lanes, SeveralDevicesInsideTheirCalls) {
  RecordProperty("covers", "REENTRY-02");
  for (const char* depth : {"2", "3", "4"}) expect_ok({"nested", depth});
  expect_ok({"siblings"});
}

TEST(Lanes, SeveralDevicesInsideTheirCallsKeepNobodyOut) {
  RecordProperty("covers", "REENTRY-03");
  for (const char* how : {"beside disjoint", "beside same", "beside cancelled"}) expect_ok({how});
}

// On GPUs a run leaves its lane while its kernels are still on their way.
TEST(Lanes, RunsThatHaveLeftEarlyAreWaitedFor) {
  auto& runtime = run::Runtime::get();
  const auto pending = [&](const std::vector<host::RunName>& but = {}) {
    return runtime.wait_for_runs(std::chrono::steady_clock::now() + 20ms, but);
  };
  ASSERT_EQ(pending(), 0u);
  run::Lane& lane = runtime.take(0, true);
  const std::uint64_t number = lane.run;
  EXPECT_EQ(pending(), 1u);
  // These began while it was on its lane.
  auto barrier = std::async(std::launch::async, [&] { return runtime.wait_for_runs({}); });
  auto follower = std::async(std::launch::async, [&] { runtime.wait_for(lane, number); });
  std::this_thread::sleep_for(20ms);
  runtime.add_trailing(number, false);
  runtime.leave(lane);
  EXPECT_EQ(barrier.wait_for(50ms), std::future_status::timeout);
  EXPECT_EQ(follower.wait_for(0ms), std::future_status::timeout);
  EXPECT_EQ(pending(), 1u);
  EXPECT_EQ(pending({{.lane_run = number}}), 0u);
  runtime.leave(runtime.take(0, true));  // another run has the lane meanwhile
  runtime.remove_trailing(number);
  EXPECT_EQ(barrier.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(follower.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(pending(), 0u);
}

}  // namespace
}  // namespace postern
