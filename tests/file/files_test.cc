// What is written over a file takes its place whole, or not at all.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "file/file_test.h"
#include "full_disk.h"
#include "host/text_file.h"

namespace postern::test {
using namespace internal;
namespace {

const Tensor some = tensor<float>({1, 2, 3});

Lowered program() {
  return jit([](Tensor v) { return v + 1.0f; }).lower(some);
}
void tape(const std::string& file) {
  Taping taping = record(file);
  jit([](Tensor v) { return host_plus_one(v); })(some).block_until_ready();
  taping.close();
}
void keep(const std::string& file) {
  const auto values = listen::record(file);
  tap(some, values);
  values.close();
}

struct Writer {
  const char* name;
  std::function<void(const std::string&)> write;
};
const Writer writers[] = {
    {"program.mlir", [](const std::string& file) { save(file, program()); }},
    {"tape", tape},
    {"report.html", [](const std::string& file) { report(file); }},
    {"timeline.json", [](const std::string& file) { write_timeline(file); }},
    {"values.npz", keep},
};

TEST(Files, AFullDiskLeavesWhatWasThere) {
  for (const Writer& w : writers) {
    const TemporaryFolder folder;
    const std::string file = folder.path() + "/" + w.name;
    std::ofstream(file) << "what was there";
    {
      const FullDisk full(16);
      expect_error<Error>([&] { w.write(file); }, {"cannot write", file, "File too large"},
                          ErrorCode::unavailable);
    }
    EXPECT_EQ(contents(file), "what was there") << w.name;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1)
        << "something is left beside " << w.name;
    w.write(file);
    EXPECT_NE(contents(file), "what was there") << w.name;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1)
        << "something is left beside " << w.name;
  }
}

TEST(Files, AnArrayThatGrowsReplacesAFileWithItsFirstRow) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  std::ofstream(file) << "what was there";
  {
    const FullDisk full(16);
    const auto values = listen::record(file);
    EXPECT_THROW(tap(some, values), CallbackError);
  }
  EXPECT_EQ(contents(file), "what was there");
  const auto values = listen::record(file);
  EXPECT_EQ(contents(file), "what was there");
  tap(some, values);
  EXPECT_TRUE(has(contents(file), "'shape': (1, 3,)"));
  tap(some, values);
  EXPECT_TRUE(has(contents(file), "'shape': (2, 3,)"));
}

TEST(Files, TheReasonIsTheOneOfTheWrite) {
  for (const Writer& w : writers)
    if (!has(w.name, ".np"))
      expect_error<Error>([&] { w.write("/dev/full"); },
                          {"cannot write '/dev/full'", "No space left on device"},
                          ErrorCode::unavailable);
  expect_error<Error>([] { host::write_text_file("t", "/no/such/folder/f", "text"); },
                      {"No such file or directory"});
  const TemporaryFolder folder;
  expect_error<Error>([&] { host::write_text_file("t", folder.path(), "text"); },
                      {"Is a directory"});
}

TEST(Files, LinksAndPermissionsStay) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/file", link = folder.path() + "/link";
  std::ofstream(file) << "old";
  ASSERT_EQ(::chmod(file.c_str(), 0640), 0);
  fs::create_symlink("file", link);
  host::write_text_file("t", link, "new");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_EQ(contents(file), "new");
  EXPECT_EQ(static_cast<unsigned>(fs::status(file).permissions()), 0640u);
  ASSERT_EQ(::chmod(file.c_str(), 0440), 0);
  if (::geteuid() != 0)
    expect_error<Error>([&] { host::write_text_file("t", file, "x"); }, {"Permission denied"});
  const std::string fresh = folder.path() + "/fresh";
  const mode_t mask = ::umask(027);
  host::write_text_file("t", fresh, "x");
  ::umask(mask);
  EXPECT_EQ(static_cast<unsigned>(fs::status(fresh).permissions()), 0640u);
}

TEST(Files, ALockIsLetGoThoughACopyOfItsHandleIsLeft) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/locked";
  std::ofstream(file) << "x";
  int handle = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  const int other = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_TRUE(handle >= 0 && other >= 0);
  const int copy = ::dup(handle);  // as a child has it that was forked off as the file was opened
  host::ClosedInChild closed(handle);
  ASSERT_EQ(::flock(handle, LOCK_EX | LOCK_NB), 0);
  EXPECT_NE(::flock(other, LOCK_EX | LOCK_NB), 0);
  closed.close();
  EXPECT_EQ(handle, -1);
  EXPECT_EQ(::flock(other, LOCK_EX | LOCK_NB), 0);
  closed.close();  // once more does nothing
  for (const int left : {copy, other}) ::close(left);
}

TEST(Files, APipeIsWrittenAsItComes) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  host::write_text_file("t", pipe, "through");
  char text[32]{};
  EXPECT_EQ(::read(reader, text, sizeof text), 7);
  EXPECT_STREQ(text, "through");
  ::close(reader);
  EXPECT_TRUE(fs::is_fifo(pipe));
}

}  // namespace
}  // namespace postern::test
