// Observers of runs, as a package writes one: they see invocations, and may stand for functions.
#include "host/run_observer.h"

#include <fmt/ranges.h>

#include "support.h"

namespace postern::test {
namespace {

using namespace internal::host;

/// Notes what it sees, and does at each invocation what the test says.
struct Watching final : RunObserver {
  std::function<bool(ObservedInvocation&)> at_each = [](ObservedInvocation& i) {
    return i.enter();
  };
  std::function<void()> at_begin = [] {};
  std::vector<std::string> programs, seen;
  bool enters = true;

  std::uint64_t begin_run(std::string_view program) override {
    at_begin();
    programs.emplace_back(program);
    return programs.size() - 1;
  }
  bool enter(ObservedInvocation& i) override {
    seen.push_back(fmt::format("{} '{}' of run {}, site {}, element {}: {} -> {}", i.kind, i.name,
                               i.run, i.site, i.element, fmt::join(texts(i.operands), ","),
                               fmt::join(texts(i.results), ",")));
    return at_each(i);
  }
  bool enters_functions() const override { return enters; }

  static std::vector<std::string> texts(std::span<const Type> types) {
    std::vector<std::string> out;
    for (const Type& type : types) out.push_back(to_string(type));
    return out;
  }
};

class RunObserverTest : public testing::Test {
 protected:
  void SetUp() override { observe_runs(watching); }
  void TearDown() override { observe_runs(nullptr); }
  const std::shared_ptr<Watching> watching = std::make_shared<Watching>();

  int entered = 0;
  Jitted<std::function<Tensor(Tensor)>> plus_one =
      jit(std::function<Tensor(Tensor)>([this](Tensor x) {
        const auto add = [this](View<const float> in, View<float> out) {
          ++entered;
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
        };
        return tap({.name = "seen"}, call({.name = "add"}, x.type(), add, x),
                   [](View<const float>) {});
      }));
};

float first(std::string_view bytes) {
  float out = 0;
  std::memcpy(&out, bytes.data(), sizeof out);
  return out;
}

TEST_F(RunObserverTest, SeesInvocationsAndTheirData) {
  watching->at_each = [](ObservedInvocation& i) {
    EXPECT_EQ(first(i.operand(0)), i.is_tap ? 3.0f : 2.0f);
    const bool goes_on = i.enter();
    if (!i.is_tap) {
      EXPECT_EQ(first(i.result(0)), 3.0f);
    }
    EXPECT_EQ(i.failure(), std::nullopt);
    return goes_on;
  };
  EXPECT_EQ(plus_one(tensor<float>({2})).to_vector<float>(), (std::vector<float>{3}));
  EXPECT_EQ(plus_one(tensor<float>({2})).to_vector<float>(), (std::vector<float>{3}));
  EXPECT_EQ(watching->seen,
            (std::vector<std::string>{"call 'add' of run 0, site 0, element -1: f32[1] -> f32[1]",
                                      "tap 'seen' of run 0, site 1, element -1: f32[1] -> ",
                                      "call 'add' of run 1, site 0, element -1: f32[1] -> f32[1]",
                                      "tap 'seen' of run 1, site 1, element -1: f32[1] -> "}));
  EXPECT_EQ(watching->programs.size(), 2u);
  EXPECT_EQ(watching->programs[0], watching->programs[1]);
}

TEST_F(RunObserverTest, GivesInPlaceOfTheFunction) {
  watching->at_each = [](ObservedInvocation& i) {
    const float seven = 7;
    if (!i.is_tap) i.give(0, {reinterpret_cast<const char*>(&seven), sizeof seven});
    return true;
  };
  EXPECT_EQ(plus_one(tensor<float>({2})).to_vector<float>(), (std::vector<float>{7}));
  EXPECT_EQ(entered, 0);
}

TEST_F(RunObserverTest, SeesEachElementOfABatch) {
  vmap([&](Tensor x) { return plus_one(x); })(tensor<float>({{1}, {2}}));
  ASSERT_EQ(watching->seen.size(), 3u) << "the tap sees the batch as a whole";
  EXPECT_TRUE(has(watching->seen[1], "element 1")) << watching->seen[1];
}

TEST_F(RunObserverTest, FailsEndsOrThrows) {
  const Tensor x = tensor<float>({2});
  watching->at_each = [](ObservedInvocation& i) {
    EXPECT_FALSE(i.fail(ErrorCode::data_loss, "no"));
    EXPECT_EQ(i.failure(), "no");
    return false;
  };
  expect_error<CallbackError>([&] { plus_one(x).block_until_ready(); }, {"call 'add'", "no"},
                              ErrorCode::data_loss);
  watching->at_each = [](ObservedInvocation&) -> bool { throw std::runtime_error("thrown"); };
  expect_error<CallbackError>([&] { plus_one(x).block_until_ready(); }, {"call 'add'", "thrown"},
                              ErrorCode::threw);
  watching->at_each = [](ObservedInvocation& i) { return i.end(); };
  EXPECT_EQ(plus_one.start(x).wait(), RunStatus::stopped);
  watching->at_begin = [] { throw Error(ErrorCode::failed_precondition, "not this one"); };
  expect_error<Error>([&] { plus_one(x); }, {"not this one"}, ErrorCode::failed_precondition);
  EXPECT_EQ(entered, 0);
  watching->at_begin = [] {};
  watching->at_each = [](ObservedInvocation& i) { return i.enter(); };
  EXPECT_EQ(plus_one(x).to_vector<float>(), (std::vector<float>{3}));
}

TEST_F(RunObserverTest, IsOfOneThreadAndNotOfRunsWithin) {
  expect_error<Error>([&] { observe_runs(std::make_shared<Watching>()); }, {"already"},
                      ErrorCode::failed_precondition);
  std::thread([&] { plus_one(tensor<float>({1})).block_until_ready(); }).join();
  EXPECT_TRUE(watching->seen.empty());
  ObservedRun run;
  const auto outer = jit([&](Tensor x) {
    const auto inner = [&](View<const float>, View<float> out) {
      run = observed_run();
      out[0] = plus_one(tensor<float>({1})).to_vector<float>()[0];
    };
    return call({.name = "outer"}, x.type(), inner, x);
  });
  EXPECT_EQ(outer(tensor<float>({1})).to_vector<float>(), (std::vector<float>{2}));
  ASSERT_EQ(watching->seen.size(), 1u);
  EXPECT_TRUE(has(watching->seen[0], "'outer'"));
  EXPECT_EQ(run.observer, watching);
  EXPECT_EQ(run.run, 0u);
  EXPECT_EQ(observed_run().observer, nullptr);
}

}  // namespace
}  // namespace postern::test
