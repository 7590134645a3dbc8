// Programs as processes of their own.
#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

extern char** environ;

namespace postern::test {

namespace {

// A suite that compiles hundreds of programs does so without XLA's optimizations, in a third to a
// half of the time. Not every other build of XLA than the usual one takes the second flag.
[[maybe_unused]] const bool quickly = [] {
  if (!std::getenv("POSTERN_TEST_QUICKLY")) return false;
  std::string flags = "--xla_backend_optimization_level=0";
  if (!std::getenv("POSTERN_PLUGIN")) flags += " --xla_cpu_use_fusion_emitters=false";
  return ::setenv("XLA_FLAGS", flags.c_str(), 0) == 0;
}();

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& changes) {
  std::vector<std::string> out;
  for (char** at = environ; *at; ++at) {
    const std::string entry = *at;
    if (!changes.contains(entry.substr(0, entry.find('=')))) out.push_back(entry);
  }
  for (const auto& [name, value] : changes)
    if (!value.empty()) out.push_back(name + "=" + value);
  return out;
}

}  // namespace

bool skipped_in_stages(std::string_view why) {
  if (plugin_info().calls_back) return false;
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  [&] {
    GTEST_SKIP() << test->test_suite_name() << '.' << test->name()
                 << " needs a plug-in that calls functions: " << why;
  }();
  return true;
}

std::size_t stride(std::size_t usual) { return std::getenv("POSTERN_TEST_ALL") ? 1 : usual; }

Ended run_program(const std::string& name, const std::vector<std::string>& arguments,
                  const std::map<std::string, std::string>& environment,
                  std::chrono::seconds limit) {
  const TemporaryFolder folder;
  const std::string out = folder.path() + "/out", err = folder.path() + "/err";
  std::vector<std::string> words{POSTERN_TEST_PROGRAMS "/" + name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> settings = merged_environment(environment);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 1, out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_addopen(&files, 2, err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const auto start = std::chrono::steady_clock::now();
  pid_t child = 0;
  const int failed = posix_spawn(&child, words[0].c_str(), &files, nullptr, pointers(words).data(),
                                 pointers(settings).data());
  posix_spawn_file_actions_destroy(&files);
  Ended ended;
  if (failed) {
    ADD_FAILURE() << words[0] << " cannot be started: " << std::strerror(failed);
    return ended;
  }
  int status = 0;
  const bool over = wait_until([&] { return waitpid(child, &status, WNOHANG) == child; }, limit);
  if (!over) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  } else {
    ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  ended.seconds = seconds_since(start);
  ended.out = contents(out);
  ended.err = contents(err);
  return ended;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "postern-test-XXXXXX").string();
  if (mkdtemp(name.data()))
    path_ = name;
  else
    ADD_FAILURE() << "no temporary folder";
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

}  // namespace postern::test
