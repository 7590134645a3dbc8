// What goes wrong while a program runs: what the caller sees, and that everything works afterwards.
#include "support.h"

namespace postern {
namespace {

using test::cause_of, test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;

struct OddError : std::runtime_error {
  explicit OddError(int c) : std::runtime_error("odd " + std::to_string(c)), code(c) {}
  int code;
};

/// A program of which nothing is known when a call of it returns: work that XLA has a thread of its
/// own for, and then a hook.
auto behind_work() {
  return jit([](Tensor m) {
    const Tensor work = fori_loop(
        0, 500, [&](Tensor, Tensor v) { return tanh(matmul(v, m)); }, m);
    const Tensor y = hook({.name = "late", .live = true}, sum(work) * 0.0f);
    return std::pair(y, y + 1.0f);
  });
}
const Type heavy = type<float>({300, 300});
/// From now on its hook throws.
Listening throws_late(int code) {
  return live_hooks().back().turn_on([code](float) { throw OddError(code); });
}

TEST(Error, TheOriginalExceptionArrives) {
  RecordProperty("covers", "ERR-01");
  auto f = jit([](Tensor x) {
    return call(
        {.name = "odd one"}, x.type(), [](float v) -> float { throw OddError(int(v)); }, x);
  });
  const auto e = error_of<CallbackError>([&] { f(Tensor(7.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->code(), ErrorCode::threw);
  EXPECT_EQ(e->site().name, "odd one");
  EXPECT_TRUE(has(to_string(e->site().place), "error_test.cc:"));
  EXPECT_EQ(e->device(), 0);
  EXPECT_EQ(e->count(), 1u);
  for (const char* part : {"odd one", "error_test.cc:", "device 0", "odd 7"})
    EXPECT_TRUE(has(e->what(), part)) << e->what();
  const auto cause = cause_of<OddError>(*e);
  ASSERT_TRUE(cause);
  EXPECT_EQ(cause->code, 7);
}

TEST(Error, TextsAreEqualEachTimeAndInEachMode) {
  RecordProperty("covers", "ERR-01 CALL-13");
  auto f = [](Tensor x) {
    return call(
               {.name = "same"}, x.type(), [](float) -> float { throw OddError(1); }, x) +
           1.0f;
  };
  auto compiled = jit(f);
  auto evaluated = jit(f, {.mode = Mode::evaluate});
  std::vector<std::string> texts;
  auto add = [&](auto&& act) {
    if (const auto e = error_of<CallbackError>(act)) texts.push_back(e->what());
  };
  add([&] { compiled(Tensor(1.0f)).item<float>(); });
  add([&] { compiled(Tensor(1.0f)).item<float>(); });
  add([&] { evaluated(Tensor(1.0f)).item<float>(); });
  add([&] { f(Tensor(1.0f)).item<float>(); });
  add([&] { compiled.start(Tensor(1.0f)).wait(); });
  add([&] { compiled.start(Tensor(1.0f)).result(); });
  ASSERT_EQ(texts.size(), 6u);
  for (const std::string& text : texts) EXPECT_EQ(text, texts[0]);
  EXPECT_FALSE(has(texts[0], "0x"));
}

TEST(Error, ExceptionsOfAnyType) {
  RecordProperty("covers", "ERR-01 ERR-20");
  struct Plain {};
  auto thrown = [](auto what) {
    auto f = [=](Tensor x) {
      return call(
          x.type(), [=](float) -> float { throw what; }, x);
    };
    const auto e = error_of<CallbackError>([&] { jit(f)(Tensor(1.0f)).block_until_ready(); });
    EXPECT_TRUE(e && e->cause() && e->code() == ErrorCode::threw);
    const auto now = error_of<CallbackError>([&] { f(Tensor(1.0f)); });
    EXPECT_STREQ(e->what(), now->what());
    return std::string(e->what());
  };
  EXPECT_TRUE(has(thrown(42), "an exception of type int"));
  EXPECT_TRUE(has(thrown("text"), "an exception of type char const*"));
  EXPECT_TRUE(has(thrown(std::string("text")), "string"));
  EXPECT_TRUE(has(thrown(Plain()), "Plain"));
  EXPECT_TRUE(has(thrown(nullptr), "nullptr"));
  EXPECT_TRUE(has(thrown(std::bad_alloc()), "bad_alloc"));
  EXPECT_TRUE(has(thrown(std::length_error("too long")), "too long"));
  EXPECT_TRUE(has(thrown(Error(ErrorCode::data_loss, "lost")), "lost"));
  EXPECT_TRUE(has(thrown(TypeError("mistaken")), "mistaken"));
}

TEST(Error, EachOutputGivesTheErrorAndBarrierIsCleanThen) {
  RecordProperty("covers", "ERR-03");
  if (test::skipped_in_stages("in stages a run returns behind its functions")) return;
  auto f = behind_work();
  auto [a, b] = f(ones(heavy));  // nothing is known yet
  const Listening on = throws_late(3);
  const auto first = error_of<CallbackError>([&] { a.item<float>(); });
  const auto second = error_of<CallbackError>([&] { b.block_until_ready(); });
  const auto again = error_of<CallbackError>([&] { a.to_vector<float>(); });
  ASSERT_TRUE(first && second && again);
  EXPECT_STREQ(first->what(), second->what());
  EXPECT_STREQ(first->what(), again->what());
  EXPECT_TRUE(cause_of<OddError>(*second));
  EXPECT_NO_THROW(barrier());
}

TEST(Error, AFailedResultFailsWhatUsesIt) {
  if (test::skipped_in_stages("in stages a run returns behind its functions")) return;
  auto f = behind_work();
  auto [a, b] = f(ones(heavy));
  const Listening on = throws_late(4);
  const auto e = error_of<CallbackError>([&, t = a] { (t * 2.0f + 1.0f).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "odd 4")) << e->what();
  auto g = jit([](Tensor x) {
    return call(
        x.type(),
        [](float v) {
          ADD_FAILURE();
          return v;
        },
        x);
  });
  EXPECT_TRUE(error_of<CallbackError>([&, t = b] { g(t).item<float>(); }));
  EXPECT_NO_THROW(barrier());
}

TEST(Error, BarrierReportsWhatNobodyWaitedFor) {
  RecordProperty("covers", "ERR-03 ERR-12");
  if (test::skipped_in_stages("in stages a run returns behind its functions")) return;
  auto f = behind_work();
  static_cast<void>(f(ones(heavy)));  // dropped
  const Listening on = throws_late(5);
  const auto e = error_of<CallbackError>([] { barrier(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->count(), 1u);
  EXPECT_TRUE(has(e->what(), "late") && has(e->what(), "odd 5")) << e->what();
  EXPECT_TRUE(cause_of<OddError>(*e));
  EXPECT_NO_THROW(barrier()) << "reported once";

  for (int i = 0; i < 12; ++i) static_cast<void>(f.start(ones(heavy)));
  const auto many = error_of<CallbackError>([] { barrier(); });
  ASSERT_TRUE(many);
  EXPECT_EQ(many->count(), 12u);
  ASSERT_EQ(many->others().size(), 11u);
  EXPECT_TRUE(has(many->others().front(), "odd 5"));
}

TEST(Error, AStartedRunThatNobodyWaitsForIsReported) {
  RecordProperty("covers", "ERR-03");
  auto f = jit([](Tensor x) {
    return call(
        {.name = "unseen"}, x.type(), [](float) -> float { throw OddError(6); }, x);
  });
  { auto dropped = f.start(Tensor(1.0f)); }
  expect_error<CallbackError>([] { barrier(); }, {"unseen", "odd 6"});
  auto kept = f.start(Tensor(1.0f));
  EXPECT_TRUE(error_of<CallbackError>([&] { kept.wait(); }));
  EXPECT_NO_THROW(barrier());
  EXPECT_EQ(kept.status(), RunStatus::failed);
}

TEST(Error, AFailureStopsTheProgramThere) {
  RecordProperty("covers", "ERR-04 ERR-13");
  int entered = 0, later = 0;
  auto f = jit([&](Tensor x) {
    for (int i = 0; i < 10; ++i)
      x = call(
          {.effect = Effect::ordered}, x.type(),
          [&, i](float v) {
            ++entered;
            return i == 3 ? throw OddError(i) : v + 1;
          },
          x);
    call({.effect = Effect::ordered}, std::tuple<>(), [&] { ++later; });
    return x;
  });
  const auto e = error_of<CallbackError>([&] { f(Tensor(0.0f)).item<float>(); });
  EXPECT_EQ(entered, 4);
  EXPECT_EQ(later, 0);
  EXPECT_EQ(e->count(), 1u);
}

TEST(Error, EverythingWorksAfterwards) {
  RecordProperty("covers", "ERR-05");
  bool good = false;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(), [&](float v) { return good ? v + 1 : throw OddError(0); }, x);
  });
  auto other = jit([](Tensor x) { return sum(x * x); });
  for (int round = 0; round < 3; ++round) {
    good = false;
    EXPECT_TRUE(error_of<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); }));
    good = true;
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
    EXPECT_EQ(other(tensor<float>({3, 4})).item<float>(), 25);
  }
}

/// The text of a bad_result error of a call with this template and function, which must be equal at
/// once and compiled.
template <class Out, class F>
std::string bad_result(Out out, F fn) {
  auto f = [=] { return leaves(call({.name = "bad"}, out, fn)).front(); };
  const auto compiled = error_of<CallbackError>([&] { jit(f)().block_until_ready(); });
  const auto now = error_of<CallbackError>([&] { f(); });
  if (!compiled || !now) return "";
  EXPECT_EQ(compiled->code(), ErrorCode::bad_result);
  EXPECT_STREQ(compiled->what(), now->what());
  EXPECT_TRUE(has(compiled->what(), "bad") && has(compiled->what(), "error_test.cc:"))
      << compiled->what();
  return compiled->what();
}
void expect_parts(const std::string& text, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts)
    EXPECT_TRUE(has(text, part)) << "no '" << part << "' in: " << text;
}

TEST(Error, WrongNumberOfResults) {
  RecordProperty("covers", "ERR-06");
  const Type s = type<float>();
  expect_parts(bad_result(std::pair(s, s), [] { return 1.0f; }), {"expected 2", "got 1"});
  expect_parts(bad_result(std::pair(s, s), [] { return std::tuple(1.0f, 2.0f, 3.0f); }),
               {"expected 2", "got 3"});
  expect_parts(bad_result(s, [] { return std::tuple<>(); }), {"expected 1", "got 0"});
}

TEST(Error, WrongShapes) {
  RecordProperty("covers", "ERR-07");
  expect_parts(bad_result(type<float>({1}), [] { return 1.0f; }), {"result 0", "f32[1]", "f32[]"});
  expect_parts(bad_result(type<float>({3}),
                          [] {
                            return Floats{1, 2};
                          }),
               {"result 0", "f32[3]", "f32[2]"});
  expect_parts(bad_result(type<float>({2, 2}),
                          [] {
                            return Floats{1, 2, 3, 4};
                          }),
               {"f32[2,2]", "f32[4]"});
  expect_parts(bad_result(type<float>({2, 3}),
                          [] {
                            return Array<float>{{3, 2}, Floats(6)};
                          }),
               {"f32[2,3]", "f32[3,2]"});
  expect_parts(bad_result(type<float>({2, 3}),
                          [] {
                            return Array<float>{{2, 3}, Floats(5)};
                          }),
               {"f32[2,3]", "5"});
  expect_parts(bad_result(type<float>({2, 3}),
                          [] {
                            return Array<float>{{2, -3}, Floats(6)};
                          }),
               {"f32[2,3]"});
  expect_parts(bad_result(type<float>({2}),
                          [] {
                            return zeros(type<float>({2, 1}));
                          }),
               {"f32[2]", "f32[2,1]"});
  expect_parts(bad_result(type<float>({2}), [] { return Tensor(); }), {"f32[2]", "empty"});
  expect_parts(bad_result(std::pair(type<float>(), std::vector{type<float>(), type<float>({2})}),
                          [] { return std::tuple(1.0f, 2.0f, 3.0f); }),
               {"result 2", "[1][1]", "f32[2]", "f32[]"});
}

TEST(Error, WrongDtypes) {
  RecordProperty("covers", "ERR-08");
  expect_parts(bad_result(type<float>(), [] { return 1.0; }), {"f32[]", "f64[]"});
  expect_parts(bad_result(type<float>(), [] { return 1; }), {"f32[]", "s32[]"});
  expect_parts(bad_result(type<int>({2}),
                          [] {
                            return std::vector<std::uint32_t>{1, 2};
                          }),
               {"s32[2]", "u32[2]"});
  expect_parts(bad_result(type<bool>(), [] { return std::uint8_t{1}; }), {"pred[]", "u8[]"});
  EXPECT_EQ(call(type<float>(), [] { return 1.0f; }).item<float>(), 1);
}

TEST(Error, WrongStructure) {
  RecordProperty("covers", "ERR-09");
  expect_parts(bad_result(type<float>(), [] { return std::tuple(1.0f, 2.0f); }), {"*", "(*,*)"});
  expect_parts(bad_result(std::pair(type<float>(), type<float>()), [] { return 1.0f; }), {"(*,*"});
}

TEST(Error, NothingIsWrittenOfABadResult) {
  RecordProperty("covers", "ERR-06");
  float seen = -1;
  bool good = true;
  auto f = jit([&](Tensor x) {
    auto [a, b] = call(
        std::pair(type<float>(), type<float>({2})),
        [&](float v) {
          return std::tuple(v, good ? Floats{v, v} : Floats{v});
        },
        x);
    return call(
        x.type(), [&](float v) { return seen = v; }, a + sum(b));
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 3);
  good = false;
  EXPECT_TRUE(error_of<CallbackError>([&] { f(Tensor(5.0f)).item<float>(); }));
  EXPECT_EQ(seen, 3) << "what follows did not run";
  good = true;
  EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 6);
}

TEST(Error, WhatTheFunctionCatchesDoesNotSurface) {
  RecordProperty("covers", "ERR-15");
  auto f = jit([](Tensor x) {
    return call(
        x.type(),
        [](float v) -> float {
          try {
            throw OddError(1);
          } catch (const OddError&) {
            return v + 1;
          }
        },
        x);
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
  EXPECT_NO_THROW(barrier());
}

TEST(Error, AnInnerProgramsFailureNamesBothCalls) {
  auto inner = jit([](Tensor x) {
    return call(
        {.name = "inner"}, x.type(), [](float) -> float { throw OddError(9); }, x);
  });
  auto outer = jit([&](Tensor x) {
    return call(
        {.name = "outer"}, x.type(), [&](float v) { return inner(Tensor(v)).item<float>(); }, x);
  });
  const auto e = error_of<CallbackError>([&] { outer(Tensor(1.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->site().name, "outer");
  EXPECT_TRUE(has(e->what(), "inner") && has(e->what(), "outer") && has(e->what(), "odd 9"))
      << e->what();
  const auto below = cause_of<CallbackError>(*e);
  ASSERT_TRUE(below);
  EXPECT_TRUE(cause_of<OddError>(*below));
  EXPECT_NO_THROW(barrier());
}

TEST(Error, ManyThreadsFailEachOnItsOwn) {
  RecordProperty("covers", "CALL-18 ERR-05");
  auto f = jit([](Tensor x) {
    return call(
        x.type(), [](int v) { return v % 2 ? throw OddError(v) : v; }, x);
  });
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        for (int i = t * 50; i < t * 50 + 50; ++i) {
          try {
            right += f(Tensor(i)).item<int>() == i && i % 2 == 0;
          } catch (const CallbackError& e) {
            const auto cause = cause_of<OddError>(e);
            right += cause && cause->code == i;
          }
        }
      });
  }
  EXPECT_EQ(right, 400);
  EXPECT_NO_THROW(barrier());
}

}  // namespace
}  // namespace postern
