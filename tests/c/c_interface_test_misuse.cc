// The C interface given what nobody should give it, and what it says then.
#include <postern/c.h>

#include <atomic>
#include <cctype>
#include <fstream>
#include <set>
#include <sstream>

#include "support.h"

namespace postern::test {
namespace {

int nothing(void*, const pn_firing*) { return PN_OK; }

TEST(CInterfaceMisuse, EveryEntrySurvivesHostileArguments) {
  if (test::skipped_in_stages("a native function is one program")) return;
  const Ended ended = run_program("c_hostile", {}, {}, 300s);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(has(ended.out, " calls, 0 died, 0 wrong\n")) << ended.out;
  std::set<std::string> swept;
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) swept.insert(line);
  // Every function in the headers: a line at its left edge that has a name and parameters.
  std::stringstream headers;
  for (const char* name : {"c.h", "guest.h"})
    headers
        << std::ifstream(std::string(POSTERN_TEST_DATA "/../../include/postern/") + name).rdbuf();
  int entries = 0;
  for (std::string line; std::getline(headers, line);) {
    const std::size_t end = line.find('('), start = line.rfind("pn_", end);
    if (line.empty() || !std::isalpha(static_cast<unsigned char>(line[0])) ||
        line.starts_with("typedef") || end == line.npos || start == line.npos)
      continue;
    const std::string name = line.substr(start, end - start);
    ++entries;
    EXPECT_TRUE(swept.contains(name)) << name << " is not swept";
  }
  EXPECT_GT(entries, 45);
}

TEST(CInterfaceMisuse, FaultsOfEachKindEndAsErrors) {
  const TemporaryFolder folder;
  const Ended ended = run_program("faults", {"30", folder.path()}, {}, 300s);
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(CInterfaceMisuse, ANameIsTakenOnce) {
  const std::string name = "c_misuse.taken";
  int released = 0;
  auto release = [](void* n) { ++*static_cast<int*>(n); };
  ASSERT_EQ(pn_register(name.c_str(), nothing, &released, release, 0), PN_OK);
  EXPECT_EQ(pn_register(name.c_str(), nothing, &released, release, 0), PN_ALREADY_EXISTS);
  EXPECT_TRUE(has(pn_last_error(), name) && has(pn_last_error(), "already")) << pn_last_error();
  EXPECT_EQ(released, 0) << "what was refused is still the caller's";
  pn_bridge *one = nullptr, *two = nullptr;
  ASSERT_EQ(pn_bridge_create(&one), PN_OK);
  ASSERT_EQ(pn_bridge_create(&two), PN_OK);
  EXPECT_EQ(pn_bridge_serve(one, name.c_str(), 0), PN_ALREADY_EXISTS);
  EXPECT_EQ(pn_bridge_serve(one, name.c_str(), 1), PN_OK);
  EXPECT_EQ(released, 1);
  EXPECT_EQ(pn_bridge_serve(two, name.c_str(), 0), PN_ALREADY_EXISTS);
  EXPECT_EQ(pn_unregister(name.c_str()), PN_OK);
  pn_bridge_free(one);
  pn_bridge_free(two);
}

TEST(CInterfaceMisuse, AReleaseMayComeBack) {
  // What a function is replaced by, or taken away, runs its release, which may register and ask in
  // its turn.
  const auto again = [](void* done) {
    *static_cast<bool*>(done) =
        pn_register("c_misuse.other", nothing, nullptr, nullptr, 1) == PN_OK;
  };
  for (const bool replace : {true, false}) {
    bool done = false;
    ASSERT_EQ(pn_register("c_misuse.back", nothing, &done, again, 1), PN_OK);
    EXPECT_EQ(replace ? pn_register("c_misuse.back", nothing, nullptr, nullptr, 1) : PN_OK, PN_OK);
    EXPECT_EQ(pn_unregister("c_misuse.back"), PN_OK);
    EXPECT_TRUE(done);
  }
  pn_unregister("c_misuse.other");
}

TEST(CInterfaceMisuse, MemoryThatIsNotThereIsTold) {
  EXPECT_EQ(pn_unregister("c_misuse.nothing"), PN_NOT_FOUND);
  const std::string before = pn_last_error();
  const std::int64_t dims[] = {std::int64_t{1} << 58};
  float one = 1;
  const pn_array array{PN_F32, 1, dims, &one, std::size_t{1} << 60};
  pn_tensor* t = nullptr;
  EXPECT_EQ(pn_tensor_copy(&array, &t), PN_RESOURCE_EXHAUSTED);
  EXPECT_NE(pn_last_error(), before);
  EXPECT_TRUE(has(pn_last_error(), "memory")) << pn_last_error();
}

/// A program that calls "c_misuse.f".
pn_program* program() {
  const std::string text =
      "func.func @main(%x: tensor<1xf32>) -> tensor<1xf32> {\n"
      "  %0 = stablehlo.custom_call @c_misuse.f(%x) : (tensor<1xf32>) -> tensor<1xf32>\n  return "
      "%0 : tensor<1xf32> }\n";
  pn_program* out = nullptr;
  EXPECT_EQ(pn_load_text(text.data(), text.size(), &out), PN_OK) << pn_last_error();
  return out;
}

TEST(CInterfaceMisuse, CausesGoFromTheFunctionToWhoIsTold) {
  struct Cause {
    std::atomic<int> released{0};  // on any thread
  };
  Cause cause, other;
  static Cause* given;
  const auto release = [](void* c) { ++static_cast<Cause*>(c)->released; };
  static void (*const let_go)(void*) = release;
  const std::int64_t dims[] = {1};
  float one = 1;
  const pn_array array{PN_F32, 1, dims, &one, 4};
  pn_tensor *x = nullptr, *y = nullptr;
  ASSERT_EQ(pn_tensor_copy(&array, &x), PN_OK);
  pn_program* const p = program();
  const auto fails = [](void*, const pn_firing*) {
    pn_fail_with("no luck", given, let_go);
    return static_cast<int>(PN_THREW);
  };
  ASSERT_EQ(pn_register("c_misuse.f", fails, nullptr, nullptr, 1), PN_OK);
  given = &cause;
  EXPECT_EQ(pn_run(p, &x, 1, &y), PN_THREW);
  EXPECT_EQ(pn_last_cause(), &cause);
  EXPECT_TRUE(has(pn_last_error(), "no luck"));
  EXPECT_EQ(pn_unregister("c_misuse.nothing"), PN_NOT_FOUND);
  EXPECT_EQ(pn_last_cause(), nullptr) << "another failure, without one";
  // Of a started run, for each who asks.
  given = &other;
  pn_started* run = nullptr;
  ASSERT_EQ(pn_start(p, &x, 1, &run), PN_OK);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(pn_started_wait(run, -1, &y), PN_THREW);
    EXPECT_EQ(pn_last_cause(), &other);
  }
  pn_started_free(run);
  pn_clear_error();
  EXPECT_EQ(pn_last_cause(), nullptr);
  EXPECT_STREQ(pn_last_error(), "");
  EXPECT_TRUE(wait_until([&] { return cause.released == 1 && other.released == 1; }));
  // By a bridge; and one that is refused is let go of too.
  pn_bridge* bridge = nullptr;
  ASSERT_EQ(pn_bridge_create(&bridge), PN_OK);
  ASSERT_EQ(pn_bridge_serve(bridge, "c_misuse.f", 1), PN_OK);
  ASSERT_EQ(pn_start(p, &x, 1, &run), PN_OK);
  const pn_request* r = nullptr;
  ASSERT_EQ(pn_bridge_next(bridge, 20'000'000'000, &r), PN_OK);
  EXPECT_EQ(pn_bridge_fail_with(bridge, r->tag + 1, PN_THREW, "text", &cause, release),
            PN_NOT_FOUND);
  EXPECT_EQ(cause.released, 2);
  EXPECT_EQ(pn_bridge_fail_with(bridge, r->tag, PN_THREW, "text", &other, release), PN_OK);
  EXPECT_EQ(pn_started_wait(run, -1, &y), PN_THREW);
  EXPECT_EQ(pn_last_cause(), &other);
  pn_clear_error();
  pn_started_free(run);
  EXPECT_TRUE(wait_until([&] { return other.released == 2; }));
  pn_bridge_free(bridge);
  pn_unregister("c_misuse.f");
  pn_program_free(p);
  pn_tensor_free(x);
}

}  // namespace
}  // namespace postern::test
