// Metrics: what tables, JSON Lines and event files hold, and what becomes of files that fail.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

#include "full_disk.h"
#include "listen/event_file.h"
#include "listen/metric.h"
#include "support.h"

namespace postern::test {
using namespace internal;
namespace {

namespace fs = std::filesystem;
using listen::OnError;

std::string text_in(const fs::path& file) {
  std::stringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}
std::vector<std::string> lines_in(const fs::path& file) {
  std::stringstream text(text_in(file));
  std::vector<std::string> out;
  for (std::string line; std::getline(text, line);) out.push_back(line);
  return out;
}
fs::path only_file_in(const fs::path& folder) {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(folder)) out.push_back(entry.path());
  EXPECT_EQ(out.size(), 1u);
  return out.at(0);
}

/// A line without its time.
std::string without_time(std::string line) {
  const std::size_t from = line.find(",\"time\":");
  return line.erase(from, line.find(',', from + 1) - from);
}

TEST(Metrics, ChecksumsAreCastagnolis) {
  EXPECT_EQ(host::crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(host::crc32c(""), 0u);
  EXPECT_EQ(host::tf_record("").size(), 16u);
}

TEST(Metrics, ATableHasAColumnForEachLeaf) {
  struct Shown {
    Tensor step, loss;
    std::map<std::string, Tensor> parts;
  };
  const TemporaryFolder folder;
  const fs::path file = folder.path() + "/new/table.csv";
  const auto table = listen::csv(file);
  tap({.name = "a,b"},
      Shown{Tensor(7),
            Tensor(0.1f),
            {{"x", Tensor(std::int64_t{1} << 62)}, {"y", tensor<float>({1, 2, 6})}}},
      table);
  const auto lines = lines_in(file);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0],
            "step,time,device,\"a,b.loss\",\"a,b.parts.x\",\"a,b.parts.y.min\","
            "\"a,b.parts.y.mean\",\"a,b.parts.y.max\"");
  EXPECT_TRUE(lines[1].starts_with("7,1"));
  EXPECT_TRUE(lines[1].ends_with(",0,0.1,4611686018427387904,1,3,6")) << lines[1];
  expect_error<CallbackError>([&] { tap({.name = "other"}, Tensor(1), table); },
                              {"has the columns", "\"a,b.loss\"", "other", "a file of its own"});
  EXPECT_EQ(lines_in(file).size(), 2u);
}

TEST(Metrics, LinesOfJsonHoldWhatJsonLacks) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() + "/all.jsonl";
  const auto lines = listen::jsonl(file, {.max_elements = 4});
  constexpr double inf = std::numeric_limits<double>::infinity();
  tap({.name = "x\"\xff"}, Tensor(true), lines);
  tap({.name = "y"}, tensor<double>({inf, -inf, std::nan(""), 0.1}), lines);
  tap({.name = "z"}, std::pair{Tensor(3), reshape(tensor<float>({1, 2, 3, 4}), {2, 2})}, lines);
  tap({.name = "c"}, Tensor(std::complex<float>(0.5f, -2)), lines);
  tap({.name = "many"}, tensor<float>({1, 2, 3, 4, 5}), lines);
  const auto got = lines_in(file);
  ASSERT_EQ(got.size(), 5u);
  EXPECT_TRUE(has(got[0], "\"device\":0,\"values\":{\"x\\\"")) << got[0];
  EXPECT_TRUE(has(got[0], "\":true}}")) << got[0];
  EXPECT_EQ(without_time(got[1]),
            "{\"step\":0,\"tap\":\"y\",\"device\":0,"
            "\"values\":{\"y\":[\"Infinity\",\"-Infinity\",\"NaN\",0.1]}}");
  EXPECT_EQ(without_time(got[2]),
            "{\"step\":3,\"tap\":\"z\",\"device\":0,\"values\":{\"z[1]\":[[1,2],[3,4]]}}");
  EXPECT_TRUE(has(got[3], "{\"c\":[0.5,-2]}")) << got[3];
  EXPECT_TRUE(has(got[4], "{\"count\":5,\"nan\":0,\"inf\":0,\"min\":1,\"mean\":3,\"max\":5}"))
      << got[4];
}

TEST(Metrics, LinesOfJsonLeaveOutWhatABatchHasMasked) {
  const TemporaryFolder folder;
  const auto line = [&](const std::string& name, std::int64_t most) {
    const fs::path file = folder.path() + "/" + name;
    const auto lines = listen::jsonl(file, {.max_elements = most});
    const auto f = jit(vmap([&](Tensor x) {
      return cond(
          x > 2.0f,
          [&](Tensor v) {
            tap({.name = "t"}, v, lines);
            return v;
          },
          [](Tensor v) { return -v; }, x);
    }));
    f(tensor<float>({0, 1, 2, 3, 4, 5})).block_until_ready();
    barrier();
    return text_in(file);
  };
  const std::string all = line("all.jsonl", 100), many = line("many.jsonl", 3);
  EXPECT_TRUE(has(all, ":[null,null,null,3,4,5]}")) << all;
  EXPECT_TRUE(has(many, R"({"count":3,"nan":0,"inf":0,"min":3,"mean":4,"max":5})")) << many;
}

TEST(Metrics, FilesAreContinued) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() + "/table.csv";
  for (int i = 0; i < 2; ++i) {
    const auto table = listen::csv(file);
    expect_error<Error>([&] { listen::csv(file); }, {"csv", "another process or listener"},
                        ErrorCode::failed_precondition);
    tap({.name = "x"}, Tensor(i), table);
  }
  std::ofstream(file, std::ios::app) << "2,17";
  tap({.name = "x"}, Tensor(2), listen::csv(file));
  const auto lines = lines_in(file);
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_TRUE(lines[3].starts_with("0,") && lines[3].ends_with(",0,2")) << lines[3];
}

TEST(Metrics, WhatIsRemovedIsBegunAnew) {
  const TemporaryFolder folder;
  const fs::path inner = folder.path() + "/inner";
  const auto table = listen::csv(inner / "x.csv");
  const auto board = listen::tensorboard(folder.path() + "/board");
  for (int i = 0; i < 2; ++i) {
    tap({.name = "x"}, Tensor(i), table);
    tap({.name = "x"}, Tensor(i), board);
    EXPECT_EQ(lines_in(inner / "x.csv").size(), 2u);
    EXPECT_GT(fs::file_size(only_file_in(folder.path() + "/board")), 60u);
    fs::remove_all(inner);
    fs::remove_all(folder.path() + "/board");
  }
}

TEST(Metrics, AFullDiskLosesNothing) {
  const TemporaryFolder folder;
  const auto lines = listen::jsonl(folder.path() + "/x.jsonl");
  const auto board = listen::tensorboard(folder.path() + "/board");
  tap({.name = "x"}, Tensor(1), lines);
  tap({.name = "x"}, Tensor(1), board);
  const fs::path events = only_file_in(folder.path() + "/board");
  const std::string before = text_in(events), line = text_in(folder.path() + "/x.jsonl");
  {
    const FullDisk full(before.size() + 10);
    expect_error<CallbackError>([&] { tap(Tensor(2), board); },
                                {"tensorboard: cannot write", "File too large", "make room"});
  }
  EXPECT_EQ(text_in(events), before);
  {
    const FullDisk full(line.size() + 10);
    expect_error<CallbackError>([&] { tap(Tensor(2), lines); }, {"jsonl: cannot write"});
  }
  EXPECT_EQ(text_in(folder.path() + "/x.jsonl"), line);
  tap(Tensor(2), lines);
  EXPECT_EQ(lines_in(folder.path() + "/x.jsonl").size(), 2u);
}

TEST(Metrics, AFullDiskLeavesNoHolesInARecord) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/x.npy";
  const auto rows = listen::record(file, {.on_error = OnError::go_on});
  const auto show = [&](int i) {
    const auto x = static_cast<float>(i);
    tap(tensor<float>({x, x + 0.5f}), rows);
  };
  show(1);
  show(2);
  {
    const FullDisk full(fs::file_size(file));
    show(3);
    show(4);
  }
  show(5);
  const Tensor kept = read_npy(file);
  EXPECT_EQ(kept.type(), type<float>({3, 2}));
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{1, 1.5f, 2, 2.5f, 5, 5.5f}));
  EXPECT_EQ(rows.recorded(), 3u);
  EXPECT_EQ(rows.left_out(), 2u);
}

TEST(Metrics, AFullDiskGetsNoEventFilesThatAreEmpty) {
  const TemporaryFolder folder;
  const auto board = listen::tensorboard(folder.path(), {.on_error = OnError::go_on});
  fs::remove(only_file_in(folder.path()));
  {
    const FullDisk full(10);
    for (int i = 0; i < 20; ++i) tap(Tensor(i), board);
    EXPECT_TRUE(fs::is_empty(folder.path()));
  }
  tap(Tensor(20), board);
  EXPECT_GT(fs::file_size(only_file_in(folder.path())), 60u);
}

TEST(Metrics, APipeWhoseReaderHasGoneIsAFailure) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  std::string first;
  const auto read = [&] {
    std::ifstream in(file);
    std::getline(in, first);
  };
  {  // a pipe keeps what nobody read as long as somebody writes to it
    std::thread reader(read);
    const auto lines = listen::jsonl(file, {.on_error = OnError::go_on});
    for (int i = 0; i < 5000; ++i) tap({.name = "x"}, Tensor(i), lines);
    reader.join();
  }
  EXPECT_EQ(without_time(first), R"({"step":0,"tap":"x","device":0,"values":{"x":0}})");
  std::thread stopped(read);
  const auto strict = listen::jsonl(file);
  tap({.name = "x"}, Tensor(0), strict);
  stopped.join();
  expect_error<CallbackError>([&] { tap(Tensor(1), strict); }, {"jsonl: cannot write", "pipe"});
}

TEST(Metrics, TheProgramGoesOnWhereTheUserSaysSo) {
  const TemporaryFolder folder;
  const std::string blocked = folder.path() + "/file";
  std::ofstream(blocked) << "no folder";
  expect_error<Error>([&] { listen::tensorboard(blocked + "/x"); },
                      {"tensorboard: cannot write", "file/x", "OnError::go_on"},
                      ErrorCode::unavailable);
  expect_error<Error>([&] { listen::jsonl(blocked + "/x"); }, {"jsonl", "Not a directory"},
                      ErrorCode::unavailable);
  expect_error<Error>([&] { listen::record(blocked + "/x.npy"); }, {"record"},
                      ErrorCode::unavailable);
  const auto board = listen::tensorboard(blocked + "/x", {.on_error = OnError::go_on});
  const auto lines = listen::jsonl(blocked + "/y", {.on_error = OnError::go_on});
  const auto steps = listen::record(blocked + "/{step:02}.npz", {.on_error = OnError::go_on});
  const auto all = [&](int i) {
    tap({.name = "x"}, Tensor(i), board);
    tap({.name = "x"}, Tensor(i), lines);
    tap({.name = "x"}, Tensor(i), steps);
  };
  all(0);
  fs::remove(blocked);
  fs::create_directory(blocked);
  all(1);
  EXPECT_EQ(lines_in(blocked + "/y").size(), 1u);
  EXPECT_TRUE(lines_in(blocked + "/y")[0].starts_with("{\"step\":1,"));
  EXPECT_GT(fs::file_size(only_file_in(blocked + "/x")), 60u);
  EXPECT_EQ(read_npz(blocked + "/01.npz").at(0).second.item<std::int32_t>(), 1);
  EXPECT_EQ(steps.recorded(), 1u);
}

TEST(Metrics, StepsNeedNotFitADouble) {
  const TemporaryFolder folder;
  constexpr std::int64_t first = (std::int64_t{1} << 53) + 1;
  for (const std::int64_t step : {first, first + 1})
    tap({.name = "many"}, std::pair{Tensor(step), Tensor(1.0f)},
        listen::record(folder.path() + "/{step}.npz"));
  EXPECT_TRUE(fs::exists(fmt::format("{}/{}.npz", folder.path(), first)));
  EXPECT_TRUE(fs::exists(fmt::format("{}/{}.npz", folder.path(), first + 1)));
}

TEST(Metrics, WrongOptionsAreRefused) {
  const TemporaryFolder folder;
  expect_error<TypeError>([&] { listen::tensorboard(folder.path(), {.bins = 0}); }, {"bins", "0"});
  expect_error<TypeError>([&] { listen::tensorboard(""); }, {"a folder is needed"});
  expect_error<TypeError>([&] { listen::csv(""); }, {"a file is needed"});
  expect_error<TypeError>([&] { listen::jsonl("x", {.max_elements = -1}); }, {"-1"});
  expect_error<TypeError>([&] { listen::record("{step}{x}.npz"); }, {"no format of a step"});
  using Arrays = listen::TensorBoardOptions::Arrays;
  const auto images = listen::tensorboard(folder.path(), {.arrays = Arrays::images});
  expect_error<CallbackError>(
      [&] {
        tap(tensor<float>({1, 2}), images);
      },
      {"an image is", "'tap' is f32[2]"});
  expect_error<CallbackError>([&] { tap(zeros(type<float>({2, 2, 2})), images); }, {"f32[2,2,2]"});
  expect_error<CallbackError>([&] { tap(zeros(type<float>({0, 2})), images); }, {"f32[0,2]"});
}

TEST(Metrics, ArraysOfEachStepAreFilesOfTheirOwn) {
  const TemporaryFolder folder;
  const auto steps = listen::record(folder.path() + "/at-{step:03}.npz");
  const auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 3,
        [&](Tensor i, Tensor v) {
          tap({.name = "s"}, std::tuple{i * 10, v, i}, steps);
          return v * 2.0f;
        },
        x);
  });
  f(tensor<float>({1, 3})).block_until_ready();
  const NamedTensors last = read_npz(folder.path() + "/at-020.npz");
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[1].first, "s[1]");
  EXPECT_EQ(last[1].second.to_vector<float>(), (std::vector<float>{4, 12}));
  EXPECT_EQ(steps.recorded(), 9u);
  steps.close();
  f(tensor<float>({1, 3})).block_until_ready();
  EXPECT_EQ(steps.recorded(), 9u);
  EXPECT_GT(steps.left_out(), 0u);
}

TEST(Metrics, ImagesAreFiles) {
  const TemporaryFolder folder;
  const auto images = listen::png(folder.path() + "/at-{step:02}.png");
  const auto f = jit([&](Tensor x) {
    tap({.name = "x"}, std::tuple{Tensor(7), x, reshape(x, {2, 3, 1})}, images);
    return x;
  });
  const std::vector<float> grey{0, 1, 0.5, 2, -1, std::nanf("")};
  f(tensor<float>(grey, {2, 3})).block_until_ready();
  EXPECT_EQ(text_in(folder.path() + "/at-07.png"), text_in(folder.path() + "/at-07-1.png"));
  // As Python reads it, with what zlib and struct of its library know.
  const std::string reads =
      "import sys, zlib, struct; d = open(sys.argv[1], 'rb').read(); "
      "i = d.index(b'IDAT'); n = struct.unpack('>I', d[i - 4:i])[0]; "
      "print(struct.unpack('>IIBB', d[16:26]), list(zlib.decompress(d[i + 4:i + 4 + n])))";
  const std::string command = "python3 -c \"" + reads + "\" " + folder.path() + "/at-07.png";
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_TRUE(pipe);
  std::string printed(200, '\0');
  printed.resize(std::fread(printed.data(), 1, printed.size(), pipe));
  pclose(pipe);
  EXPECT_EQ(printed, "(3, 2, 8, 0) [0, 0, 255, 128, 0, 255, 0, 0]\n");
  expect_error<TypeError>([] { listen::png("x.jpg"); }, {"must be named .png", "x.jpg"});
  expect_error<TypeError>([] { listen::png("{step}{x}.png"); }, {"no format of a step"});
  expect_error<CallbackError>(
      [&] {
        tap(tensor<float>({1, 2}), images);
      },
      {"png: an image is", "'tap' is f32[2]"});
  const auto nowhere =
      listen::png(folder.path() + "/none/x.png", {.on_error = listen::OnError::go_on});
  tap(zeros(type<float>({1, 1})), nowhere);
}

TEST(Metrics, AFiringBeyondWhatARecordMayHoldIsLeftOut) {
  const TemporaryFolder folder;
  const auto steps =
      listen::record(folder.path() + "/{step}.npz", {.max_bytes = std::size_t{1} << 31});
  const Transforms none;
  const TapInfo info{{"big", 0, {}, 1, StopToken()}, none, {}, false, {}};
  const std::int64_t size = std::int64_t{1} << 32;
  const std::byte* const nothing = nullptr;  // it is not looked at
  const AnyView big(DType::u8, nothing, &size, 1, size);
  steps(info, {&big, 1});
  EXPECT_EQ(steps.recorded(), 0u);
  EXPECT_EQ(steps.left_out(), 1u);
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(Metrics, TimesDoNotGoBack) {
  host::MetricClock clock;
  double before = 0;
  for (int i = 0; i < 1000; ++i) {
    const double now = clock.now();
    EXPECT_GE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace postern::test
