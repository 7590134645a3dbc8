// Checkpoints that all processes make together, in a folder that they share.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

#include "cluster_test.h"
#include "full_disk.h"

namespace {
std::atomic<bool> is_held_up = false;
}

/// The library's too: a file that is there before its writer goes on.
extern "C" int rename(const char* from, const char* to) noexcept {
  const int out = ::renameat(AT_FDCWD, from, AT_FDCWD, to);
  if (is_held_up && std::string_view(to).find("/piece-") != std::string_view::npos)
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  return out;
}

namespace postern::test {
namespace {

namespace fs = std::filesystem;

/// A folder that all have, empty, for one test; process 0 makes and removes it. The name is what
/// they all know: whose job it is, and for how many.
class SharedFolder {
 public:
  explicit SharedFolder(const char* name)
      : path_(fs::temp_directory_path() / fmt::format("postern-{}-{}-{}", name, number(), size())) {
    if (rank() == 0) fs::create_directories(path_);
    meet();
  }
  ~SharedFolder() {
    meet();
    std::error_code ignored;
    if (rank() == 0) fs::remove_all(path_, ignored);
  }
  std::string path() const { return path_.string(); }
  std::size_t count(std::string_view start) const {
    std::size_t out = 0;
    for (const auto& entry : fs::directory_iterator(path_))
      out += entry.path().filename().string().starts_with(start);
    return out;
  }

  static void meet() {
    const auto total =
        jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts(), {.in = {P()}}));
    total(Tensor(1.0f)).block_until_ready();
  }

 private:
  /// Of process 0, which all get.
  static int number() {
    const auto f = jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts(), {.in = {P()}}));
    return f(Tensor(rank() == 0 ? static_cast<int>(::getpid()) : 0)).item<std::int32_t>();
  }
  fs::path path_;
};

struct Model {
  Tensor w, b;
};

Model start() { return {counting({4 * size(), 3}), counting({2 * size()})}; }
Model next(const Model& m) { return {m.w * 1.5f + 1.0f, m.b + 1.0f}; }

void expect_model(const std::optional<Model>& got, const Model& want) {
  ASSERT_TRUE(got);
  expect_same(got->w, want.w);
  expect_same(got->b, want.b);
}

TEST(Checkpoints, HaveThePartsOfAllProcesses) {
  const SharedFolder folder("parts");
  const auto keep = listen::checkpoint(folder.path(), {.every = 2, .keep = 2});
  const Sharding rows(hosts(), P("host"));
  const auto train = jit([&](Model m) {
    return fori_loop(
        0, 7,
        [&](Tensor, Model now) {
          return tap({.name = "model", .partitioned = rows}, next(now), keep);
        },
        m);
  });
  train(start());
  barrier();  // on any process: it is whole
  EXPECT_EQ(keep.written(), 4u);
  SharedFolder::meet();  // process 0 has removed those before
  EXPECT_EQ(folder.count("checkpoint-"), 2u);
  EXPECT_EQ(folder.count("gathering-"), 0u);
  Model want = start();
  for (int i = 0; i < 7; ++i) want = next(want);
  expect_model(resume<Model>(folder.path()), want);
  const fs::path newest = fs::path(folder.path()) / "checkpoint-000000000004";
  for (int r = 0; r < size() && size() > 1; ++r)
    EXPECT_TRUE(fs::exists(newest / fmt::format("part-{}-0.safetensors", r))) << r;
  // On another mesh: put where it belongs.
  const auto again = resume<Model>(folder.path());
  expect_same(device_put(again->w, rows), want.w);
}

TEST(Checkpoints, HaveTheStatesOfAllProcesses) {
  const SharedFolder folder("states");
  int position = 100 + rank();
  const auto state = register_state("position", position);
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  // What all have alike process 0 writes, and each its state.
  const auto f =
      jit([&](Model m) { return tap({.partitioned = Sharding(hosts(), P())}, next(m), keep); });
  f(start());
  EXPECT_EQ(keep.written(), 1u);
  position = 0;
  expect_model(resume<Model>(folder.path()), next(start()));
  EXPECT_EQ(position, 100 + rank());
}

TEST(Checkpoints, OfSeveralDevicesOfEach) {
  if (devices().size() < 2) GTEST_SKIP() << "needs two devices";
  const SharedFolder folder("devices");
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const Mesh mesh({{"host", processes}, {"x", 2}});
  const auto f =
      jit(shard_map([&](Tensor p) { return tap(p + 1.0f, keep); }, mesh,
                    {.in = {P(AxisNames{"host", "x"})}, .out = {P(AxisNames{"host", "x"})}}));
  const Tensor x = counting({4 * size(), 3});
  f(x).block_until_ready();
  barrier();
  const auto kept = resume<Tensor>(folder.path());
  ASSERT_TRUE(kept);
  expect_same(*kept, x + 1.0f);
}

TEST(Checkpoints, OfOneLineThatIsReachedSeveralTimes) {
  const SharedFolder folder("line");
  constexpr std::size_t layers = 8;
  const auto f = jit([&](Tensor x) {
    for (std::size_t i = 0; i < layers; ++i)  // each with a listener of its own
      x = tap({.name = "layer", .ordered = true, .partitioned = Sharding(hosts(), P("host"))},
              x + 1.0f, listen::checkpoint(folder.path(), {.keep = 0, .patience = 20s}));
    return x;
  });
  const Tensor x = counting({2 * size()});
  f(x).block_until_ready();
  EXPECT_NO_THROW(barrier());
  SharedFolder::meet();
  EXPECT_EQ(folder.count("checkpoint-"), layers);
  expect_same(*resume<Tensor>(folder.path()), x + static_cast<float>(layers));
}

// Process 0 takes the folder away as soon as the last part is there.
TEST(Checkpoints, CountWhereOneIsHeldUpAfterItsPart) {
  const SharedFolder folder("held-up");
  const auto keep = listen::checkpoint(folder.path(), {.patience = 20s});
  const auto f =
      jit([&](Tensor x) { return tap({.partitioned = Sharding(hosts(), P("host"))}, x, keep); });
  const Tensor x = counting({2 * size()});
  is_held_up = rank() == size() - 1;
  f(x).block_until_ready();
  EXPECT_NO_THROW(keep.wait());
  is_held_up = false;
  EXPECT_EQ(keep.written(), 1u);
  SharedFolder::meet();
  expect_same(*resume<Tensor>(folder.path()), x);
}

TEST(Checkpoints, FailOnAllWhereOneCannotWrite) {
  if (size() < 2) GTEST_SKIP() << "needs two processes";
  const SharedFolder folder("full");
  const auto keep = listen::checkpoint(folder.path(), {.patience = 20s});
  const auto f =
      jit([&](Tensor x) { return tap({.partitioned = Sharding(hosts(), P("host"))}, x, keep); });
  const Tensor x = counting({100'000 * size()});
  f(x).block_until_ready();
  keep.wait();
  {
    std::optional<FullDisk> full;
    if (rank() == size() - 1) full.emplace(100'000);
    f(x).block_until_ready();
    std::string text;
    try {
      keep.wait();
    } catch (const Error& e) {
      text = e.what();
    }
    if (rank() == size() - 1)
      EXPECT_NE(text.find("File too large"), std::string::npos) << text;
    else
      EXPECT_NE(text.find(fmt::format("process {}", rank() == 0 ? size() - 1 : 0)),
                std::string::npos)
          << text;
  }
  EXPECT_EQ(folder.count("checkpoint-"), 1u);  // what was whole is there
  expect_same(*resume<Tensor>(folder.path()), x);
  SharedFolder::meet();
  f(x).block_until_ready();
  keep.wait();
  EXPECT_EQ(folder.count("checkpoint-"), 2u);
}

TEST(Checkpoints, CountAlikeAfterARunThatFailed) {
  if (size() < 2) GTEST_SKIP() << "needs two processes";
  const SharedFolder folder("alike");
  const auto keep = listen::checkpoint(folder.path(), {.every = 3, .patience = 20s});
  const auto f = jit([&](Tensor x, Tensor fails) {
    const auto step = [&](Tensor i, Tensor now) {
      tap({.name = "may fail", .ordered = true}, std::pair{i, fails},
          [](const TapInfo& info, int at, int when) {
            if (at == when && info.process == size() - 1) throw std::runtime_error("broken");
          });
      return tap({.ordered = true, .partitioned = Sharding(hosts(), P("host"))}, now + 1.0f, keep);
    };
    return fori_loop(0, 10, step, x);
  });
  const Tensor x = counting({2 * size()});
  EXPECT_NE(failure_of([&] { f(x, Tensor(5)).block_until_ready(); }), "");
  try {
    keep.wait();
  } catch (const Error&) {  // of the run that failed, one may have come further than another
  }
  SharedFolder::meet();
  f(x, Tensor(-1)).block_until_ready();
  keep.wait();
  expect_same(*resume<Tensor>(folder.path()), x + 10.0f);  // firing 9 of this run
}

TEST(Checkpoints, SayWhoGivesNothing) {
  if (size() < 2) GTEST_SKIP() << "needs two processes";
  const SharedFolder folder("apart");
  // Process 0 has another folder, as if they did not share one.
  const std::string own = folder.path() + (rank() == 0 ? "/a" : "/b");
  const auto keep = listen::checkpoint(own, {.patience = 100ms});
  jit([&](Tensor x) { return tap({.partitioned = Sharding(hosts(), P("host"))}, x, keep); })(
      counting({2 * size()}));
  std::string text;
  try {
    keep.wait();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::deadline_exceeded);
    text = e.what();
  }
  expect_says(text, "do all processes see this folder");
  if (rank() == 0) expect_says(text, "nothing is here of process 1");
}

}  // namespace
}  // namespace postern::test
