// Functions started by started functions, outside of programs: what they may wait for.
#include <atomic>
#include <optional>

#include "overlap_test.h"

namespace postern {
namespace {

using test::Door, test::expect_error, test::wait_until;
using Ints = std::vector<int>;

Pending<Tensor> begin_ordered(const char* name, std::function<float(float)> f, float x) {
  return start_call({.name = name, .effect = Effect::ordered}, type<float>(), std::move(f), x);
}

TEST(OverlapNested, AnOrderedOneMayStartAnotherAndWaitForIt) {
  RecordProperty("covers", "OVERLAP-04 OVERLAP-08");
  Ints order;
  Door door;
  const auto outer = begin_ordered(
      "outer",
      [&](float v) {
        door.pass();  // until the next one is queued behind this
        order.push_back(1);
        const auto inner = begin_ordered(
            "inner",
            [&](float w) {
              order.push_back(2);
              return w * 10;
            },
            v + 1);
        const float y = wait(inner).item<float>();
        order.push_back(3);
        return y;
      },
      1);
  const auto next = begin_ordered(
      "next",
      [&](float v) {
        order.push_back(4);
        return v;
      },
      7);
  door.open();
  EXPECT_EQ(wait(next).item<float>(), 7);
  EXPECT_EQ(wait(outer).item<float>(), 20);
  EXPECT_EQ(order, (Ints{1, 2, 3, 4}));
}

TEST(OverlapNested, WhoWaitsLeavesItsThreadToOthers) {
  RecordProperty("covers", "OVERLAP-04 OVERLAP-08");
  constexpr int count = 200;  // there are 64 threads for them
  std::atomic<int> begun = 0;
  std::vector<Pending<Tensor>> all;
  for (int i = 0; i < count; ++i)
    all.push_back(start_call(
        type<float>(),
        [&](float v) {
          ++begun;
          wait_until([&] { return begun.load() >= 64; });
          return wait(start_call(
                          type<float>(), [](float w) { return w * 2; }, v))
              .item<float>();
        },
        static_cast<float>(i)));
  for (int i = 0; i < count; ++i)
    EXPECT_EQ(wait(all[static_cast<std::size_t>(i)]).item<float>(), static_cast<float>(2 * i));
}

TEST(OverlapNested, WaitingForWhatEntersLaterIsRefused) {
  RecordProperty("covers", "OVERLAP-08 OVERLAP-09");
  std::optional<Pending<Tensor>> behind;
  Door door;
  const auto first = begin_ordered(
      "first",
      [&](float v) {
        door.pass();
        return v + wait(*behind).item<float>();
      },
      1);
  behind = begin_ordered(
      "behind", [](float v) { return v; }, 5);
  door.open();
  expect_error<CallbackError>(
      [&] { wait(first); },
      {"call 'first' at overlap_test_nested.cc", "call 'behind' at overlap_test_nested.cc",
       "would never end", "is to enter after it"},
      ErrorCode::reentry);
  EXPECT_EQ(wait(*behind).item<float>(), 5) << "it is still there";
}

TEST(OverlapNested, TwoThatWaitForEachOtherAreRefused) {
  RecordProperty("covers", "OVERLAP-08 OVERLAP-09");
  std::optional<Pending<Tensor>> one, other;
  Door door;
  std::atomic<int> refused = 0;
  const auto waits_for = [&](std::optional<Pending<Tensor>>& p) {
    return [&](float v) {
      door.pass();
      try {
        return v + wait(*p).item<float>();
      } catch (const CallbackError& e) {
        EXPECT_EQ(e.code(), ErrorCode::reentry) << e.what();
        ++refused;
        return v;
      }
    };
  };
  one = start_call({.name = "one"}, type<float>(), waits_for(other), 1.0f);
  other = start_call({.name = "other"}, type<float>(), waits_for(one), 2.0f);
  door.open();
  barrier();
  EXPECT_EQ(refused.load(), 1);
}

}  // namespace
}  // namespace postern
