// What is told of programs that compile again, and of tensors that they capture.
#include <gtest/gtest.h>
#include <postern/postern.h>

#include <cstdlib>

#include "core/lines.h"
#include "core/log.h"
#include "support.h"

namespace postern {
namespace {

using test::has;

/// The lines that the log writes while `act` runs.
std::vector<std::string> logged(const std::function<void()>& act) {
  internal::lines::watch(true);
  std::uint64_t last = 0;
  for (const auto& line : internal::lines::after(0)) last = line.number;
  act();
  std::vector<std::string> out;
  for (auto& line : internal::lines::after(last))
    if (std::string_view(line.from) == "log") out.push_back(std::move(line.text));
  internal::lines::watch(false);
  return out;
}

struct Asked {
  explicit Asked(const char* words) { setenv("POSTERN_LOG", words, 1); }
  ~Asked() { unsetenv("POSTERN_LOG"); }
};

TEST(Misses, OneStaticValueAfterTheOtherIsWarnedOfOnce) {
  if (std::getenv("POSTERN_LOG")) GTEST_SKIP() << "this environment asks for logs";
  auto step = jit([](Tensor w, float rate) { return w * rate; }, {.name = "step"});
  const auto lines = logged([&] {
    for (int i = 1; i <= 30; ++i) step.program(1.0f, 0.5f * static_cast<float>(i));
  });
  ASSERT_EQ(lines.size(), 1u);
  for (const char* part : {"jit 'step' at misses_test.cc:", "8 programs",
                           "argument 2 is 4, before it was 3.5", "type Tensor"})
    EXPECT_TRUE(has(lines[0], part)) << part << " in: " << lines[0];
}

TEST(Misses, NumbersForTensorsAndOtherShapesAreNotWarnedOf) {
  if (std::getenv("POSTERN_LOG")) GTEST_SKIP() << "this environment asks for logs";
  auto f = jit([](Tensor w, Tensor rate) { return w * rate; });
  auto g = jit([](Tensor x, std::string name) { return x * static_cast<int>(name.size()); });
  EXPECT_EQ(logged([&] {
              for (int i = 1; i <= 30; ++i) f.program(1.0f, 0.5f * static_cast<float>(i));
              for (int i = 1; i <= 12; ++i) f.program(full(type<float>({i}), 1), 2.0f);
              for (int i = 1; i <= 7; ++i)
                g.program(1.0f, std::string(static_cast<std::size_t>(i), 'a'));
            }),
            std::vector<std::string>());
}

TEST(Misses, EachIsExplainedWhenAsked) {
  const Asked asked("compiles");
  struct Options {
    int depth;
    std::string name;
  };
  auto f = jit([](Tensor x, std::pair<Tensor, Tensor> y, Options o) {
    return (x + y.first + y.second) * o.depth;
  });
  const Tensor x = full(type<float>({3}), 1), y = full(type<float>({2, 3}), 1);
  const auto lines = logged([&] {
    f.program(x, std::pair{x, x}, Options{1, "a;b"});
    f.program(x, std::pair{x, x}, Options{1, "a;b"});
    f.program(x, std::pair{x, y}, Options{1, "a;b"});
    f.program(x, std::pair{x, y}, Options{1, "a;c"});
    f.program(y, std::pair{x, y}, Options{2, "a;c"});
    sin(full(type<float>({3, 5, 7}), 1));
  });
  const char* const want[] = {"program 1: its first",
                              "program 2: a tensor of argument 2 is f32[2,3], before it was f32[3]",
                              "program 3: argument 3 is {1,3:a;c,}, before it was {1,3:a;b,}",
                              "program 4: argument 3 is {2,3:a;c,}, before it was {1,3:a;c,}",
                              "sin of f32[3,5,7] outside of jit compiles"};
  ASSERT_EQ(lines.size(), std::size(want)) << ::testing::PrintToString(lines);
  for (std::size_t i = 0; i < lines.size(); ++i) EXPECT_TRUE(has(lines[i], want[i])) << lines[i];
}

TEST(Misses, LargeCapturesAreWarnedOfOnce) {
  const Tensor large = full(type<float>({513, 512}), 1), small = full(type<float>({512, 512}), 1);
  auto f = jit([&](Tensor x) { return x * sum(large); }, {.name = "forward"});
  auto g = jit([&](Tensor x) { return x * small; });
  const auto lines = logged([&] {
    g.program(small);
    f.program(1.0f);
    f.program(small);
  });
  ASSERT_EQ(lines.size(), 1u) << ::testing::PrintToString(lines);
  for (const char* part :
       {"jit 'forward' at misses_test.cc:", "f32[513,512] of 1.0 MiB", "must be an argument"})
    EXPECT_TRUE(has(lines[0], part)) << part << " in: " << lines[0];
}

TEST(Misses, CapturesAreLoggedAtLevelInfo) {
  const auto ended = test::run_program("parameters", {}, {{"POSTERN_LOG", "info"}});
  EXPECT_TRUE(has(ended.err, "has captured 1 tensor of 76800 bytes")) << ended.err;
}

TEST(Misses, ProgramsShowWhatIsCaptured) {
  const Tensor w = full(type<float>({3}), 2);
  const std::string text = to_string(jit([&](Tensor x) { return x * w; }).program(w));
  EXPECT_TRUE(has(text, "(%0: f32[3], %1: f32[3] captured)")) << text;
}

}  // namespace
}  // namespace postern
