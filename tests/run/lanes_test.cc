// Runs that are inside their calls at once keep nobody out, each case in a process of its own.
#include <future>

#include "run/array.h"
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

TEST(Lanes, WhereThereIsOneClientWhoCanWaitDoes) {
  RecordProperty("covers", "REENTRY-03");
  const auto ended = test::run_program(
      "lanes", {"one client"},
      {{"POSTERN_PLUGIN", POSTERN_TEST_LIBRARIES "/damaged_plugin.so"}, {"POSTERN_LOG", "warning"}},
      150s);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(test::has(ended.err, "there is no further client")) << ended.err;
}

TEST(Lanes, ChainsOfProgramsOnOtherDevices) {
  RecordProperty("covers", "FOREIGN-04");
  for (const char* links : {"2", "3", "4", "6"}) expect_ok({"chain", links});
}

TEST(Lanes, SeveralDevicesInsideTheirCalls) {
  RecordProperty("covers", "REENTRY-02");
  if (test::skipped_in_stages("a program over several devices is not cut")) return;
  for (const char* depth : {"2", "3", "4"}) expect_ok({"nested", depth});
  expect_ok({"siblings"});
}

TEST(Lanes, SeveralDevicesInsideTheirCallsKeepNobodyOut) {
  RecordProperty("covers", "REENTRY-03");
  if (test::skipped_in_stages("a program over several devices is not cut")) return;
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

/// The device's own lane is taken: a run that calls back finds another one.
struct Occupied {
  run::Lane& lane = run::Runtime::get().take(0, true);
  ~Occupied() { run::Runtime::get().leave(lane); }
};

const run::DeviceValue& value_of(const Tensor& x) {
  return static_cast<const run::DeviceValue&>(*detail::Access::value(x));
}

std::size_t count_views(const Tensor& x) {
  std::size_t count = 0;
  for (const auto* v = value_of(x).views.load(); v; v = v->next) ++count;
  return count;
}

void copy(View<const float> from, View<float> to) { std::ranges::copy(from, to.begin()); }

TEST(Lanes, RunsOfALaneShareTheirViewOfAnArray) {
  if (test::skipped_in_stages("a run in stages has no lane")) return;
  const auto next = jit([](Tensor x) { return call({}, x.type(), copy, x) + 1.0f; });
  Tensor x;
  EXPECT_TRUE(test::wait_until([&] {  // else another run of late had the device's own lane
    x = device_put(tensor<float>({1, 2}), 0).block_until_ready();
    for (int i = 0; i < 16; ++i) next(x).block_until_ready();
    return count_views(x) == 0;
  }));
  {
    const Occupied occupied;
    for (int i = 0; i < 40; ++i) EXPECT_EQ(next(x).to_vector<float>(), (std::vector<float>{2, 3}));
  }
  EXPECT_EQ(count_views(x), 1u);
  EXPECT_EQ(value_of(x).readers.load(), 0);  // so that a program may take the memory
  const void* const memory = value_of(x).buffer.data();
  const Tensor y = jit([](Tensor t) { return t * 2.0f; }, {.donate = {0}})(x);
  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(value_of(y).buffer.data(), memory);
  const Occupied occupied;
  test::expect_error<TypeError>([&] { next(x); }, {"donated", "f32[2]"});
  EXPECT_EQ(next(y).to_vector<float>(), (std::vector<float>{3, 5}));
}

TEST(Lanes, AViewedArrayIsThereUntilTheRunHasEnded) {
  std::promise<void> entered, go_on;
  bool waits = false;
  const auto next = jit([&](Tensor x) {
    const auto slow = [&](View<const float> from, View<float> to) {
      if (waits) {
        entered.set_value();
        go_on.get_future().wait();
      }
      copy(from, to);
    };
    return call({}, x.type(), slow, x) + 1.0f;
  });
  const Occupied occupied;
  Tensor x = device_put(full({DType::f32, {64}}, 3.0f), 0).block_until_ready();
  next(x).block_until_ready();  // makes the view
  waits = true;
  std::optional run = next.start(x);
  EXPECT_EQ(entered.get_future().wait_for(20s), std::future_status::ready);
  std::weak_ptr<const detail::Value> watched = detail::Access::pointer(x);
  x = Tensor();
  EXPECT_FALSE(watched.expired());
  go_on.set_value();
  EXPECT_EQ(run->result().to_vector<float>(), std::vector<float>(64, 4.0f));
  run.reset();
  for (int i = 0; i < 1000 && !watched.expired(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace postern
