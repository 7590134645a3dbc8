// How runs end, and who is told: parts of the runtime by themselves.
#include <postern/error.h>

#include <future>

#include "host/run_state.h"
#include "host/unobserved.h"
#include "run/start.h"
#include "support.h"

namespace postern::test {
namespace {

using namespace internal::host;
using internal::Tensors;

// Its deadline may pass just behind its end.
TEST(Ends, ARunThatEndedWellIsNotLate) {
  RunState run;
  run.open();
  run.close();
  run.fail_late();
  EXPECT_EQ(run.outcome(), Outcome::done);
  EXPECT_EQ(run.take_unobserved(), nullptr);
}

TEST(Ends, ARunThatWasStoppedDoesNotFailBehindItsEnd) {
  RunState run;
  run.open();
  run.request(Outcome::stopped);
  run.close();
  run.fail_late();
  EXPECT_EQ(run.outcome(), Outcome::stopped);
}

// The thread of a run may be held up between the end of its functions and its own.
TEST(Ends, ResultsThatAreNotThereByTheDeadlineAreLate) {
  const auto state = std::make_shared<RunState>();
  std::promise<void> go_on;
  const auto body = [state, &go_on] {
    state->open();
    state->close();
    go_on.get_future().wait();
    return Tensors();
  };
  const auto run = detail::start_run(state, body, {.deadline = 50ms}, {});
  expect_error<TimeoutError>([&] { detail::wait_run(*run, {}); }, {"the run's deadline passed"},
                             ErrorCode::timeout);
  go_on.set_value();
  barrier();
}

// A function that hears of it may throw before whoever cancels has told the waiters.
TEST(Ends, WhatIsThrownOnceTheRunIsCancelledIsNotItsFailure) {
  RunState run;
  run.open();
  run.request(Outcome::cancelled);
  run.fail_late();
  EXPECT_EQ(run.outcome(), Outcome::cancelled);
  EXPECT_EQ(error_of<CallbackError>([&] { run.rethrow(); })->code(), ErrorCode::cancelled);
  run.close();
}

TEST(Ends, FunctionsThatThrowAtOnceWhenTheirRunIsCancelled) {
  std::atomic<bool> entered = false;
  const auto f = jit([&](Tensor x) {
    const auto throws = [&](const CallInfo& info, float) -> float {
      entered = true;
      while (!info.stop.stop_requested()) {
      }
      throw std::runtime_error("it was ended");
    };
    return call({.name = "throws"}, x.type(), throws, x);
  });
  for (int i = 0; i < 300; ++i) {
    entered = false;
    auto run = f.start(Tensor(1.0f));
    ASSERT_TRUE(wait_until([&] { return entered.load(); }));
    run.cancel();
    expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  }
  EXPECT_NO_THROW(barrier());
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
