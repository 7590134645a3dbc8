// Checkpoints of a run's last firing.
#include "file/file_test.h"

namespace postern::test {
namespace {

/// As many steps, each of which is shown; the one after `fails` fails.
void run_steps(int steps, const listen::Checkpoint& keep, int fails = 1000) {
  const auto step = [&](Tensor i, TrainingState now) {
    const TrainingState next{now.weights * 1.5f, now.step + 1};
    tap({.name = "state"}, next, keep);
    check(i < fails, "at {}", i);
    return next;
  };
  jit([&](TrainingState s) { return fori_loop(0, steps, step, s); })(start)
      .step.block_until_ready();
}
int last_step_in(const std::string& folder) {
  return resume<TrainingState>(folder)->step.item<std::int32_t>();
}

TEST(Checkpoint, TheLastFiringOfARunIsKeptHoweverItEnds) {
  for (const bool async : {true, false}) {
    const TemporaryFolder folder;
    const auto keep =
        listen::checkpoint(folder.path(), {.every = 5, .last = true, .keep = 0, .async = async});
    run_steps(8, keep);
    barrier();
    EXPECT_EQ(keep.written(), 3u) << "firings 0, 5 and 7";
    EXPECT_EQ(last_step_in(folder.path()), 8 + start.step.item<std::int32_t>());
    run_steps(3, keep);  // its last is firing 10, which is kept anyway
    barrier();
    EXPECT_EQ(keep.written(), 4u);
    EXPECT_EQ(last_step_in(folder.path()), 3 + start.step.item<std::int32_t>());
    EXPECT_THROW(run_steps(9, keep, 3), CallbackError);
    EXPECT_TRUE(wait_until([&] { return keep.written() == 5; }));
    EXPECT_EQ(last_step_in(folder.path()), 4 + start.step.item<std::int32_t>());
    barrier();  // before the folder goes
  }
}

TEST(Checkpoint, ATapOutsideOfProgramsIsARunOfItsOwn) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.every = 5, .last = true, .keep = 0});
  TrainingState now = start;
  for (int i = 0; i < 8; ++i) {
    now = {now.weights * 1.5f, now.step + 1};
    tap({.name = "state"}, now, keep);
  }
  barrier();
  EXPECT_EQ(keep.written(), 8u);
  EXPECT_EQ(last_step_in(folder.path()), now.step.item<std::int32_t>());
}

// It may be delivered when its run has ended.
TEST(Checkpoint, TheLastOfAnAsynchronousTapIsRefused) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.every = 5, .last = true});
  jit([&](TrainingState s) { return tap({.name = "state", .mode = TapMode::async}, s, keep); })(
      start)
      .step.block_until_ready();
  expect_error<CallbackError>([] { barrier(); }, {"synchronous taps"});
}

}  // namespace
}  // namespace postern::test
