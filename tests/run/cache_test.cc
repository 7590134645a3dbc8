// Compiled programs on disk, shared by processes.
#include "support.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

namespace postern {
namespace {

namespace fs = std::filesystem;
using test::has, test::run_program;

class Cache : public testing::Test {
 protected:
  /// What the program prints with this cache; its log goes to `log_`.
  std::string run(const std::vector<std::string>& arguments, const std::string& devices = "") {
    const auto ended =
        run_program("cache_user", arguments,
                    {{"POSTERN_CACHE_DIR", folder_.path()}, {"POSTERN_CPU_DEVICES", devices}});
    EXPECT_EQ(ended.code, 0) << ended.err;
    log_ = ended.err;
    return ended.out;
  }
  /// Inode of each file: writing a file anew changes it.
  std::map<std::string, ino_t> files() const {
    std::map<std::string, ino_t> out;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      struct stat info {};
      stat(entry.path().c_str(), &info);
      out[entry.path().string()] = info.st_ino;
    }
    return out;
  }
  /// Replaces the contents of all files.
  template <class Change>
  void damage(Change change) {
    for (const auto& [path, inode] : files()) {
      std::ostringstream text;
      text << std::ifstream(path, std::ios::binary).rdbuf();
      std::ofstream(path, std::ios::binary) << change(text.str());
    }
  }
  int lines() const { return int(std::count(log_.begin(), log_.end(), '\n')); }

  test::TemporaryFolder folder_;
  std::string log_;
};

TEST_F(Cache, ProgramsOverSeveralDevicesAreKeptToo) {
  if (test::skipped_in_stages("a program over several devices is not cut")) return;
  const std::string first = run({"sharded", "1"}, "2");
  EXPECT_TRUE(has(first, "24 ")) << first;
  const auto kept = files();
  EXPECT_FALSE(kept.empty());
  EXPECT_EQ(run({"sharded", "1"}, "2"), first) << "how results lie is known of a kept program too";
  EXPECT_EQ(log_, "");
  EXPECT_EQ(files(), kept) << "nothing was written";
}

// XLA writes a program that it has loaded without its code: other lanes need what the file holds.
TEST_F(Cache, RunsAtOneTimeAreOfTheFileToo) {
  const std::string right = "2 together: 21 3\n";
  EXPECT_EQ(run({"twice"}), right);
  const auto kept = files();
  EXPECT_EQ(run({"twice"}), right);
  EXPECT_EQ(log_, "");
  EXPECT_EQ(files(), kept) << "nothing was written";
}

TEST_F(Cache, ASecondProcessCompilesNothingAndEntersItsOwnFunction) {
  RecordProperty("covers", "IR-09 IR-08");
  EXPECT_EQ(run({"run", "1"}), "15\n");
  EXPECT_EQ(log_, "");
  const auto kept = files();
  EXPECT_FALSE(kept.empty());
  EXPECT_EQ(run({"run", "100"}), "312\n") << "the function of this process";
  EXPECT_EQ(log_, "");
  EXPECT_EQ(files(), kept) << "nothing was written";
  EXPECT_EQ(run({"wider", "1"}), "24\n");
  EXPECT_GT(files().size(), kept.size()) << "another shape is another program";
}

TEST_F(Cache, DamagedFilesAreIgnoredWithOneLogLine) {
  RecordProperty("covers", "IR-12");
  run({"run"});
  const auto first = files();
  const std::vector<std::function<std::string(std::string)>> damages = {
      [](std::string) { return std::string(); },
      [](std::string text) { return text.substr(0, text.size() / 2); },
      [](std::string text) { return text.substr(0, 10); },
      [](std::string text) { return text + "more"; },
      [](std::string text) {
        text[text.size() - 100] ^= 1;
        return text;
      },
      [](std::string) { return std::string("no cache file at all\n\n\n\n\n"); },
      [](std::string) { return std::string(100'000, '\0'); },
  };
  for (std::size_t i = 0; i < damages.size(); ++i) {
    damage(damages[i]);
    EXPECT_EQ(run({"run"}), "15\n") << i;
    EXPECT_EQ(lines(), int(first.size())) << i << ": " << log_;
    EXPECT_TRUE(has(log_, "cache file") && has(log_, folder_.path())) << log_;
    EXPECT_EQ(run({"run"}), "15\n");
    EXPECT_EQ(log_, "") << "the file was replaced";
    EXPECT_EQ(files().size(), first.size());
  }
}

TEST_F(Cache, CodeOfOtherFlagsIsAnotherFile) {
  const std::string mine = run({"run"});
  const auto before = files();
  const auto other = run_program(
      "cache_user", {"run"},
      {{"POSTERN_CACHE_DIR", folder_.path()}, {"XLA_FLAGS", "--xla_cpu_max_isa=SSE4_2"}});
  EXPECT_EQ(other.out, mine) << other.err;
  EXPECT_EQ(files().size(), 2 * before.size());
}

TEST_F(Cache, AFileOfAnotherProgramIsIgnored) {
  RecordProperty("covers", "IR-09");
  run({"run"});
  const auto first = files();
  run({"wider"});
  std::string other;
  for (const auto& [path, inode] : files())
    if (!first.contains(path) && (other.empty() || fs::file_size(path) > fs::file_size(other)))
      other = path;
  ASSERT_FALSE(other.empty());
  for (const auto& [path, inode] : first)
    fs::copy_file(other, path, fs::copy_options::overwrite_existing);
  EXPECT_EQ(run({"run"}), "15\n");
  EXPECT_EQ(lines(), int(first.size())) << log_;
}

TEST_F(Cache, SeveralProcessesAtOnce) {
  RecordProperty("covers", "IR-09");
  std::vector<std::string> printed(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < printed.size(); ++i)
      threads.emplace_back([&, i] {
        printed[i] = run_program("cache_user", {"run", std::to_string(i)},
                                 {{"POSTERN_CACHE_DIR", folder_.path()}})
                         .out;
      });
  }
  for (std::size_t i = 0; i < printed.size(); ++i)
    EXPECT_EQ(printed[i], std::to_string(12 + 3 * i) + "\n");
  for (const auto& [path, inode] : files())
    EXPECT_TRUE(path.ends_with(".xla")) << "left behind: " << path;
  EXPECT_EQ(run({"run"}), "15\n");
  EXPECT_EQ(log_, "");
}

TEST_F(Cache, AFolderThatCannotBeUsed) {
  std::ofstream(folder_.path() + "/file") << "not a folder";
  const auto ended =
      run_program("cache_user", {"run"}, {{"POSTERN_CACHE_DIR", folder_.path() + "/file/cache"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "15\n");
  EXPECT_TRUE(has(ended.err, "cannot write") && has(ended.err, "Not a directory")) << ended.err;
}

TEST_F(Cache, AnEntryThatIsNoFileIsLeftAlone) {
  run({"run"});
  const auto entries = files();
  ASSERT_FALSE(entries.empty());
  for (const auto& [path, inode] : entries) {
    fs::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  EXPECT_EQ(run({"run"}), "15\n");  // nobody writes to the pipes: who reads them waits for ever
  EXPECT_TRUE(has(log_, "is no regular file")) << log_;
  for (const auto& [path, inode] : entries) EXPECT_TRUE(fs::is_fifo(path));
}

TEST_F(Cache, AFolderThatIsNotThereIsMade) {
  const std::string path = folder_.path() + "/deep/er";
  EXPECT_EQ(run_program("cache_user", {"run"}, {{"POSTERN_CACHE_DIR", path}}).err, "");
  EXPECT_FALSE(fs::is_empty(path));
}

TEST_F(Cache, ProgramTextIsTheSameInEachProcess) {
  RecordProperty("covers", "IR-01");
  const std::string text = run({"text", "1"});
  EXPECT_EQ(run({"text", "2"}), text);
  EXPECT_TRUE(has(text, "adder") && has(text, "watcher") && has(text, "cache_user.cc:")) << text;
  EXPECT_FALSE(has(text, "0x")) << text;
  EXPECT_TRUE(files().empty()) << "showing a program compiles nothing";
}

}  // namespace
}  // namespace postern
