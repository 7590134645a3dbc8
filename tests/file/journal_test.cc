// Going on from a checkpoint with a recording of what calls gave since.
#include <csignal>
#include <random>

#include "file/file_test.h"
#include "full_disk.h"

namespace postern::test {
namespace {

/// A process that trains from its newest checkpoint, in as many steps as are left of 12, and asks a
/// world for a number in each. What the world has given it does not give again.
class Journal : public testing::Test {
 protected:
  const TemporaryFolder folder;
  const fs::path file = fs::path(folder.path()) / "run.rec";
  const std::string kept = folder.path() + "/kept";
  int world = 0, shuts_at = 0;  // at this number the world fails, once
  int entered = 0;

  TrainingState train(const TrainingState& from, float factor = 1.5f, std::int64_t every = 4) {
    const auto keep = listen::checkpoint(kept, {.every = every, .async = false});
    const auto more = [](const TrainingState& now) { return now.step < 12; };
    const auto ask = [this](View<const float>, View<float> out) {
      ++entered;
      if (world + 1 == std::exchange(shuts_at, shuts_at == world + 1 ? 0 : shuts_at))
        throw std::runtime_error("the world is shut");
      ++world;
      for (float& x : out) x = static_cast<float>(world);
    };
    const auto step = [&](const TrainingState& now) {
      const CallOptions options{.name = "ask", .effect = Effect::ordered};
      const Tensor got = call(options, now.weights.type(), ask, now.weights);
      const TrainingState next{now.weights * factor + got, now.step + 1};
      tap({.name = "state"}, next, keep);
      return next;
    };
    return jit([&](TrainingState s) { return while_loop(more, step, s); })(from);
  }
  /// What an undisturbed process ends with.
  std::vector<float> undisturbed() {
    const std::vector<float> out = train(start).weights.to_vector<float>();
    fs::remove_all(kept);
    world = entered = 0;
    return out;
  }
  /// That the world ends at this number.
  void disturbed_at(int number) {
    const Taping recording = record(file, {.resumable = true});
    shuts_at = number;
    EXPECT_THROW(train(start).weights.block_until_ready(), CallbackError);
    entered = 0;
  }
  void refused(std::initializer_list<std::string_view> parts, ErrorCode code) {
    Taping recording = record(file, {.resumable = true});
    expect_error<Error>([&] { resume(kept, start, recording); }, parts, code);
  }
};

TEST_F(Journal, RunsComeToTheVeryStep) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  const Taping recording = record(file, {.resumable = true});
  const auto from = resume(kept, start, recording);
  ASSERT_TRUE(from);
  EXPECT_EQ(from->step.item<std::int32_t>(), 9);
  EXPECT_EQ(train(*from).weights.to_vector<float>(), whole);
  EXPECT_EQ(entered, 1) << "steps 10 and 11 were recorded; the world had no time for step 12";
}

TEST_F(Journal, WithoutACheckpointTheBeginningIsGivenToo) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(6);
  fs::remove_all(kept);
  const Taping recording = record(file, {.resumable = true});
  EXPECT_FALSE(resume<TrainingState>(kept, recording));
  EXPECT_EQ(train(start).weights.to_vector<float>(), whole);
  EXPECT_EQ(entered, 7);
}

TEST_F(Journal, ItMayHappenAgainAndAgain) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(3);
  for (const int number : {6, 7, 12}) {
    const Taping recording = record(file, {.resumable = true});
    const TrainingState from = resume(kept, start, recording).value_or(start);
    shuts_at = number;
    EXPECT_THROW(train(from).weights.block_until_ready(), CallbackError) << number;
  }
  const Taping recording = record(file, {.resumable = true});
  const TrainingState from = resume(kept, start, recording).value_or(start);
  EXPECT_EQ(train(from).weights.to_vector<float>(), whole);
  EXPECT_EQ(world, 12);
}

TEST_F(Journal, RegisteredStatesFollow) {
  const auto registered = register_state("world", world);
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  world = 100;  // another process, which knows nothing
  const Taping recording = record(file, {.resumable = true});
  const TrainingState from = resume(kept, start, recording).value();
  EXPECT_EQ(world, 9) << "the checkpoint's";
  // A checkpoint that is kept meanwhile has the states of its moment.
  EXPECT_EQ(train(from, 1.5f, 1).weights.to_vector<float>(), whole);
  EXPECT_EQ(entered, 1);
  EXPECT_EQ(world, 12);
  world = 100;
  fs::remove_all(fs::path(kept) / "checkpoint-000000000006");
  EXPECT_EQ(resume(kept, start)->step.item<std::int32_t>(), 11);
  EXPECT_EQ(world, 11);
}

TEST_F(Journal, ACallThatWasCancelledIsEnteredAgain) {
  std::atomic<bool> waits{true}, inside{false};
  const auto f = jit([&](Tensor x) {
    const auto waiting = [&](const CallInfo& info, float v) {
      if (!waits) return v + 1;
      inside = true;
      wait_until([&] { return info.stop.stop_requested(); });
      throw std::runtime_error("stopped");
    };
    return call({.name = "waiting"}, x.type(), waiting, x);
  });
  {
    const Taping recording = record(file, {.resumable = true});
    auto run = f.start(Tensor(1.0f));
    ASSERT_TRUE(wait_until([&] { return inside.load(); }));
    run.cancel();
    expect_error<CallbackError>([&] { run.wait(); }, {}, ErrorCode::cancelled);
    barrier();
  }
  waits = false;
  const Taping recording = record(file, {.resumable = true});
  EXPECT_FALSE(resume<Tensor>(kept, recording));
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
}

TEST_F(Journal, WhatSavesAndLoadsStatesMayRunPrograms) {
  const auto adds = jit([](Tensor x) { return host_plus_one(x) * 2.0f; });
  int saved = 0, loaded = 0;
  const auto registered = register_state(
      "runs",
      [&] {
        EXPECT_EQ(adds(Tensor(1.0f)).item<float>(), 4);
        return std::to_string(++saved);
      },
      [&](std::string_view) {
        EXPECT_EQ(adds(Tensor(2.0f)).item<float>(), 6);
        ++loaded;
      });
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  const Taping recording = record(file, {.resumable = true});
  const TrainingState from = resume(kept, start, recording).value();
  EXPECT_EQ(train(from).weights.to_vector<float>(), whole);
  EXPECT_EQ(entered, 1);
  EXPECT_GE(saved, 15) << "with checkpoints and calls";
  EXPECT_EQ(loaded, 3) << "the checkpoint's, and those of steps 10 and 11";
}

TEST_F(Journal, OneRunAfterTheOtherIsGiven) {
  const auto ask = [this](View<float> out) { out[0] = static_cast<float>(++world); };
  const auto next = jit([&](Tensor x) { return x + call(type<float>({1}), ask); });
  {
    const Taping recording = record(file, {.resumable = true});
    for (int i = 0; i < 3; ++i) next(tensor<float>({0})).block_until_ready();
  }
  const Taping recording = record(file, {.resumable = true});
  EXPECT_FALSE(resume<TrainingState>(kept, recording));
  for (const float want : {1.0f, 2.0f, 3.0f, 4.0f})
    EXPECT_EQ(next(tensor<float>({0})).item<float>(), want);
}

TEST_F(Journal, ItCanBeReadAndReplayedLikeAnyRecording) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  const std::vector<RecordedFiring> firings = read_recording(file);
  ASSERT_EQ(firings.size(), 12u);
  EXPECT_EQ(firings[4].name, "ask");
  EXPECT_EQ(firings[4].values.size(), 1u);
  EXPECT_NE(firings[11].failure.find("shut"), std::string::npos);
  const Taping replaying = replay(file);
  expect_error<CallbackError>([&] { train(start).weights.block_until_ready(); }, {"shut"});
  EXPECT_EQ(entered, 0);
  EXPECT_EQ(whole.size(), 3u);
}

TEST_F(Journal, WhatDiffersIsNamed) {
  disturbed_at(12);
  {
    const Taping recording = record(file, {.resumable = true});
    TrainingState from = resume(kept, start, recording).value();
    from.weights = from.weights + 1.0f;
    expect_error<CallbackError>([&] { train(from).weights.block_until_ready(); },
                                {"ask", "call 9 of run 0", "other operands"},
                                ErrorCode::failed_precondition);
  }
  const Taping recording = record(file, {.resumable = true});
  const TrainingState from = resume(kept, start, recording).value();
  expect_error<Error>([&] { train(from, 2.5f); }, {"run 0", "another program"},
                      ErrorCode::failed_precondition);
  EXPECT_EQ(entered, 0);
}

TEST_F(Journal, WhatDoesNotBelongTogetherIsRefused) {
  disturbed_at(12);
  {
    Taping recording = record(file, {.resumable = true});
    train(start);  // anew: the recording that the checkpoints knew is no more
    expect_error<Error>([&] { resume(kept, start, recording); }, {"have been recorded already"},
                        ErrorCode::failed_precondition);
    expect_error<Error>([&] { static_cast<void>(record(file, {.resumable = true})); },
                        {"another process"}, ErrorCode::failed_precondition);
    static_cast<void>(contents(file));  // which opens and closes it
    expect_error<Error>([&] { static_cast<void>(record(file, {.resumable = true})); },
                        {"another process"}, ErrorCode::failed_precondition);
    recording.close();
    expect_error<Error>([&] { resume(kept, start, recording); }, {"is over"},
                        ErrorCode::failed_precondition);
  }
  fs::remove_all(kept);
  train(start);  // without a recording
  refused({"was not kept by a synchronous tap while this recording"},
          ErrorCode::failed_precondition);
  const Taping plain = record(folder.path() + "/plain");
  expect_error<Error>([&] { resume(kept, start, plain); }, {"resumable"},
                      ErrorCode::failed_precondition);
}

TEST_F(Journal, ANewRecordingGoesOnFromAnyCheckpoint) {
  train(start);
  const Taping recording = record(file, {.resumable = true});
  EXPECT_EQ(resume(kept, start, recording)->step.item<std::int32_t>(), 9);
}

TEST_F(Journal, ACutRecordingGivesWhatIsWholeOrIsRefused) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  const std::string text = contents(file);
  const int then = world;
  int refusals = 0;
  for (std::size_t size = text.size(); size > 60; size -= std::min<std::size_t>(37, size)) {
    put(file, text.substr(0, size));
    world = then;
    try {
      const Taping recording = record(file, {.resumable = true});
      resume(kept, start, recording);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::data_loss) << e.what();
      ++refusals;
    }
  }
  EXPECT_GT(refusals, 3);
  for (const std::size_t in_its_head : {40u, 20u, 10u, 1u, 0u}) {  // nothing was recorded
    put(file, text.substr(0, in_its_head));
    const Taping recording = record(file, {.resumable = true});
    EXPECT_TRUE(resume(kept, start, recording).has_value()) << in_its_head;
  }
  put(file, text + std::string(100, '\0'));
  world = 11;
  const Taping recording = record(file, {.resumable = true});
  EXPECT_EQ(train(resume(kept, start, recording).value()).weights.to_vector<float>(), whole);
}

TEST_F(Journal, ADamagedRecordingIsRefusedOrWhatItWas) {
  disturbed_at(12);
  const std::string text = contents(file);
  std::mt19937 random(9);
  int refusals = 0;
  for (int i = 0; i < 500; ++i) {
    std::string damaged = text;
    const std::size_t at = random() % damaged.size();
    damaged[at] ^= static_cast<char>(1 << i % 8);
    put(file, damaged);
    try {
      const Taping recording = record(file, {.resumable = true});
      resume(kept, start, recording);
      ADD_FAILURE() << "byte " << at << ", bit " << i % 8 << " of " << text.size();
    } catch (const Error&) {
      ++refusals;
    }
  }
  EXPECT_EQ(refusals, 500);
}

TEST_F(Journal, ALengthThatWasChangedIsNoCut) {
  disturbed_at(12);
  std::string text = contents(file);
  std::size_t at = 20 + 33;  // its first lines
  const auto byte = [&](std::size_t i) { return std::size_t{static_cast<unsigned char>(text[i])}; };
  for (int piece = 0; piece < 3; ++piece) at += 12 + byte(at) + (byte(at + 1) << 8);
  text[at + 2] = 1;
  put(file, text);
  refused({"checksum"}, ErrorCode::data_loss);
  EXPECT_EQ(contents(file), text);
}

TEST_F(Journal, ACutFileStaysAsItIsUntilMoreIsWritten) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  const std::string cut = contents(file).substr(0, fs::file_size(file) - 5);
  put(file, cut);
  const Taping recording = record(file, {.resumable = true});
  const TrainingState from = resume(kept, start, recording).value();
  EXPECT_EQ(contents(file), cut);
  EXPECT_EQ(train(from).weights.to_vector<float>(), whole);
  EXPECT_EQ(read_recording(file).size(), 12u);
}

TEST_F(Journal, AFullDiskFailsTheRunAndLosesNothing) {
  const std::vector<float> whole = undisturbed();
  disturbed_at(12);
  const std::size_t size = fs::file_size(file);
  fs::remove_all(kept);
  world = 0;
  {
    const Taping recording = record(file, {.resumable = true});
    const FullDisk full(size * 3 / 4);
    expect_error<CallbackError>([&] { train(start).weights.block_until_ready(); },
                                {"cannot write", "File too large"});
  }
  EXPECT_LE(fs::file_size(file), size * 3 / 4);
  const Taping recording = record(file, {.resumable = true});
  const TrainingState from = resume(kept, start, recording).value_or(start);
  --world;  // what it gave last nobody got
  EXPECT_EQ(train(from).weights.to_vector<float>(), whole);
}

TEST_F(Journal, AStartThatNobodyHadWaitedForIsNamed) {
  bool fails = true;
  const auto f = jit([&](Tensor x) {
    const auto number = start_call(
        {.name = "ahead"}, x.type(), [](float v) { return v; }, x);
    const Tensor between = call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          if (fails) throw std::runtime_error("the world is shut");
          return v;
        },
        x);
    return wait(number) + between;
  });
  {
    const Taping recording = record(file, {.resumable = true});
    EXPECT_THROW(f(1.0f).block_until_ready(), CallbackError);
  }
  fails = false;
  const Taping recording = record(file, {.resumable = true});
  resume<TrainingState>(kept, recording);
  expect_error<CallbackError>([&] { f(1.0f).block_until_ready(); },
                              {"ahead", "between the start of a call and its wait"});
}

// The world is a file that counts who asked; each number is used once.
TEST_F(Journal, KilledAtAnyCallItEndsAsUndisturbed) {
  const auto run = [&](const std::string& name, int kill_at) {
    const std::string at = folder.path() + "/" + name;
    std::vector<std::string> arguments{at, "400", "0", at + ".rec", at + ".world"};
    if (kill_at > 0) arguments.push_back(std::to_string(kill_at));
    return run_program("checkpoint_loop", arguments);
  };
  const Ended whole = run("whole", 0);
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::mt19937 random(3);
  for (int at = 1; at < 400; at += 1 + static_cast<int>(random() % 80)) {
    const Ended cut = run("cut", at);
    ASSERT_EQ(cut.code, 1000 + SIGKILL) << cut.err;
  }
  const Ended end = run("cut", 0);
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, whole.out);
  EXPECT_EQ(fs::file_size(folder.path() + "/cut.world"), 400u);
}

}  // namespace
}  // namespace postern::test
