// Whatever one process does, the others' runs end with an error that says so, and the next run
// works.
#include <spawn.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>

#include "cluster/first.h"
#include "cluster_test.h"
#include "core/text.h"

extern char** environ;

namespace postern::test {
using namespace internal;
namespace {

using Clock = std::chrono::steady_clock;

/// Of each fault; POSTERN_FAULTS says how often, and has the times to the errors printed.
int times() {
  static const char* const text = std::getenv("POSTERN_FAULTS");
  return text ? std::atoi(text) : 5;
}

/// The greatest number that a process has.
double greatest(double mine) {
  static const auto f = jit(shard_map([](Tensor v) { return pmax(v, "host"); }, hosts()));
  return f(Tensor(mine)).item<double>();
}

/// What a healthy run gives.
void expect_works() {
  const Tensor y = jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts()))(Tensor(1.0f));
  EXPECT_EQ(y.item<float>(), static_cast<float>(size()));
}

/// When the process did what makes all runs fail, on the clock of the machine.
std::atomic<double> happened{0};
double now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }
void happens() { happened = now(); }

class Faults : public testing::Test {
 protected:
  void SetUp() override {
    if (size() < 2) GTEST_SKIP() << "needs several processes";
    expect_works();
  }
  void TearDown() override {
    if (size() < 2) return;
    expect_works();
    if (rank() != 0 || !std::getenv("POSTERN_FAULTS") || count_ == 0) return;
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    std::printf("%s: %d times, %.1f ms at most to the error, %.1f on average\n", test->name(),
                count_, longest_ * 1e3, sum_ / count_ * 1e3);
  }
  /// `f` fails on every process, and the others say that it was `culprit`. Where the culprit says
  /// when it happened the last one knows of it within a moment.
  void expect_all_fail(const std::function<void()>& f, int culprit, const std::string& says) {
    happened = 0;
    const std::string text = failure_of(f);
    const double end = now();
    EXPECT_NE(text.find(says), std::string::npos) << "process " << rank() << ": " << text;
    if (rank() != culprit && culprit >= 0) {
      EXPECT_NE(text.find(fmt::format("process {}", culprit)), std::string::npos) << text;
    }
    const double begin = greatest(happened), last = greatest(end);
    if (begin == 0) return;
    ++count_;
    sum_ += last - begin;
    longest_ = std::max(longest_, last - begin);
    EXPECT_LT(last - begin, 20);  // 0.1 on a machine that has nothing else to do
  }

 private:
  int count_ = 0;
  double sum_ = 0, longest_ = 0;
};

/// A call that throws on the last process.
Tensor may_throw(const Tensor& v, int only_on) {
  return call(
      {.name = "may_throw", .effect = Effect::ordered}, v.type(),
      [only_on](const CallInfo& info, float x) {
        if (info.process != only_on) return x;
        happens();
        throw std::runtime_error("out of milk");
      },
      v);
}

TEST_F(Faults, AThrowBeforeACollective) {
  const int culprit = size() - 1;
  const auto f =
      jit(shard_map([&](Tensor v) { return psum(may_throw(v, culprit), "host"); }, hosts()));
  for (int i = 0; i < times(); ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, culprit, "out of milk");
}

/// The others get as much of a long text as a notice holds, in whole characters.
TEST_F(Faults, AThrowWithALongText) {
  for (const std::string begin : {"", "x"}) {
    std::string long_text = begin;
    for (int i = 0; i < 3000; ++i) long_text += "\u00e4";
    const auto f = jit(shard_map(
        [&](Tensor v) {
          const auto throws = [=](const CallInfo& info, float x) {
            if (info.process == 0) throw std::runtime_error(long_text);
            return x;
          };
          return psum(call({.name = "throws", .effect = Effect::ordered}, v.type(), throws, v),
                      "host");
        },
        hosts()));
    const std::string text = failure_of([&] { f(Tensor(1.0f)).item<float>(); });
    EXPECT_GT(text.size(), 1500u);
    EXPECT_TRUE(is_utf8(text)) << text;
  }
}

TEST_F(Faults, AThrowAfterACollective) {
  const auto f = jit(shard_map([&](Tensor v) { return may_throw(psum(v, "host"), 0); }, hosts()));
  for (int i = 0; i < times(); ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, 0, "out of milk");
}

/// Also where the host drives the run, and nothing that XLA does comes behind the call.
TEST_F(Faults, AThrowBehindTheLastCollective) {
  const auto total = shard_map([](Tensor v) { return psum(v, "host"); }, hosts());
  for (const Mode mode : {Mode::compiled, Mode::staged, Mode::evaluate}) {
    const auto f = jit([&](Tensor v) { return may_throw(total(v), 0); }, {.mode = mode});
    for (int i = 0; i < times(); ++i)
      expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, 0, "out of milk");
  }
}

TEST_F(Faults, AThrowBetweenCollectivesInALoop) {
  const auto f = jit(shard_map(
      [&](Tensor v) {
        return fori_loop(
            0, 100,
            [&](Tensor i, Tensor c) {
              const Tensor seen = call(
                  {.name = "third", .effect = Effect::ordered}, c.type(),
                  [](const CallInfo& info, std::int32_t k, float x) {
                    if (info.process != 0 || k != 3) return x;
                    happens();
                    throw std::runtime_error("step three");
                  },
                  convert(i, DType::s32), c);
              return psum(seen, "host") * 0.5f;
            },
            v);
      },
      hosts()));
  for (int i = 0; i < times(); ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, 0, "step three");
}

/// A function that only ends when it is told to.
Tensor until_stopped(const Tensor& v, int not_on) {
  return call(
      {.name = "patient", .effect = Effect::ordered}, v.type(),
      [not_on](const CallInfo& info, float x) {
        for (int k = 0; k < 10'000 && info.process != not_on; ++k) {
          if (info.stop.stop_requested()) break;
          std::this_thread::sleep_for(1ms);
        }
        return x;
      },
      v);
}

TEST_F(Faults, AThrowWhileOthersAreInFunctions) {
  const auto f = jit(shard_map(
      [&](Tensor v) { return psum(until_stopped(may_throw(v, 0), 0), "host"); }, hosts()));
  for (int i = 0; i < times(); ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, 0, "out of milk");
}

/// Who waits for a run goes on at once; the run ends when XLA has computed.
TEST_F(Faults, AThrowWhileOthersCompute) {
  const auto long_one = [](Tensor v) {
    return while_loop([](Tensor c) { return less(c[0], 2e6f); }, [](Tensor c) { return c + 1.0f; },
                      v);
  };
  const auto f = jit(shard_map(
      [&](Tensor v) {
        const Tensor other = broadcast_to(may_throw(v, 0), {1});
        return psum(rank() == 0 ? other : long_one(other), "host");
      },
      hosts()));
  for (int i = 0; i < std::min(times(), 10); ++i)
    expect_all_fail(
        [&] {
          auto run = f.start(Tensor(1.0f));
          run.wait();
        },
        0, "out of milk");
  barrier();
}

/// One device of the culprit is in a collective when the other one's function throws.
TEST_F(Faults, AThrowBesideACollective) {
  if (devices().size() < 2) GTEST_SKIP() << "needs two devices";
  const auto f = jit(shard_map(
      [](Tensor v) {
        const Tensor seen = call(
            {.name = "second", .effect = Effect::ordered}, v.type(),
            [](const CallInfo& info, View<const float> x, View<float> y) {
              y[0] = x[0];
              if (info.process != 1 || info.device != 1) return;
              std::this_thread::sleep_for(2ms);
              happens();
              throw std::runtime_error("the second device");
            },
            v);
        return psum(seen, "host");
      },
      Mesh({{"host", processes}, {"x", 2}}), {.in = {P("x")}, .out = {P("x")}}));
  const Tensor x = counting({2});
  for (int i = 0; i < times(); ++i)
    expect_all_fail([&] { f(x).block_until_ready(); }, 1, "the second device");
}

/// Programs that are not the same: other shapes, another order, a loop that one leaves early.
/// Keeps the text of what `act` throws.
void failure_to(std::string& text, const std::function<void()>& act) {
  happens();
  try {
    act();
  } catch (const CallbackError& e) {
    text = e.what();
    throw;
  }
}

TEST_F(Faults, DifferentShapes) {
  const auto f = jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts()));
  for (int i = 0; i < times(); ++i) {
    const Tensor x = counting({rank() == 0 ? 2 : 3});
    std::string text;
    expect_all_fail([&] { failure_to(text, [&] { f(x).block_until_ready(); }); }, -1, "f32[2]");
    EXPECT_NE(text.find("f32[3]"), std::string::npos) << text;
  }
}

TEST_F(Faults, AnotherOrder) {
  const auto one = [](Tensor v) { return psum(v, "host"); };
  const auto other = [](Tensor v) { return pmax(v, "host"); };
  const auto f = jit(
      shard_map([&](Tensor v) { return rank() == 0 ? other(one(v)) : one(other(v)); }, hosts()));
  for (int i = 0; i < times(); ++i) {
    std::string text;
    expect_all_fail([&] { failure_to(text, [&] { f(Tensor(1.0f)).item<float>(); }); }, -1,
                    "'psum' at ");
    EXPECT_NE(text.find("'pmax' at "), std::string::npos) << text;
    try {
      f(Tensor(1.0f)).item<float>();
      ADD_FAILURE() << "it went well";
    } catch (const Error& e) {
      const bool told = e.code() == ErrorCode::aborted;  // by the process that saw it first
      EXPECT_TRUE(told || e.code() == ErrorCode::failed_precondition) << to_string(e.code());
    }
    EXPECT_NE(text.find("faults_test.cc:"), std::string::npos) << text;
  }
}

TEST_F(Faults, ALoopThatOneLeavesEarly) {
  const auto f = jit(shard_map(
      [&](Tensor v) {
        const Tensor steps = axis_index("host") + 3;
        return std::get<1>(while_loop([&](Tensor k, Tensor) { return less(k, steps); },
                                      [](Tensor k, Tensor c) {
                                        return std::tuple{k + 1, psum(c, "host") * 0.5f};
                                      },
                                      std::tuple{Tensor(std::int32_t{0}), v}));
      },
      hosts()));
  for (int i = 0; i < times(); ++i) {
    std::string text;
    expect_all_fail([&] { failure_to(text, [&] { f(Tensor(1.0f)).item<float>(); }); }, -1,
                    "the end of the run");
    EXPECT_NE(text.find("'psum'"), std::string::npos) << text;
  }
}

TEST_F(Faults, Cancelled) {
  const auto f = jit(shard_map(
      [](Tensor v) {
        return while_loop([](Tensor c) { return greater(c, 0.0f); },
                          [](Tensor c) { return psum(c, "host") / static_cast<float>(size()); }, v);
      },
      hosts()));
  for (int i = 0; i < times(); ++i) {
    expect_all_fail(
        [&] {
          auto run = f.start(Tensor(1.0f));
          if (rank() == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
            happens();
            run.cancel();
          }
          run.wait();
        },
        0, "cancelled");
  }
}

/// Values of the process, each behind a call that on process 0 waits until its run stops.
Tensor late_on_first(const Tensor& v) {
  return call(
      {.name = "late", .effect = Effect::ordered}, v.type(),
      [](const CallInfo& info, float x) {
        for (int k = 0; k < 10'000 && info.process == 0; ++k) {
          if (info.stop.stop_requested()) break;
          std::this_thread::sleep_for(1ms);
        }
        return x;
      },
      v);
}

/// One process cancels runs that the others have not called yet, and is some runs ahead of them.
/// Its call waits: no run is over before it is cancelled, however late that is.
TEST_F(Faults, CancelledBeforeOthersCall) {
  const auto f = jit(shard_map([](Tensor v) { return psum(late_on_first(v), "host"); }, hosts()));
  for (int i = 0; i < times(); ++i) {
    for (int k = 0; k < 6; ++k) {
      if (rank() != 0) std::this_thread::sleep_for(20ms);
      auto run = f.start(Tensor(1.0f));
      if (rank() == 0) run.cancel();
      const std::string text = failure_of([&] { run.wait(); });
      EXPECT_NE(text.find("cancelled"), std::string::npos) << text;
      if (rank() != 0) {
        EXPECT_NE(text.find("process 0"), std::string::npos) << text;
      }
    }
    expect_works();
  }
}

/// Others fail more runs than they keep notices of, while process 0 rests and does not listen.
TEST_F(Faults, MoreRunsThanNotices) {
  constexpr std::uint64_t of_test = 977;
  constexpr int runs = 150;
  const auto f = jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts()));
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), static_cast<float>(size()));
  const auto all_others_are_through = [] {
    const auto counts = clusters::counts_of(of_test);
    return std::all_of(counts.begin() + 1, counts.end(), [](auto done) { return done == runs; });
  };
  const auto limit = Clock::now() + 60s;
  if (rank() != 0) std::this_thread::sleep_for(3s);  // until nobody listens there
  while (rank() == 0 && !all_others_are_through() && Clock::now() < limit)
    std::this_thread::sleep_for(10ms);
  for (int i = 0; i < runs; ++i) {
    auto run = f.start_with({.deadline = 60s}, Tensor(1.0f));
    if (rank() != 0) run.cancel();
    const std::string text = failure_of([&] { run.wait(); });
    const bool says_why = text.find("cancelled") != std::string::npos ||
                          text.find("had failed on process") != std::string::npos;
    EXPECT_TRUE(says_why) << "run " << i << " of process " << rank() << ": " << text;
  }
  clusters::say_count(of_test, runs);
}

/// The error names who is waited for; of several that are late, one.
TEST_F(Faults, Deadlines) {
  const auto f = jit(shard_map([](Tensor v) { return psum(late_on_first(v), "host"); }, hosts()));
  for (int i = 0; i < times(); ++i)
    expect_all_fail(
        [&] {
          auto run = f.start_with({.deadline = rank() == 1 ? 2s : 60s}, Tensor(1.0f));
          if (rank() == 1) happened = now() + 2;
          run.wait();
        },
        1, fmt::format("deadline passed while it waited for process {}", size() == 2 ? "0" : ""));
}

/// Data of many megabytes is under way when one process gives up.
TEST_F(Faults, CancelledAmongLongArrays) {
  const Tensor x = zeros(type<float>({1 << 22}));
  const auto f = jit(shard_map(
      [](Tensor v) {
        return while_loop([](Tensor c) { return equal(c[0], 0.0f); },
                          [](Tensor c) { return psum(c, "host"); }, v);
      },
      hosts()));
  for (int i = 0; i < 10; ++i) {
    auto run = f.start(x);
    if (rank() == size() - 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5 + 7 * i));
      run.cancel();
    }
    EXPECT_NE(failure_of([&] { run.wait(); }), "");
    expect_works();
  }
}

/// The last process is stopped for two seconds, one of them in short tests.
Tensor may_stop(const Tensor& v) {
  return call(
      {.name = "stops", .effect = Effect::ordered}, v.type(),
      [](const CallInfo& info, float x) {
        if (info.process != size() - 1) return x;
        std::string wake = fmt::format("sleep {}; kill -CONT {}",
                                       std::getenv("POSTERN_FAULTS") ? 2 : 1, ::getpid());
        std::string shell = "/bin/sh", flag = "-c";
        char* arguments[] = {shell.data(), flag.data(), wake.data(), nullptr};
        pid_t child = 0;
        if (posix_spawn(&child, "/bin/sh", nullptr, nullptr, arguments, environ) != 0)
          throw std::runtime_error("no shell");
        ::kill(::getpid(), SIGSTOP);
        return x;
      },
      v);
}

/// A process that is stopped for a while, and goes on.
TEST_F(Faults, StoppedForAWhile) {
  const auto f = jit(shard_map(
      [](Tensor v) {
        return fori_loop(
            0, 20, [](Tensor, Tensor c) { return psum(c, "host") / static_cast<float>(size()); },
            may_stop(v));
      },
      hosts()));
  const int count = std::getenv("POSTERN_FAULTS") ? times() : 1;
  for (int i = 0; i < count; ++i) EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 1.0f);
}

}  // namespace
}  // namespace postern::test
