// Runs that are inside their calls at once keep nobody out, each case in a process of its own.
#include "support.h"

namespace postern {
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

}  // namespace
}  // namespace postern
