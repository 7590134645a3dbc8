// Started calls of several devices that end early.
#include <atomic>

#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesEnds = EightDevices;

/// On each device one function works until it is told to stop, and one is queued behind it.
struct OnEach {
  std::atomic<bool> lasts{true};
  std::atomic<int> inside{0}, told{0}, behind{0};

  auto program() {
    return jit(shard_map(
        [this](Tensor v) {
          const auto first = start_call(
              {.name = "slow", .effect = Effect::ordered}, v.type(),
              [this](const CallInfo& info, View<const float> in, View<float> out) {
                ++inside;
                if (lasts) told += wait_until([&] { return info.stop.stop_requested(); });
                out[0] = in[0];
              },
              v);
          const auto second = start_call(
              {.name = "behind", .effect = Effect::ordered}, v.type(),
              [this](View<const float> in, View<float> out) {
                ++behind;
                out[0] = in[0] + 1;
              },
              v);
          return wait(first) + wait(second);
        },
        Mesh({{"x", 4}}), {.in = {P("x")}, .out = {P("x")}}));
  }
  void next_run_works(const auto& f) {
    lasts = false;
    EXPECT_EQ(f(counting({4})).template to_vector<float>(), (Floats{1, 3, 5, 7}));
    EXPECT_EQ(behind.load(), 4);
  }
};

TEST_F(DevicesEnds, CancellingStopsStartedCallsOfAll) {
  RecordProperty("covers", "OVERLAP-06 OVERLAP-12");
  OnEach each;
  const auto f = each.program();
  auto run = f.start(counting({4}));
  ASSERT_TRUE(wait_until([&] { return each.inside == 4; }));
  EXPECT_EQ(barrier(0ms), 1u) << "one run, however many devices it has";
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  barrier();
  EXPECT_EQ(each.told.load(), 4);
  EXPECT_EQ(each.behind.load(), 0) << "what was queued is left out";
  each.next_run_works(f);
}

TEST_F(DevicesEnds, ADeadlineStopsStartedCallsOfAll) {
  RecordProperty("covers", "OVERLAP-06 OVERLAP-12");
  OnEach each;
  const auto f = each.program();
  {
    auto run = f.start_with({.deadline = 300ms}, counting({4}));
    expect_error<TimeoutError>([&] { run.wait(); }, {"deadline"}, ErrorCode::timeout);
  }
  barrier();
  EXPECT_TRUE(wait_until([&] { return each.told == each.inside; }));
  EXPECT_EQ(each.behind.load(), 0) << "what was queued is left out";
  each.next_run_works(f);
}

TEST_F(DevicesEnds, AFunctionDropsTheProgramThatCallsIt) {
  RecordProperty("covers", "LIFE-01");
  for (const bool fails : {false, true}) {
    std::optional<Jitted<std::function<Tensor(Tensor)>>> f;
    std::atomic<int> entered{0};
    const auto dropping = [&](Tensor v) {
      return call(
          {.name = "drop", .effect = Effect::unordered}, v.type(),
          [&f, &entered, fails](View<const float> in, View<float> out) {
            if (++entered == 4) f.reset();
            if (fails && entered == 4) throw std::runtime_error("and failed");
            out[0] = in[0] + 1;
          },
          v);
    };
    f.emplace(jit(std::function<Tensor(Tensor)>(
        shard_map(dropping, Mesh({{"x", 4}}), {.in = {P("x")}, .out = {P("x")}}))));
    const auto values = [&] { return (*f)(counting({4})).to_vector<float>(); };
    if (fails)
      expect_error<CallbackError>(values, {"drop", "and failed"});
    else
      EXPECT_EQ(values(), (Floats{1, 2, 3, 4}));
    EXPECT_FALSE(f);
  }
}

}  // namespace
}  // namespace postern::test
