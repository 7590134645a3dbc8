// Lifetimes: closures, tensors and runs that are dropped at any moment; programs that end with runs
// in flight.
#include "support.h"

#include <csignal>
#include <cstdlib>

namespace postern {
namespace {

using namespace std::chrono_literals;
using test::error_of, test::has, test::run_program, test::wait_until;
using Floats = std::vector<float>;

/// How many copies of a capture live, and how many were ever made.
class Live {
 public:
  Live() : counts_(std::make_shared<Counts>()) {}
  int now() const { return counts_->live; }
  bool gone() const {
    return wait_until([&] { return now() == 0; });
  }

  struct Counts {
    std::atomic<int> live = 0;
  };
  class Capture {
   public:
    explicit Capture(std::shared_ptr<Counts> c) : counts_(std::move(c)) { ++counts_->live; }
    Capture(const Capture& other) : Capture(other.counts_) {}
    Capture(Capture&& other) noexcept : Capture(other.counts_) {}
    Capture& operator=(const Capture&) = delete;
    ~Capture() { --counts_->live; }

   private:
    std::shared_ptr<Counts> counts_;
  };
  Capture capture() const { return Capture(counts_); }

 private:
  std::shared_ptr<Counts> counts_;
};

/// A program whose host function captures one.
auto holding(
    const Live& live, CallOptions options = {}, std::function<void()> inside = [] {}) {
  return jit([&live, options, inside](Tensor x) {
    return call(
        options, x.type(),
        [c = live.capture(), inside](float v) {
          inside();
          return v + 1;
        },
        x);
  });
}

TEST(Life, AClosureLivesAsLongAsItsProgram) {
  RecordProperty("covers", "LIFE-01");
  const Live live;
  {
    auto f = holding(live);
    EXPECT_EQ(live.now(), 0);
    EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
    const int held = live.now();
    EXPECT_GT(held, 0);
    for (int i = 0; i < 5; ++i) f(Tensor(1.0f)).block_until_ready();
    EXPECT_EQ(live.now(), held) << "running makes no copies";
    auto copy = f;
  }
  EXPECT_TRUE(live.gone());
}

TEST(Life, WhoeverCanCallItKeepsIt) {
  RecordProperty("covers", "LIFE-01");
  if (test::skipped_in_stages("it compiles one program that calls")) return;
  const Live live;
  {
    std::optional<Executable> executable;
    std::optional<TracedProgram> program;
    std::optional<Lowered> lowered;
    {
      auto f = holding(live);
      executable = f.compile(Tensor(1.0f));
      program = f.program(Tensor(1.0f));
      lowered = f.lower(Tensor(1.0f));
    }
    EXPECT_GT(live.now(), 0);
    executable.reset();
    program.reset();
    EXPECT_GT(live.now(), 0);
  }
  EXPECT_TRUE(live.gone());
}

TEST(Life, AResultKeepsNoClosure) {
  const Live live;
  Tensor y;
  {
    auto f = holding(live);
    y = f(Tensor(1.0f));
  }
  EXPECT_TRUE(live.gone());
  EXPECT_EQ(y.item<float>(), 2);
}

TEST(Life, EachWayToFailLetsGo) {
  const Live live;
  {
    EXPECT_TRUE(error_of<CallbackError>([&] {
      holding(live, {}, [] { throw std::runtime_error("no"); })(Tensor(1.0f)).item<float>();
    }));
  }
  EXPECT_TRUE(live.gone()) << "a run that fails";
  {
    auto f = jit([&](Tensor x) {
      call(
          x.type(), [c = live.capture()](float v) { return v; }, x);
      if (x.rank() == 0) throw std::logic_error("while tracing");
      return x;
    });
    EXPECT_TRUE(error_of<std::logic_error>([&] { f(Tensor(1.0f)); }));
  }
  EXPECT_TRUE(live.gone()) << "a trace that fails";
  call(
      type<float>(), [c = live.capture()](float v) { return v; }, Tensor(1.0f));
  EXPECT_TRUE(live.gone()) << "a call at once";
  { holding(live).program(Tensor(1.0f)); }
  EXPECT_TRUE(live.gone()) << "a program that never ran";
  {
    auto unused = jit([&](Tensor x) {
      call(
          x.type(), [c = live.capture()](float v) { return v; }, x);
      return x;
    });
    unused(Tensor(1.0f)).block_until_ready();
    EXPECT_TRUE(live.gone()) << "a call that was dropped";
  }
}

/// Ten steps and work enough that XLA runs it on a thread of its own.
TEST(Life, AFunctionDroppedInFlight) {
  RecordProperty("covers", "LIFE-01");
  const Live live;
  std::atomic<bool> go = false;
  Tensor heavy = ones(type<float>({1 << 20}));
  std::optional<postern::Run<Tensor>> run;
  {
    auto f = jit([&](Tensor x) {
      Tensor step = sum(sin(x) * cos(x) + exp(-abs(x))) * 0.0f + 1.0f;
      for (int i = 0; i < 10; ++i)
        step = call(
            step.type(),
            [c = live.capture(), &go](float v) {
              wait_until([&] { return go.load(); });
              return v + 1;
            },
            step);
      return step;
    });
    run = f.start(heavy);
  }
  heavy = Tensor();
  EXPECT_GT(live.now(), 0);
  go = true;
  EXPECT_EQ(run->result().item<float>(), 11);
  barrier();
  EXPECT_TRUE(live.gone());
}

/// Calls a program whose host function drops the program, its last owner, and then may throw.
template <class R>
void drop_while_called(Mode mode, bool fails, const std::function<R(Tensor)>& results) {
  SCOPED_TRACE((fails ? "fails, mode " : "returns, mode ") +
               std::to_string(static_cast<int>(mode)));
  const Live live;
  std::optional<Jitted<std::function<R(Tensor)>>> f;
  const auto dropping = [&](Tensor x) {
    const auto drop = [&f, fails, c = live.capture()](float v) {
      f.reset();
      if (fails) throw std::runtime_error("and failed");
      return v + 1;
    };
    return results(call({.name = "drop", .effect = Effect::ordered}, x.type(), drop, x));
  };
  f.emplace(jit(std::function<R(Tensor)>(dropping), {.mode = mode}));
  const auto leaves = [&] {
    const R all = (*f)(Tensor(1.0f));
    barrier();
    std::vector<float> out;
    detail::visit(all, [&](const Tensor& leaf) { out.push_back(leaf.item<float>()); });
    return out;
  };
  if (fails)
    test::expect_error<CallbackError>(leaves, {"drop", "and failed"});
  else
    for (const float leaf : leaves()) EXPECT_EQ(leaf, 4);
  EXPECT_FALSE(f);
  EXPECT_TRUE(live.gone());
}

TEST(Life, AFunctionDropsTheProgramThatCallsIt) {
  RecordProperty("covers", "LIFE-01");
  for (const Mode mode : test::all_modes)
    for (const bool fails : {false, true}) {
      drop_while_called<Tensor>(mode, fails, [](Tensor y) { return y * 2.0f; });
      drop_while_called<std::tuple<Tensor, Tensor>>(mode, fails, [](Tensor y) {
        return std::tuple{y + 2.0f, y * 2.0f};
      });
      drop_while_called<std::tuple<>>(mode, fails, [](Tensor) { return std::tuple<>(); });
    }
}

TEST(Life, EverythingDroppedInFlight) {
  RecordProperty("covers", "LIFE-01");
  const Live live;
  std::atomic<bool> go = false;
  std::atomic<int> entered = 0;
  std::atomic<bool> released = false;
  const std::shared_ptr<float> memory(static_cast<float*>(std::aligned_alloc(64, 4 << 20)),
                                      std::free);
  std::fill_n(memory.get(), 1 << 20, 1.0f);
  {
    auto f = jit([&](Tensor x) {
      Tensor y = sum(sin(x) * cos(x));
      return call(
          {.effect = Effect::ordered}, type<float>(),
          [&, c = live.capture()](View<const float> in, float) {
            wait_until([&] { return go.load(); });
            EXPECT_FALSE(released);
            EXPECT_EQ(in[(1 << 20) - 1], 1);
            ++entered;
            return 0.0f;
          },
          x, y);
    });
    f.start(Tensor::borrow(type<float>({1 << 20}), memory.get(), [&] { released = true; }));
  }
  EXPECT_FALSE(released);
  go = true;
  barrier();
  EXPECT_EQ(entered, 1);
  EXPECT_TRUE(live.gone());
  EXPECT_TRUE(wait_until([&] { return released.load(); }));
}

TEST(Life, ALateFunctionKeepsWhatItNeeds) {
  RecordProperty("covers", "LIFE-01 TIME-02");
  const Live live;
  std::atomic<bool> go = false, returned = false;
  testing::internal::CaptureStderr();
  {
    auto f = holding(live, {.timeout = 20ms}, [&] {
      wait_until([&] { return go.load(); });
      returned = true;
    });
    EXPECT_TRUE(error_of<TimeoutError>([&] { f(Tensor(1.0f)).item<float>(); }));
  }
  EXPECT_GT(live.now(), 0) << "it still runs";
  go = true;
  EXPECT_TRUE(wait_until([&] { return returned.load(); }));
  EXPECT_TRUE(live.gone());
  std::this_thread::sleep_for(10ms);
  testing::internal::GetCapturedStderr();
}

TEST(Life, RegisteredFunctionsGoWithTheLastRun) {
  RecordProperty("covers", "LIFE-07");
  const Live live;
  std::atomic<bool> go = true, entered = false;
  auto f = jit([](Tensor x) { return call(x.type(), Named{"life_test.held"}, x); });
  register_function("life_test.held", [c = live.capture(), &go, &entered](float v) {
    entered = true;
    wait_until([&] { return go.load(); });
    return v + 1;
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
  go = entered = false;
  auto run = f.start(Tensor(2.0f));
  EXPECT_TRUE(wait_until([&] { return entered.load(); }));
  EXPECT_EQ(run.wait(30ms), RunStatus::running);
  EXPECT_TRUE(unregister_function("life_test.held"));
  EXPECT_GT(live.now(), 0);
  EXPECT_EQ(error_of<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); })->code(),
            ErrorCode::unregistered);
  go = true;
  EXPECT_EQ(run.result().item<float>(), 3) << "a run in flight finishes";
  barrier();
  EXPECT_TRUE(live.gone());
  register_function("life_test.held", [c = live.capture()](float v) { return v; });
  register_function("life_test.held", [](float v) { return v; }, {.replace = true});
  EXPECT_TRUE(live.gone());
  unregister_function("life_test.held");
}

TEST(Life, ARunDroppedGoesOn) {
  std::atomic<int> entered = 0;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          std::this_thread::sleep_for(5ms);
          ++entered;
          return v;
        },
        x);
  });
  for (int i = 0; i < 5; ++i) f.start(Tensor(1.0f));
  barrier();
  EXPECT_EQ(entered, 5);
}

TEST(Life, ThreadsDropWhatOthersUse) {
  for (int round = 0; round < 10; ++round) {
    auto f = std::make_unique<decltype(jit(std::function<Tensor(Tensor)>()))>(
        jit(std::function<Tensor(Tensor)>([](Tensor x) {
          return call(
              x.type(),
              [](View<const float> in, View<float> out) {
                std::copy(in.begin(), in.end(), out.begin());
              },
              x * 2.0f);
        })));
    Tensor x = ones(type<float>({50'000}));
    std::vector<Tensor> ys(8);
    std::vector<std::jthread> threads;
    for (Tensor& y : ys) threads.emplace_back([&y, g = *f, x] { y = g(x); });
    f.reset();
    x = Tensor();
    threads.clear();
    for (Tensor& y : ys) EXPECT_EQ(y.to_vector<float>()[49'999], 2);
  }
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

TEST(Life, LeavingMainWithRunsInFlight) {
  RecordProperty("covers", "LIFE-03");
  for (const char* how : {"return", "exit"}) {
    const auto ended = run_program("life_exit", {how});
    EXPECT_EQ(ended.code, 7) << how << ended.err;
    EXPECT_EQ(ended.out, "one\ntwo\nthree\n") << how;
    EXPECT_EQ(ended.err, "") << how;
  }
}

TEST(Life, LeavingMainWithAStuckFunction) {
  RecordProperty("covers", "LIFE-03");
  const auto ended = run_program("life_exit", {"stuck"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_LT(ended.seconds, 20);
  EXPECT_TRUE(has(ended.err, "still in flight after 300 ms")) << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
}

TEST(Life, ExitInsideAHostFunction) {
  RecordProperty("covers", "LIFE-03");
  std::vector<const char*> ways{"inside", "inside limited"};
  if (plugin_info().calls_back) ways.push_back("inside several");
  for (const char* how : ways) {
    const auto ended = run_program("life_exit", {how});
    EXPECT_EQ(ended.code, 7) << how << ended.err;
    EXPECT_EQ(ended.err, "") << how;
    EXPECT_LT(ended.seconds, 20) << how;
  }
}

TEST(Life, WhatIsInFlightBehindTheLimitIsLeftAlone) {
  RecordProperty("covers", "LIFE-03");
  const auto ended = run_program("life_exit", {"beside"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_EQ(ended.out, "said before");
  EXPECT_TRUE(has(ended.err, "1 runs still in flight after 300 ms")) << ended.err;
}

TEST(Life, LeavingMainWhileOthersCompile) {
  RecordProperty("covers", "LIFE-03");
  for (int milliseconds = 100; milliseconds < 1000; milliseconds += 90) {
    const auto ended = run_program("life_exit", {"compiling", std::to_string(milliseconds)});
    EXPECT_EQ(ended.code, 7) << ended.err;
    EXPECT_EQ(ended.err, "");
  }
}

TEST(Life, FailuresThatNobodySawArePrintedAtTheEnd) {
  RecordProperty("covers", "ERR-03");
  auto ended = run_program("life_exit", {"unseen"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_TRUE(has(ended.err, "lookup") && has(ended.err, "no such key") &&
              has(ended.err, "life_exit.cc:"))
      << ended.err;
  EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
  ended = run_program("life_exit", {"seen"});
  EXPECT_EQ(ended.code, 7);
  EXPECT_EQ(ended.err, "");
}

TEST(Life, StaticsOutliveMain) {
  RecordProperty("covers", "LIFE-01");
  const auto ended = run_program("life_exit", {"statics"});
  EXPECT_EQ(ended.code, 7) << ended.err;
  EXPECT_EQ(ended.err, "");
}

TEST(Life, LeavingMainWithAResultThatNobodyWantedUnderWay) {
  RecordProperty("covers", "LIFE-03");
  for (int i = 0; i < 10; ++i) {
    const auto ended = run_program("life_exit", {"busy"});
    EXPECT_EQ(ended.code, 7) << ended.err;
    EXPECT_EQ(ended.err, "");
  }
}

TEST(Life, AnExceptionThatLeavesMain) {
  const auto ended = run_program("life_exit", {"throw"});
  EXPECT_EQ(ended.code, 1000 + SIGABRT);
  EXPECT_TRUE(has(ended.err, "no such key")) << ended.err;
  EXPECT_LT(ended.seconds, 20);
}

TEST(Life, CallsAllocateNothing) {
  RecordProperty("covers", "CALL-14 CALL-21");
  if (test::skipped_in_stages("stages make tensors of what a call sees")) return;
  if (sanitized)
    GTEST_SKIP()
        << "the program has an operator new of its own, which the sanitizer replaces in part";
  const auto ended = run_program("life_allocations");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(Life, APayloadIsHeldOnce) {
  RecordProperty("covers", "CALL-14 CALL-15");
  if (test::skipped_in_stages("it looks at the one program")) return;
  if (sanitized) GTEST_SKIP() << "the sanitizer's own memory counts";
  const auto ended = run_program("life_memory");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(Life, ResultsTakeMemoryThatIsThere) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's own malloc";
#ifndef __GLIBC__
  GTEST_SKIP() << "glibc's malloc";
#endif
  constexpr long pages = 3 * 1024;  // of a step's results
  const auto ended = run_program("kept_memory", {}, {{"LD_PRELOAD", ""}});
  ASSERT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_LT(std::stol(ended.out), pages / 10);
  const std::map<std::string, std::string> asked{{"LD_PRELOAD", ""},
                                                 {"MALLOC_MMAP_THRESHOLD_", "131072"}};
  const auto given_back = run_program("kept_memory", {}, asked);
  ASSERT_EQ(given_back.code, 0) << given_back.out << given_back.err;
  EXPECT_GE(std::stol(given_back.out), pages) << "what the user asks of malloc stands";
}

TEST(Life, AClosureWithATimeLimitIsGoneWhenItsRunIs) {
  RecordProperty("covers", "LIFE-01");
  const auto ended = run_program("life_limited");
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

TEST(Life, RepeatedWorkLeaksNothing) {
  RecordProperty("covers", "LIFE-02");
  // What the address sanitizer keeps of freed memory would look like growth.
  const char* const options = std::getenv("ASAN_OPTIONS");
  const std::string keeps_little = std::string(options ? options : "") + ":quarantine_size_mb=1";
  const auto ended =
      run_program("life_soak", {sanitized ? "small" : "large"}, {{"ASAN_OPTIONS", keeps_little}});
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
}

}  // namespace
}  // namespace postern
