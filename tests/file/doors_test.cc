// Every file that the library opens, and what may lie in its place: a pipe that nobody writes to, a
// device without an end, a folder. Each is an error, or passed over, at once.
#include <fcntl.h>
#include <postern/npy.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "core/digest.h"
#include "file/file_test.h"

namespace postern::test {
using namespace internal;
namespace {

struct Door {
  const char* name;
  std::function<void(const std::string& file)> open;
};
const Door readers[] = {
    {"load", [](const std::string& f) { static_cast<void>(load(f)); }},
    {"load_tensors", [](const std::string& f) { static_cast<void>(load_tensors(f)); }},
    {"read_npy", [](const std::string& f) { static_cast<void>(read_npy(f)); }},
    {"read_npz", [](const std::string& f) { static_cast<void>(read_npz(f)); }},
    {"replay", [](const std::string& f) { static_cast<void>(replay(f)); }},
    {"replay", [](const std::string& f) { static_cast<void>(read_recording(f)); }},
    {"record", [](const std::string& f) { static_cast<void>(record(f, {.resumable = true})); }},
};

using Put = std::function<void(const fs::path& place)>;
const std::pair<const char*, Put> stand_ins[] = {
    {"a pipe", [](const fs::path& p) { ASSERT_EQ(::mkfifo(p.c_str(), 0600), 0); }},
    {"a device", [](const fs::path& p) { fs::create_symlink("/dev/zero", p); }},
    {"a terminal", [](const fs::path& p) { fs::create_symlink("/dev/ptmx", p); }},
    {"a folder", [](const fs::path& p) { fs::create_directory(p); }}};

TEST(Doors, WhatIsNoRegularFileIsRefusedAtOnce) {
  for (const auto& [what, put_there] : stand_ins)
    for (const Door& door : readers) {
      SCOPED_TRACE(std::string(door.name) + " of " + what);
      const TemporaryFolder folder;
      const std::string file = folder.path() + "/file";
      put_there(file);
      const auto e = error_of<Error>([&] { door.open(file); });
      ASSERT_TRUE(e);
      EXPECT_TRUE(has(e->what(), door.name) && has(e->what(), file)) << e->what();
      EXPECT_TRUE(has(e->what(), "is no regular file") || has(e->what(), "Is a directory"))
          << e->what();
    }
}

TEST(Doors, OfACheckpointArePassedOverForAnOlderOne) {
  for (const char* name : {"manifest", "part-0.safetensors"})
    for (const auto& [what, put_there] : stand_ins) {
      SCOPED_TRACE(std::string(name) + " is " + what);
      const TemporaryFolder folder;
      {
        const auto keep = listen::checkpoint(folder.path(), {.keep = 0, .async = false});
        for (int i = 1; i <= 2; ++i)
          static_cast<void>(tap(TrainingState{start.weights, Tensor(i)}, keep));
      }
      const fs::path newest = fs::path(folder.path()) / "checkpoint-000000000002" / name;
      ASSERT_TRUE(fs::remove(newest));
      put_there(newest);
      EXPECT_EQ(resume<TrainingState>(folder.path())->step.item<std::int32_t>(), 1);
    }
}

TEST(Doors, OfACheckpointsLockAreRefused) {
  for (const auto& [what, put_there] : stand_ins) {
    SCOPED_TRACE(what);
    const TemporaryFolder folder;
    put_there(folder.path() + "/lock");
    const auto e = error_of<Error>([&] { static_cast<void>(listen::checkpoint(folder.path())); });
    ASSERT_TRUE(e);
    EXPECT_TRUE(has(e->what(), "checkpoint")) << e->what();
  }
}

/// A manifest that says what it likes of its files, with its checksum.
void put_manifest(const fs::path& file, const std::string& text) {
  put(file, "postern checkpoint 1\n" + digest(text) + "\n" + text);
}

TEST(Doors, AFileIsNotReadThatIsLongerThanItsManifestSays) {
  const TemporaryFolder folder;
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  static_cast<void>(tap(start, keep));
  const fs::path part = fs::path(folder.path()) / "checkpoint-000000000001" / "part-0.safetensors";
  fs::resize_file(part, std::uintmax_t{1} << 40);  // sparse: it would take all memory
  expect_error<Error>([&] { static_cast<void>(resume<TrainingState>(folder.path())); },
                      {"part-0", "1099511627776 bytes"}, ErrorCode::data_loss);
}

TEST(Doors, NumbersOfAManifestAreWholeAndInRange) {
  const TemporaryFolder folder;
  {
    const auto keep = listen::checkpoint(folder.path(), {.async = false});
    static_cast<void>(tap(start, keep));
  }
  const fs::path file = fs::path(folder.path()) / "checkpoint-000000000001" / "manifest";
  const std::string whole = contents(file), body = whole.substr(whole.find('{'));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = body;
    const auto at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    put_manifest(file, text.replace(at, from.size(), to));
    SCOPED_TRACE(to);
    expect_error<Error>([&] { static_cast<void>(resume<TrainingState>(folder.path())); },
                        {"no checkpoint of"}, ErrorCode::data_loss);
  };
  for (const char* to : {"\"file\":0.5", "\"file\":-1", "\"file\":18446744073709551615",
                         "\"file\":1e3", "\"file\":\"0\""})
    with("\"file\":0", to);
  for (const char* to : {"\"begin\":[0.25]", "\"begin\":[-1]", "\"begin\":[9223372036854775808]",
                         "\"begin\":{\"a\":0}"})
    with("\"begin\":[0]", to);
  put_manifest(file, body);
  EXPECT_TRUE(resume<TrainingState>(folder.path()).has_value());
}

TEST(Doors, NoCheckpointFollowsTheLastNumber) {
  // Made elsewhere: the thread that wrote there may still have its folder and its next number.
  const TemporaryFolder made, folder;
  const fs::path first = fs::path(made.path()) / "checkpoint-000000000001",
                 last = fs::path(folder.path()) / "checkpoint-18446744073709551615";
  {
    const auto keep = listen::checkpoint(made.path(), {.async = false});
    static_cast<void>(tap(start, keep));
  }
  fs::rename(first, last);
  EXPECT_TRUE(resume<TrainingState>(folder.path()).has_value());
  const auto keep = listen::checkpoint(folder.path(), {.async = false});
  expect_error<CallbackError>([&] { static_cast<void>(tap(start, keep)); },
                              {"18446744073709551615", "no number can follow"});
  EXPECT_TRUE(fs::exists(last / "manifest"));
  EXPECT_FALSE(fs::exists(fs::path(folder.path()) / "checkpoint-000000000000"));
}

}  // namespace
}  // namespace postern::test
