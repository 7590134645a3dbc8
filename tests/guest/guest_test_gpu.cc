// Functions for programs of another XLA on a GPU, with a stand-in for CUDA: what is copied and
// waited for, and what happens when CUDA fails.
#include "guest_test.h"

namespace postern::internal {
namespace {

using namespace guest_test;
using guest_test::run;  // not the room
using pjrt::Executable;
using test::cause_of, test::expect_error, test::FakeCuda, test::has;

class GuestOnAGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (gpu::stood_in()) GTEST_SKIP() << "all of these tests call through the stand-in";
    fake.reset();
  }
  FakeCuda& fake = FakeCuda::get();
};

TEST_F(GuestOnAGpu, ACallCopiesAndWaitsOnce) {
  RecordProperty("covers", "GPU-02");
  const guest::Home* home = nullptr;
  const Named_f f([&](View<const float> in, View<float> out) {
    home = guest::waiting().home;
    twice(in, out);
  });
  const Executable p = program(asked, on_gpu);
  for (int run_of = 1; run_of <= 3; ++run_of) {
    EXPECT_EQ(run(p, {5, 6, 7, 8}, run_of), (Floats{10, 12, 14, 16}));
    EXPECT_EQ(fake.count("copy_to_host"), run_of);
    EXPECT_EQ(fake.count("synchronize"), run_of);
    EXPECT_EQ(fake.count("copy_to_device"), run_of);
    EXPECT_EQ(fake.count("wait"), 0);
  }
  EXPECT_EQ(fake.count("enter"), fake.count("leave"));
  ASSERT_TRUE(home);
  EXPECT_EQ(home->platform, "cuda");
  EXPECT_EQ(guest::waiting().home, nullptr);
}

TEST_F(GuestOnAGpu, APositionOnAMeshIsReadFromTheDevice) {
  std::vector<std::int64_t> seen;
  const Named_f f([&](const CallInfo& info, View<const float> in, View<float> out) {
    seen.assign(info.coordinates.begin(), info.coordinates.end());
    twice(in, out);
  });
  const MeshProgram at{on_gpu};
  for (const std::uint32_t position : {5u, 5u, 2u}) {
    EXPECT_EQ(at(position), (Floats{2, 4, 6, 8}));
    EXPECT_EQ(seen, (std::vector<std::int64_t>{position / 3, position % 3}));
  }
  EXPECT_EQ(fake.count("copy_to_host"), 6);
  fake.fail("copy_to_host");
  expect_error<Error>([&] { at(1); }, {"CUDA failed to copy what a call on a mesh shares",
                                       "an illegal address was met"});
  EXPECT_EQ(at(1), (Floats{2, 4, 6, 8}));
}

TEST_F(GuestOnAGpu, AnAsynchronousTapWaitsForNothing) {
  RecordProperty("covers", "GPU-03");
  std::vector<float> seen;
  const Named_f f([&](View<const float> x) { seen.push_back(x[0]); });
  const Executable p = tap_program(R"(function = "guest_test.f", kind = "async")", on_gpu);
  for (const float v : {1.0f, 2.0f, 3.0f}) run(p, {v, 0, 0, 0});
  barrier();
  EXPECT_EQ(seen, (Floats{1, 2, 3}));
  EXPECT_EQ(fake.count("synchronize"), 0);
  EXPECT_EQ(fake.count("wait"), 3) << "the delivery thread's";
}

TEST_F(GuestOnAGpu, WhatTheDriverFailsEndsTheProgram) {
  RecordProperty("covers", "GPU-06");
  const Named_f f(twice);
  const Executable p = program(asked, on_gpu);
  const std::pair<const char*, const char*> failures[] = {
      {"copy_to_host", "CUDA failed to copy an operand to the host"},
      {"synchronize", "CUDA failed to compute the operands"},
      {"copy_to_device", "CUDA failed to copy a result to the device"},
      {"context_of", "CUDA failed to find the context of a stream"},
      {"enter", "CUDA failed to enter its context"}};
  for (const auto& [function, text] : failures) {
    fake.fail(function);
    expect_failure<CallbackError>(p, {"call 'f'", text, "an illegal address was met"});
    EXPECT_EQ(run(p), (Floats{2, 4, 6, 8})) << function;
  }
}

TEST_F(GuestOnAGpu, WhatAFunctionThrowsIsTheFailuresCause) {
  const Named_f f([](View<const float>, View<float>) { throw std::out_of_range("no such row"); });
  const std::uint64_t number = failure_of(program(asked, on_gpu));
  const auto error =
      test::error_of<CallbackError>([&] { std::rethrow_exception(guest::failure(number)); });
  ASSERT_TRUE(error && cause_of<std::out_of_range>(*error));
  EXPECT_EQ(fake.count("copy_to_device"), 0);
}

TEST(Guest, AGpusHandlersNeedItsDriver) {
  RecordProperty("covers", "GPU-07");
  try {
    EXPECT_NE(platforms::cuda.guest_handlers().execute, nullptr) << "where there is a GPU";
  } catch (const PluginError& e) {
    EXPECT_TRUE(has(e.what(), "NVIDIA driver")) << e.what();
  }
}

}  // namespace
}  // namespace postern::internal
