// Functions for programs of another XLA.
#include "guest_test.h"

#include <cfenv>
#include <limits>
#include <thread>

#include "host/run_end.h"

namespace postern::internal {
namespace {

using namespace guest_test;
using guest_test::run;  // not the room
using pjrt::Executable;
using test::cause_of, test::expect_error, test::has;

TEST(Guest, CallsAFunctionByName) {
  const Named_f f(twice);
  for (const std::string_view target : {guest::target, without_state}) {
    const Executable p = program(asked, target);
    for (int again = 0; again < 3; ++again) EXPECT_EQ(run(p), (Floats{2, 4, 6, 8})) << target;
  }
}

TEST(Guest, AttributesOfTheFunctionsOwn) {
  std::int64_t seen = 0;
  const Named_f f([&](const Attributes& own, View<const float> in, View<float> out) {
    seen = own.get<std::int64_t>("rows");
    for (std::int64_t i = 0; i < in.size(); ++i)
      out[i] = in[i] * static_cast<float>(own.get<double>("factor"));
  });
  const Executable p =
      program(fmt::format("{}, with_rows = 7 : i64, with_factor = 0.5 : f64", asked));
  EXPECT_EQ(run(p), (Floats{0.5, 1, 1.5, 2}));
  EXPECT_EQ(seen, 7);
}

TEST(Guest, FunctionsAreToldWhereTheyAre) {
  CallInfo seen;
  std::string name, file;
  const Named_f f([&](const CallInfo& info, View<const float> in, View<float> out) {
    seen = info;
    name = info.name;
    file = info.place.file;
    EXPECT_EQ(guest::waiting().device, info.device);
    EXPECT_EQ(guest::waiting().home->platform, "cpu");
    twice(in, out);
  });
  run(program(fmt::format(R"({}, file = "model.py", line = 12 : i64)", asked)));
  EXPECT_EQ(name, "f");
  EXPECT_EQ(file, "model.py");
  EXPECT_EQ(seen.place.line, 12u);
  EXPECT_EQ(guest::waiting().device, -1);
}

TEST(Guest, NamesMeanWhatIsRegisteredNow) {
  const Executable p = program(asked);
  expect_failure<CallbackError>(p, {"call 'f'", "no host function is registered under"},
                                ErrorCode::unregistered);
  {
    const Named_f f(twice);
    EXPECT_EQ(run(p), (Floats{2, 4, 6, 8}));
    register_function("guest_test.f",
                      [](View<const float> in, View<float> out) {
                        for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 1;
                      },
                      {.replace = true});
    EXPECT_EQ(run(p), (Floats{2, 3, 4, 5}));
    register_function("guest_test.other", twice, {.replace = true});  // of another name
    EXPECT_EQ(run(p), (Floats{2, 3, 4, 5}));
    unregister_function("guest_test.other");
  }
  expect_failure<CallbackError>(p, {"no host function is registered"}, ErrorCode::unregistered);
}

TEST(Guest, AProgramKeepsAFunctionThatIsItsOwn) {
  constexpr std::string_view kept =
      R"(function = "guest_test.f", name = "f", kind = "call", kept = 1 : i64)";
  std::weak_ptr<int> life;
  {
    std::optional<Executable> p;
    {
      const auto held = std::make_shared<int>(1);
      life = held;
      const Named_f f([held](View<const float> in, View<float> out) { twice(in, out); });
      p.emplace(program(kept));
    }
    EXPECT_EQ(run(*p), (Floats{2, 4, 6, 8})) << "the name is gone";
    const Named_f other([](View<const float>, View<float>) {});
    EXPECT_EQ(run(*p), (Floats{2, 4, 6, 8})) << "the name is another's";
    EXPECT_FALSE(life.expired());
  }
  EXPECT_TRUE(life.expired()) << "with the program";
  const Executable late = program(kept);  // loaded before there is one
  const Named_f f(twice);
  EXPECT_EQ(run(late), (Floats{2, 4, 6, 8}));
}

TEST(Guest, WhatAFunctionThrowsIsTheFailuresCause) {
  bool fails = true;
  const Named_f f([&](View<const float> in, View<float> out) {
    if (fails) throw std::out_of_range("no such row");
    twice(in, out);
  });
  const Executable p = program(asked);
  const std::uint64_t number = failure_of(p);
  const auto error =
      test::error_of<CallbackError>([&] { std::rethrow_exception(guest::failure(number)); });
  ASSERT_TRUE(error);
  EXPECT_TRUE(has(error->what(), "call 'f'")) << error->what();
  const auto cause = cause_of<std::out_of_range>(*error);
  ASSERT_TRUE(cause);
  EXPECT_STREQ(cause->what(), "no such row");
  // The last 16 have their causes, the last 256 their texts.
  for (int i = 0; i < 16; ++i) failure_of(p);
  EXPECT_THROW(std::rethrow_exception(guest::failure(number)), Error);
  const auto later = test::error_of<Error>([&] { std::rethrow_exception(guest::failure(number)); });
  EXPECT_EQ(later->what(), std::string(error->what()));
  for (int i = 0; i < 240; ++i) failure_of(p);
  EXPECT_EQ(guest::failure(number), nullptr);
  EXPECT_EQ(guest::failure(number + 1000), nullptr) << "never given";
  failure_of(p);
  // 0 asks for the oldest that nobody has asked about.
  for (std::uint64_t i = 1; i < 1000; ++i) EXPECT_EQ(guest::failure(i), nullptr) << "no counts";
  fails = false;
  EXPECT_EQ(run(p), (Floats{2, 4, 6, 8}));
}

TEST(Guest, TypesThatTheFunctionCannotTake) {
  const Named_f f([](View<const double>, View<double>) {});
  expect_failure<TypeError>(program(asked), {"call 'f'", "f32[4]", "f64"});
}

TEST(Guest, AttributesThatDoNotFit) {
  const Named_f f(twice);
  const std::pair<std::string_view, std::string_view> wrong[] = {
      {R"(kind = "call")", "names no function"},
      {R"(function = "guest_test.f", kind = "shout")",
       "kind must be call, tap or async, got 'shout'"},
      {R"(function = "guest_test.f", kind = "tap", every = 0 : i64)",
       "every must be at least 1, got 0"},
      {R"(function = "guest_test.f", kind = "call", timeout = -1 : i64)",
       "timeout at least 0, got -1"},
      {R"(function = "guest_test.f", kind = "call", meets = -1 : i64)",
       "meets must be at least 0, got -1"},
      {R"(function = "guest_test.f", kind = "call", colour = 1 : i64)", "the attribute 'colour'"},
      {R"(function = "guest_test.f", kind = "call", line = "twelve")", "the attribute 'line'"},
      {R"(function = "guest_test.f", kind = "call", with_it = 1 : i16)",
       "of a type that it does not take"},
      {R"(function = "guest_test.f", kind = "call", levels = "4T")", "'4T' is no batch level"},
      {R"(function = "guest_test.f", kind = "call", levels = "4:TT")", "with 1 operands"},
      {R"(function = "guest_test.f", kind = "call", levels = "3:T")",
       "has not the axes of its batch levels"},
      {R"(function = "guest_test.f", kind = "call", axes = "2 x")",
       "its last operand is no position"},
      {R"(function = "guest_test.f", kind = "call", axes = "x")", "is no position on a mesh"},
  };
  for (const auto& [attributes, part] : wrong) {
    const auto error = test::error_of<Error>([&] { run(program(attributes, without_state)); });
    ASSERT_TRUE(error);
    EXPECT_TRUE(has(error->what(), part)) << attributes << ": " << error->what();
    EXPECT_TRUE(has(error->what(), "[postern failure ")) << error->what();
  }
  // With state XLA hears of those that need no types when it loads the program.
  EXPECT_ANY_THROW(run(program(R"(function = "guest_test.f", kind = "shout")")));
  EXPECT_EQ(run(program(asked)), (Floats{2, 4, 6, 8}));
}

TEST(Guest, ElementsOfABatchAreEnteredOneByOne) {
  std::atomic<int> entered{0};
  const Named_f f([&](float x) {
    ++entered;
    return 10 * x;
  });
  for (const char* how : {"", ", parallel = 1 : i64"}) {
    entered = 0;
    EXPECT_EQ(run(program(fmt::format(R"({}, levels = "4:T"{})", asked, how))),
              (Floats{10, 20, 30, 40}));
    EXPECT_EQ(entered, 4);
  }
}

TEST(Guest, FunctionsComputeAsTheProcessDid) {
  std::atomic<int> right{0};
  const Named_f f([&](View<const float> in, View<float> out) {
    volatile double least = std::numeric_limits<double>::min();
    least = least / 4;
    right += least > 0 && std::fegetround() == FE_TONEAREST;
    std::fesetround(FE_DOWNWARD);  // the next one does not see that
    twice(in, out);
  });
  for (const char* more : {"", ", timeout = 20000000000 : i64"}) {
    right = 0;
    const Executable p = program(std::string(asked) + more);
    for (int i = 0; i < 3; ++i)
      std::jthread([&] {
        std::fesetround(i == 1 ? FE_UPWARD : FE_TONEAREST);
        run(p);
      }).join();
    barrier();
    EXPECT_EQ(right, 3) << more;
  }
}

TEST(Guest, LateFunctions) {
  std::atomic<bool> go{false};
  std::atomic<int> entered{0}, left{0};
  const Named_f f([&](View<const float> in, View<float> out) {
    ++entered;
    while (!go) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    twice(in, out);
    ++left;
  });
  const Executable p = program(fmt::format("{}, timeout = 20000000 : i64", asked));
  expect_failure<TimeoutError>(p, {"call 'f'", "20 ms"}, ErrorCode::timeout);
  go = true;
  EXPECT_TRUE(test::wait_until([&] {
    try {
      return run(p) == Floats{2, 4, 6, 8};
    } catch (const Error&) {
      return false;  // the late one has the executor's thread a moment longer
    }
  }));
  EXPECT_TRUE(test::wait_until([&] { return left == entered; })) << "they read what is here";
}

TEST(Guest, TapsAtOnceAndInTheBackground) {
  std::mutex guard;
  Floats seen;
  const Named_f f([&](View<const float> x) {
    const std::scoped_lock lock(guard);
    seen.push_back(x[0]);
  });
  const Executable now = tap_program(R"(function = "guest_test.f", kind = "tap")");
  for (const float v : {1.0f, 2.0f, 3.0f}) EXPECT_EQ(run(now, {v, 0, 0, 0})[0], v);
  EXPECT_EQ(std::exchange(seen, {}), (Floats{1, 2, 3}));
  const Executable some =
      tap_program(R"(function = "guest_test.f", kind = "tap", every = 2 : i64)");
  for (const float v : {1.0f, 2.0f, 3.0f}) run(some, {v, 0, 0, 0});
  EXPECT_EQ(std::exchange(seen, {}), (Floats{1, 3}));
  const Executable later = tap_program(R"(function = "guest_test.f", kind = "async")");
  for (const float v : {1.0f, 2.0f, 3.0f}) run(later, {v, 0, 0, 0});
  barrier();
  EXPECT_EQ(seen, (Floats{1, 2, 3}));
}

TEST(Guest, WhatAsynchronousTapsThrowIsKeptForTheBarrier) {
  const Named_f f([](View<const float>) { throw std::runtime_error("disk full"); });
  run(tap_program(R"(function = "guest_test.f", name = "log", kind = "async")"));
  expect_error<CallbackError>([] { barrier(); }, {"tap 'log'", "disk full"});
  EXPECT_NO_THROW(barrier());
}

TEST(Guest, ItsRunsAreNoneOfPosterns) {
  std::uint64_t ours = 0;
  const auto own = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](const CallInfo& info, float v) {
          ours = info.run;
          return v;
        },
        x);
  });
  own(Tensor(1.0f)).block_until_ready();
  std::vector<std::uint64_t> seen;
  std::atomic<int> ended{0};
  const Named_f f([&](const CallInfo& info, View<const float> in, View<float> out) {
    seen.push_back(info.run);
    host::when_run_ends(info.run, [&](bool) { ++ended; });
    twice(in, out);
  });
  const Executable p = program(asked);
  run(p, pjrt::one_to_four, static_cast<int>(ours) + 1);
  for (int i = 0; i < 3; ++i) own(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(ended, 0) << "by one of Postern's with that number";
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_GT(seen[0], ours);
  run(p, pjrt::one_to_four, static_cast<int>(ours) + 9);
  EXPECT_EQ(ended, 1);
  host::run_has_ended(seen.back(), true);  // what it captures goes
}

TEST(Guest, WhatEndsARunOfNumberZeroEndsNoOther) {
  const Named_f f([](const TapInfo& info, View<const float> x) {
    if (x[0] == 1) info.end_run();
  });
  const Executable later = tap_program(R"(function = "guest_test.f", kind = "async")");
  run(later, {1, 0, 0, 0}, 0);
  barrier();
  EXPECT_EQ(run(later, {2, 0, 0, 0}, 1'000'007)[0], 2);
  barrier();
}

TEST(Guest, PositionsOnAMesh) {
  std::vector<std::vector<std::int64_t>> seen;
  const Named_f f([&](const CallInfo& info, View<const float> in, View<float> out) {
    seen.emplace_back(info.coordinates.begin(), info.coordinates.end());
    twice(in, out);
  });
  const MeshProgram at{guest::target};
  for (const std::uint32_t position : {0u, 4u, 5u, 4u})
    EXPECT_EQ(at(position), (Floats{2, 4, 6, 8}));
  EXPECT_EQ(seen, (std::vector<std::vector<std::int64_t>>{{0, 0}, {1, 1}, {1, 2}, {1, 1}}));
  expect_error<Error>([&] { at(6); }, {"is at 6, which is not on its mesh"});
}

TEST(Guest, RunsOfManyThreads) {
  std::atomic<int> entered{0};
  const Named_f f([&](View<const float> in, View<float> out) {
    ++entered;
    twice(in, out);
  });
  const Executable p = program(asked), q = program(asked, without_state);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        const float v = static_cast<float>(100 * t + i);
        EXPECT_EQ(run(t % 2 ? p : q, {v, 1, 2, 3}, i + 1), (Floats{2 * v, 2, 4, 6}));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(entered, 200);
}

TEST(Guest, FunctionsMayRunProgramsOfPosterns) {
  const auto square = jit([](Tensor x) { return x * x; });
  const Named_f f([&](View<const float> in, View<float> out) {
    for (std::int64_t i = 0; i < in.size(); ++i) out[i] = square(Tensor(in[i])).item<float>();
  });
  EXPECT_EQ(run(program(asked)), (Floats{1, 4, 9, 16}));
}

}  // namespace
}  // namespace postern::internal
