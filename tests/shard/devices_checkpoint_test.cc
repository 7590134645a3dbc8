// Checkpoints of programs over several devices.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "core/digest.h"
#include "file/file_test.h"

namespace postern::test {
using namespace internal;
namespace {

Tensor counted() { return reshape(iota<float>(24), {6, 4}); }

int parts_in(const std::string& folder) {
  int parts = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    parts += entry.path().extension() == ".safetensors";
  return parts;
}

TEST(DevicesCheckpoint, EachDeviceWritesItsPartAndAnyNumberReadsThem) {
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const Sharding both(mesh, P("x", "y")), rows(mesh, P("x"));
  for (const auto& [sharding, parts] : {std::pair{both, 4}, std::pair{rows, 2}}) {
    const TemporaryFolder folder;
    const auto keep = listen::checkpoint(folder.path(), {.keep = 1});
    const auto f = jit([&, sharding = sharding](std::pair<Tensor, Tensor> v) {
      const std::pair next{v.first + 1.0f, v.second * 2.0f};
      tap({.partitioned = sharding}, next, keep);
      return next;
    });
    const auto x = device_put(counted(), sharding);
    f(std::pair{x, x}).first.block_until_ready();
    barrier();
    EXPECT_EQ(parts_in(folder.path()), parts);
    const auto back = resume<std::pair<Tensor, Tensor>>(folder.path());
    ASSERT_TRUE(back);
    EXPECT_EQ(back->first.to_vector<float>(), (counted() + 1.0f).to_vector<float>());
    EXPECT_EQ(back->second.to_vector<float>(), (counted() * 2.0f).to_vector<float>());
    const Mesh three({{"z", 3}});
    const Tensor spread = device_put(back->first, Sharding(three, P("z")));
    EXPECT_EQ(spread.to_vector<float>(), (counted() + 1.0f).to_vector<float>());
  }
}

TEST(DevicesCheckpoint, InShardMapOneLeafWhosePlaceIsKnown) {
  const Mesh mesh({{"x", 4}});
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const Tensor x = iota<float>(8);
  const auto one = [&](Tensor v) { return tap(v * 2.0f, keep); };
  jit(shard_map(one, mesh, {.in = {P("x")}, .out = {P("x")}}))(x).block_until_ready();
  EXPECT_EQ(resume<Tensor>(folder.path())->to_vector<float>(), (x * 2.0f).to_vector<float>());
  const auto two = [&](Tensor v) { return tap(std::pair{v, v}, keep).first; };
  expect_error<CallbackError>(
      [&] { jit(shard_map(two, mesh, {.in = {P("x")}, .out = {P("x")}}))(x).block_until_ready(); },
      {"in shard_map", "first leaf"});
}

TEST(DevicesCheckpoint, ACallThatAnotherOnesEndCutsShortIsNotRecordedAsTheEnd) {
  const Mesh mesh({{"x", 2}});
  const TemporaryFolder folder;
  const fs::path file = fs::path(folder.path()) / "run.rec";
  std::atomic<bool> inside{false};
  const auto waits = [&](const CallInfo& info, View<const float> in, View<float> out) {
    out[0] = in[0];
    if (info.coordinates[0] == 0) return;
    inside = true;
    wait_until([&] { return info.stop.stop_requested(); });
  };
  const auto ends = [&](const CallInfo& info, View<const float> in, View<float> out) {
    out[0] = in[0];
    wait_until([&] { return inside.load(); });
    info.end_run();
  };
  const auto both = [&](Tensor v) {
    return call({.name = "ends"}, v.type(), ends, call({.name = "waits"}, v.type(), waits, v));
  };
  const auto f = jit(shard_map(both, mesh, {.in = {P("x")}, .out = {P("x")}}));
  {
    const Taping recording = record(file, {.resumable = true});
    EXPECT_THROW(f(iota<float>(2)).block_until_ready(), CallbackError);
    barrier();
  }
  int by_itself = 0, by_another = 0;
  for (const RecordedFiring& firing : read_recording(file)) {
    if (!firing.ended) continue;
    EXPECT_EQ(firing.failure.empty(), firing.name == "ends") << firing.name;
    ++(firing.name == "ends" ? by_itself : by_another);
  }
  EXPECT_EQ(by_itself, 1);
  EXPECT_EQ(by_another, 1);
}

TEST(DevicesCheckpoint, ADeviceThatIsPastTheTapIsMarkedWhereItWasThere) {
  const Mesh mesh({{"x", 2}});
  const Sharding rows(mesh, P("x"));
  const TemporaryFolder folder;
  const std::string kept = folder.path() + "/kept";
  std::atomic<bool> past{false};
  const auto before = [&](const CallInfo& info, View<const float> in, View<float> out) {
    out[0] = in[0];
    if (info.coordinates[0] == 1) wait_until([&] { return past.load(); });
  };
  const auto behind = [&](const CallInfo& info, View<const float> in, View<float> out) {
    out[0] = in[0];
    if (info.coordinates[0] == 0) past = true;
  };
  const auto on_each = [&](const char* name, auto fn) {
    return shard_map([name, fn](Tensor v) { return call({.name = name}, v.type(), fn, v); }, mesh,
                     {.in = {P("x")}, .out = {P("x")}});
  };
  const auto f = jit([&](Tensor x) {
    x = on_each("before", before)(x);
    x = tap({.partitioned = rows}, x, listen::checkpoint(kept, {.async = false}));
    return on_each("behind", behind)(x);
  });
  {
    const Taping recording = record(folder.path() + "/run.rec", {.resumable = true});
    f(device_put(iota<float>(2), rows)).block_until_ready();
    barrier();
  }
  EXPECT_TRUE(past);
  // [site, device, element, calls] of what each device had called when it came to the tap.
  const std::string manifest = contents(fs::path(kept) / "checkpoint-000000000001" / "manifest");
  const std::size_t begin = manifest.find("\"sites\":[[");
  ASSERT_NE(begin, std::string::npos) << manifest;
  const std::string sites = manifest.substr(begin, manifest.find("]]", begin) - begin);
  std::size_t marked = 1;
  for (std::size_t at = 0; (at = sites.find("],[", at)) != std::string::npos; ++at) ++marked;
  EXPECT_EQ(marked, 2u) << sites;
}

TEST(DevicesCheckpoint, WithoutPartsTheWholeIsKeptOnce) {
  const Mesh mesh({{"x", 4}});
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path());
  const auto f = jit([&](Tensor v) { return tap(v + 1.0f, keep); });
  f(device_put(iota<float>(8), Sharding(mesh, P("x")))).block_until_ready();
  barrier();
  EXPECT_EQ(parts_in(folder.path()), 1);
  EXPECT_EQ(resume<Tensor>(folder.path())->to_vector<float>()[7], 8.0f);
}

TEST(DevicesCheckpoint, ARunThatFailedShiftsNoneOfTheNext) {
  const Mesh mesh({{"x", 2}});
  const Sharding rows(mesh, P("x"));
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.keep = 0, .async = false});
  std::atomic<bool> fails{true};
  std::atomic<int> ahead{0};
  const auto f = jit([&](Tensor n) {
    for (int k = 0; k < 4; ++k) {
      n = n + 1.0f;
      tap({.partitioned = rows}, n, keep);
      tap({.partitioned = rows}, n, [&](const TapInfo& info, View<const float>) {
        if (!fails) return;
        if (info.device != 0) return static_cast<void>(++ahead);
        for (int i = 0; i < 500 && ahead < 4; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        throw std::runtime_error("device 0 ends at step 1");
      });
    }
    return n;
  });
  const auto run = [&] { f(device_put(tensor<float>({0, 0, 0, 0}), rows)).block_until_ready(); };
  expect_error<CallbackError>(run, {"device 0 ends at step 1"});
  EXPECT_EQ(ahead, 4);
  fails = false;
  run();
  barrier();
  EXPECT_EQ(resume<Tensor>(folder.path())->to_vector<float>(), (std::vector<float>{4, 4, 4, 4}));
  EXPECT_EQ(keep.written(), 1 + 4u);
}

TEST(DevicesCheckpoint, PartsThatOverlapAreRefused) {
  const Mesh mesh({{"x", 2}});
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  const Sharding rows(mesh, P("x"));
  jit([&](Tensor v) { return tap({.partitioned = rows}, v, keep); })(device_put(counted(), rows))
      .block_until_ready();
  const fs::path manifest = fs::path(folder.path()) / "checkpoint-000000000001" / "manifest";
  std::string text = contents(manifest);
  const std::size_t sum = text.find('\n') + 1, body = sum + 33, at = text.find("[3,0]", body);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 5, "[0,0]");
  text.replace(sum, 32, digest(std::string_view(text).substr(body)));
  put(manifest, text);
  expect_error<Error>([&] { resume<Tensor>(folder.path()); }, {"do not make it up"},
                      ErrorCode::data_loss);
}

}  // namespace
}  // namespace postern::test
