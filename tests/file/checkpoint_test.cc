// Checkpoints: what is kept, what is found again, and what damage does.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <latch>
#include <optional>
#include <random>
#include <thread>

#include "core/digest.h"
#include "file/file_test.h"
#include "full_disk.h"

namespace postern::test {
using namespace internal;
namespace {

/// As many steps, each of which is shown.
TrainingState train(const TrainingState& from, int steps, const listen::Checkpoint& keep) {
  const auto step = [&](Tensor, TrainingState now) {
    const TrainingState next{now.weights * 1.5f + 1.0f, now.step + 1};
    tap({.name = "state"}, next, keep);
    return next;
  };
  return jit([&](TrainingState s) { return fori_loop(0, steps, step, s); })(from);
}

std::vector<fs::path> checkpoints_in(const std::string& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}
int step_in(const std::string& folder) {
  return resume<TrainingState>(folder)->step.item<std::int32_t>();
}

TEST(Checkpoint, TheNewestAreKeptAndGoOnToTheBit) {
  const TemporaryFolder folder;
  EXPECT_FALSE(resume<TrainingState>(folder.path()));
  EXPECT_FALSE(resume<TrainingState>(folder.path() + "/none"));
  const auto keep = listen::checkpoint(folder.path(), {.every = 3, .keep = 2});
  const TrainingState end = train(start, 12, keep);
  barrier();
  EXPECT_EQ(keep.written(), 4u);
  EXPECT_EQ(checkpoints_in(folder.path()).size(), 2u);
  const auto kept = resume<TrainingState>(folder.path());
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->step.item<std::int32_t>(), 10);
  const TrainingState again = train(*kept, 2, listen::checkpoint(folder.path()));
  EXPECT_EQ(again.weights.to_vector<float>(), end.weights.to_vector<float>());
  barrier();  // before the folder goes
}

TEST(Checkpoint, SynchronousOnesAreThereWhenTheTapReturns) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.keep = 0, .async = false});
  for (int i = 1; i <= 5; ++i) {
    tap(TrainingState{start.weights, Tensor(i)}, keep);
    EXPECT_EQ(step_in(folder.path()), i);
  }
  EXPECT_EQ(checkpoints_in(folder.path()).size(), 5u);
}

TEST(Checkpoint, ContainersComeBackAsTheyWere) {
  struct Layer {
    Tensor w;
    std::optional<Tensor> b;
  };
  using Tree = std::tuple<std::vector<Layer>, std::map<std::string, std::pair<Tensor, Tensor>>>;
  const TemporaryFolder folder;
  const Tree tree{{{Tensor(1.0f), Tensor(2)}, {Tensor(3.0), {}}},
                  {{"mean", {Tensor(4), Tensor(true)}}, {"var", {Tensor(5), Tensor(false)}}}};
  tap(tree, listen::checkpoint(folder.path(), {.async = false}));
  const auto back = resume<Tree>(folder.path());
  ASSERT_TRUE(back);
  const auto& [layers, stats] = *back;
  ASSERT_EQ(layers.size(), 2u);
  EXPECT_EQ(layers[0].b->item<std::int32_t>(), 2);
  EXPECT_EQ(layers[1].w.item<double>(), 3.0);
  EXPECT_FALSE(layers[1].b);
  EXPECT_EQ(stats.at("var").first.item<std::int32_t>(), 5);
  EXPECT_TRUE(resume(folder.path(), tree));
}

// Long parts go to the disk in whole blocks, which their ends are not.
TEST(Checkpoint, LongOnesComeBackToTheLastByte) {
  const TemporaryFolder folder;
  const TrainingState from{iota<float>(1'000'001), Tensor(7)};
  tap(from, listen::checkpoint(folder.path(), {.async = false}));
  EXPECT_EQ(resume<TrainingState>(folder.path())->weights.to_vector<float>(),
            from.weights.to_vector<float>());
  const auto tensors = load_tensors(checkpoints_in(folder.path())[0] / "part-0.safetensors");
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].second.to_vector<float>(), from.weights.to_vector<float>());
  EXPECT_EQ(tensors[1].second.item<std::int32_t>(), 7);
}

TEST(Checkpoint, DamageIsPassedOver) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.keep = 0, .async = false});
  for (int i = 1; i <= 4; ++i) tap(TrainingState{start.weights, Tensor(i)}, keep);
  const std::vector<fs::path> all = checkpoints_in(folder.path());
  const fs::path part = all[3] / "part-0.safetensors";
  fs::resize_file(part, fs::file_size(part) / 2);
  EXPECT_EQ(step_in(folder.path()), 3);
  std::fstream(all[2] / "part-0.safetensors", std::ios::in | std::ios::out).seekp(-1, std::ios::end)
      << 'x';
  EXPECT_EQ(step_in(folder.path()), 2);
  fs::resize_file(all[1] / "manifest", 60);
  EXPECT_EQ(step_in(folder.path()), 1);
  fs::remove(all[0] / "manifest");  // as if it had never been whole
  expect_error<Error>([&] { resume<TrainingState>(folder.path()); },
                      {"no checkpoint of", "were written", "checksum", "manifest"},
                      ErrorCode::data_loss);
}

TEST(Checkpoint, AnyDamagedByteIsNoticed) {
  const TemporaryFolder folder;
  tap(start, listen::checkpoint(folder.path(), {.async = false}));
  std::mt19937 random(5);
  for (const char* name : {"manifest", "part-0.safetensors"}) {
    const fs::path file = checkpoints_in(folder.path())[0] / name;
    const auto size = fs::file_size(file);
    for (int i = 0; i < 200; ++i) {
      const auto at = static_cast<std::streamoff>(random() % size);
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      const int before = bytes.seekg(at).get();
      bytes.seekp(at).put(static_cast<char>(before ^ (1 << i % 8))).flush();
      EXPECT_THROW(resume<TrainingState>(folder.path()), Error) << name << " at " << at;
      bytes.seekp(at).put(static_cast<char>(before));
    }
  }
  EXPECT_EQ(step_in(folder.path()), 0);
}

TEST(Checkpoint, AManifestThatLiesIsRefused) {
  const TemporaryFolder folder;
  tap(start, listen::checkpoint(folder.path(), {.async = false}));
  const fs::path file = checkpoints_in(folder.path())[0] / "manifest";
  const std::string text = contents(file);
  const std::size_t sum = text.find('\n') + 1, body = sum + 33;
  const std::string letters = "0123456789-,:[]{}\".efs\\\n";
  std::mt19937 random(11);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text.substr(body);
    for (auto n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % changed.size();
      if (random() % 4 == 0)
        changed.erase(at, 1 + random() % 8);
      else
        changed[at] = letters[random() % letters.size()];
    }
    std::ofstream(file) << text.substr(0, sum) << digest(changed) << "\n" << changed;
    try {
      const auto found = resume<TrainingState>(folder.path());
      EXPECT_TRUE(!found || found->weights.size() <= 3) << changed;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Checkpoint, TheClockDoesNotMatter) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.keep = 2, .async = false});
  const auto now = fs::file_time_type::clock::now();
  for (int i = 1; i <= 4; ++i) {
    tap(TrainingState{start.weights, Tensor(i)}, keep);
    const fs::path newest = checkpoints_in(folder.path()).back();
    for (const fs::path& path : {newest / "manifest", newest})
      fs::last_write_time(path, now - i * std::chrono::hours(24 * 365));
  }
  EXPECT_EQ(step_in(folder.path()), 4);
  EXPECT_EQ(checkpoints_in(folder.path()).size(), 2u);
}

TEST(Checkpoint, OfAnotherProgramAllDifferencesAreListed) {
  struct Other {
    Tensor weights, bias, step;
  };
  const TemporaryFolder folder;
  tap(start, listen::checkpoint(folder.path(), {.async = false}));
  const std::pair pair{Tensor(1), Tensor(2)};
  expect_error<Error>([&] { resume(folder.path(), pair); },
                      {"of another program", "\"[0]\" is not in the checkpoint", "\"[1]\"",
                       "\"weights\" is in the checkpoint, and not asked for", "\"step\""},
                      ErrorCode::failed_precondition);
  expect_error<Error>([&] { resume<Other>(folder.path()); }, {"\"bias\" is not in the checkpoint"});
  expect_error<Error>(
      [&] {
        resume(folder.path(), TrainingState{tensor<float>({1, 2}), Tensor(0.0f)});
      },
      {"\"weights\" is f32[2], in the checkpoint f32[3]", "\"step\" is f32[]", "s32[]"});
}

TEST(Checkpoint, StatesGoAlong) {
  const TemporaryFolder folder;
  std::mt19937 engine(9);
  std::int64_t position = 41;
  std::string text = "two words";
  const auto keep = listen::checkpoint(folder.path());
  std::vector<unsigned> drawn;
  {
    const auto first = register_state("engine", engine), second = register_state("at", position);
    const auto third = register_state(
        "text", [&] { return text; }, [&](std::string_view t) { text = t; });
    expect_error<Error>([&] { static_cast<void>(register_state("at", position)); }, {"\"at\""},
                        ErrorCode::already_exists);
    const TrainingState end = train(start, 1, keep);
    end.step.block_until_ready();
    for (int i = 0; i < 5; ++i) drawn.push_back(static_cast<unsigned>(engine()));
    position = 99;
    text = "";
    barrier();
    ASSERT_TRUE(resume<TrainingState>(folder.path()));
    EXPECT_EQ(position, 41);
    EXPECT_EQ(text, "two words");
    for (const unsigned d : drawn) EXPECT_EQ(engine(), d);
  }
  const auto other = register_state("other", position);
  expect_error<Error>([&] { resume<TrainingState>(folder.path()); },
                      {"state \"engine\" is in the checkpoint, and not registered",
                       "state \"other\" is registered, and not in the checkpoint"},
                      ErrorCode::failed_precondition);
  expect_error<CallbackError>(
      [&] {
        tap({.mode = TapMode::async}, start, keep);
        barrier();
      },
      {"make the tap synchronous"});
}

TEST(Checkpoint, WhatSavesAndLoadsStatesMayUseTheLibrary) {
  const TemporaryFolder folder, inner;
  const auto keep = listen::checkpoint(folder.path()),
             keep_inside = listen::checkpoint(inner.path());
  const auto kept = [](const listen::Checkpoint& k) {
    return jit([k](Tensor x) { return tap(x, k); });
  };
  kept(keep_inside)(Tensor(1.0f)).block_until_ready();
  keep_inside.wait();
  fs::remove_all(inner.path());
  kept(keep)(Tensor(3.0f)).block_until_ready();
  keep.wait();
  int inside = 0, saved = 0, loaded = 0;
  std::optional<RegisteredState> more;
  const auto uses = [&](int& count) {
    if (std::exchange(inside, 1)) return;  // of what is kept in here
    ++count;
    if (count == 1 && !more)
      more.emplace(register_state(
          "more", [] { return std::string(); }, [](std::string_view) {}));
    EXPECT_EQ(kept(keep_inside)(Tensor(2.0f)).item<float>(), 2);
    keep_inside.wait();
    EXPECT_EQ(resume<Tensor>(inner.path())->item<float>(), 2);
    inside = 0;
  };
  const auto state = register_state(
      "uses",
      [&] {
        uses(saved);
        return std::string("x");
      },
      [&](std::string_view) { uses(loaded); });
  kept(keep)(Tensor(4.0f)).block_until_ready();
  kept(keep)(Tensor(5.0f)).block_until_ready();
  keep.wait();
  EXPECT_EQ(resume<Tensor>(folder.path())->item<float>(), 5);
  EXPECT_EQ(saved, 2);
  EXPECT_EQ(loaded, 1);
}

TEST(Checkpoint, FoldersDoNotWaitForEachOthersStates) {
  const TemporaryFolder first, second;
  std::latch both(2);
  const auto state = register_state(
      "slow",
      [&] {
        both.arrive_and_wait();
        return std::string();
      },
      [](std::string_view) {});
  const auto run_with = [](const listen::Checkpoint& k) {
    return jit([k](Tensor x) { return tap(x, k); }).start(Tensor(1.0f));
  };
  const auto a = run_with(listen::checkpoint(first.path()));
  const auto b = run_with(listen::checkpoint(second.path()));
  EXPECT_EQ(a.wait(20s), RunStatus::done);
  EXPECT_EQ(b.wait(20s), RunStatus::done);
  barrier();
}

TEST(Checkpoint, AStateGoesWhenNobodyIsInItsFunctionsAnyMore) {
  const TemporaryFolder folder;
  std::atomic<bool> inside{false}, left{false};
  std::optional<RegisteredState> state(register_state(
      "slow",
      [&] {
        inside = true;
        std::this_thread::sleep_for(50ms);
        left = true;
        return std::string();
      },
      [](std::string_view) {}));
  const auto keep = listen::checkpoint(folder.path());
  const auto run = jit([&](Tensor x) { return tap(x, keep); }).start(Tensor(1.0f));
  ASSERT_TRUE(wait_until([&] { return inside.load(); }));
  state.reset();
  EXPECT_TRUE(left);
  run.wait();
  barrier();
}

TEST(Checkpoint, WhatStopsAndWhatGoesOn) {
  const TemporaryFolder folder;
  const std::string blocked = folder.path() + "/file";
  std::ofstream(blocked) << "no folder";
  expect_error<Error>([&] { listen::checkpoint(blocked + "/x"); }, {"checkpoint", "file"},
                      ErrorCode::unavailable);
  const auto goes_on = listen::checkpoint(blocked + "/x", {.on_error = listen::OnError::go_on});
  EXPECT_EQ(train(start, 3, goes_on).step.item<std::int32_t>(), 3);
  barrier();
  EXPECT_EQ(goes_on.written(), 0u);
  fs::remove(blocked);
  train(start, 1, goes_on).step.block_until_ready();
  barrier();
  EXPECT_EQ(goes_on.written(), 1u);
  expect_error<CallbackError>(
      [&] { tap({.name = "caf\xe9"}, start, listen::checkpoint(folder.path(), {.async = false})); },
      {"checkpoint: a name is no UTF-8 text"});
  expect_error<TypeError>([&] { listen::checkpoint(folder.path(), {.every = 0}); }, {"every", "0"});
  expect_error<TypeError>([&] { listen::checkpoint(folder.path(), {.keep = -1}); }, {"keep", "-1"});
}

TEST(Checkpoint, AFullDiskLosesNothing) {
  const TemporaryFolder folder;
  const auto sync = listen::checkpoint(folder.path(), {.keep = 1, .async = false});
  const auto later = listen::checkpoint(folder.path(), {.keep = 1});
  tap(start, sync);
  {
    const FullDisk full(64);
    expect_error<CallbackError>([&] { tap(start, sync); }, {"cannot write", "File too large"});
    tap(start, later);
    expect_error<Error>([&] { later.wait(); }, {"File too large"}, ErrorCode::unavailable);
    tap(start, later);
    expect_error<Error>([] { barrier(); }, {"File too large"});
    EXPECT_EQ(step_in(folder.path()), 0);
    EXPECT_EQ(checkpoints_in(folder.path()).size(), 1u);
  }
  tap(TrainingState{start.weights, Tensor(8)}, later);
  later.wait();
  EXPECT_EQ(step_in(folder.path()), 8);
}

TEST(Checkpoint, AFolderThatIsTakenAwayComesBack) {
  const TemporaryFolder folder;
  const std::string inner = folder.path() + "/inner";
  const auto keep = listen::checkpoint(inner, {.async = false});
  tap(start, keep);
  fs::remove_all(inner);
  tap(TrainingState{start.weights, Tensor(5)}, keep);
  EXPECT_EQ(step_in(inner), 5);
}

TEST(Checkpoint, AFolderHasOneWriterHoweverItIsNamed) {
  const TemporaryFolder folder;
  const fs::path before = fs::current_path();
  const listen::CheckpointOptions all{.keep = 0, .async = false};
  fs::current_path(folder.path());
  const auto first = listen::checkpoint("run/", all);  // which is not there yet
  tap(TrainingState{start.weights, Tensor(1)}, first);
  const auto second = listen::checkpoint("run", all);
  tap(TrainingState{start.weights, Tensor(2)}, first);
  tap(TrainingState{start.weights, Tensor(3)}, second);
  fs::current_path(before);
  tap(TrainingState{start.weights, Tensor(4)}, first);
  EXPECT_EQ(checkpoints_in(folder.path() + "/run").size(), 4u);
  EXPECT_EQ(step_in(folder.path() + "/run"), 4);
}

TEST(Checkpoint, AFailureOutlivesItsListener) {
  const TemporaryFolder folder;
  const std::string lost = folder.path() + "/lost";
  {
    const auto keep = listen::checkpoint(lost);
    fs::remove_all(lost);
    put(lost, "a file in its place");
    tap(start, keep);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  expect_error<Error>([] { barrier(); }, {"checkpoint", "lost"}, ErrorCode::unavailable);
  barrier();
}

TEST(Checkpoint, OthersMayResumeWhileItIsWritten) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.keep = 1, .async = false});
  tap(start, keep);
  std::atomic<bool> over{false};
  std::thread writer([&] {
    while (!over) tap(start, keep);
  });
  int failures = 0;
  std::string why;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(3);
  while (std::chrono::steady_clock::now() < until) try {
      if (!resume<TrainingState>(folder.path())) ++failures;
    } catch (const Error& e) {
      ++failures;
      why = e.what();
    }
  over = true;
  writer.join();
  EXPECT_EQ(failures, 0) << why;
}

TEST(Checkpoint, WhatCannotBeReadIsNotPassedOver) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.keep = 0, .async = false});
  for (int i = 1; i <= 2; ++i) tap(TrainingState{start.weights, Tensor(i)}, keep);
  const fs::path part = checkpoints_in(folder.path())[1] / "part-0.safetensors";
  fs::remove(part);
  fs::create_symlink(part.filename(), part);  // ELOOP, also for root
  expect_error<Error>([&] { resume<TrainingState>(folder.path()); }, {"part-0"},
                      ErrorCode::unavailable);
  fs::remove(part);
  EXPECT_EQ(step_in(folder.path()), 1);
}

TEST(Checkpoint, KeysOfLeavesMayHaveDots) {
  using Weights = std::map<std::string, Tensor>;
  const TemporaryFolder folder;
  const Weights weights{{"layer.0.weight", tensor<float>({1, 2})}, {"b[1]", Tensor(3.0f)}};
  const std::pair<Weights, std::map<std::string, std::optional<Tensor>>> both{weights,
                                                                              {{"a.b", Tensor(4)}}};
  tap(both, listen::checkpoint(folder.path(), {.async = false}));
  const auto back = resume<std::decay_t<decltype(both)>>(folder.path());
  ASSERT_TRUE(back);
  ASSERT_EQ(back->first.size(), 2u);
  EXPECT_EQ(back->first.at("layer.0.weight").to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(back->first.at("b[1]").item<float>(), 3.0f);
  EXPECT_EQ(back->second.at("a.b")->item<std::int32_t>(), 4);
}

TEST(Checkpoint, OneProcessWritesToAFolder) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  tap(start, keep);
  const Ended other = run_program("checkpoint_loop", {folder.path(), "10"});
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "another process (" + std::to_string(::getpid()) + ")")) << other.err;
  EXPECT_EQ(step_in(folder.path()), 0);
  const TemporaryFolder copy;  // for which this process opens and closes all files
  fs::copy(folder.path(), copy.path(), fs::copy_options::recursive);
  EXPECT_EQ(run_program("checkpoint_loop", {folder.path(), "10"}).code, 1);
}

TEST(Checkpoint, KilledAtAnyMomentItEndsAsUndisturbed) {
  const TemporaryFolder folder;
  const std::string steps = "3000";
  const Ended whole = run_program("checkpoint_loop", {folder.path() + "/whole", steps});
  ASSERT_EQ(whole.code, 0) << whole.err;
  std::mt19937 random(1);
  int killed = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string after = std::to_string(random() % 60'000);
    const Ended cut = run_program("checkpoint_loop", {folder.path() + "/cut", steps, after});
    ASSERT_TRUE(cut.code == 1000 + SIGKILL || cut.code == 0) << cut.code << cut.err;
    killed += cut.code != 0;
  }
  EXPECT_GT(killed, 0);
  const Ended end = run_program("checkpoint_loop", {folder.path() + "/cut", steps});
  ASSERT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(end.out, whole.out);
}

}  // namespace
}  // namespace postern::test
