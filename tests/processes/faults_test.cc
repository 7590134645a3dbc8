// Whatever one process does, the others' runs end with an error that says so, and the next run
// works.
#include <atomic>

#include "processes_test.h"

namespace postern::test {
namespace {

constexpr int times = 20;

/// What a healthy run gives.
void expect_works() {
  const Tensor y = jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts()))(Tensor(1.0f));
  EXPECT_EQ(y.item<float>(), static_cast<float>(size()));
}

class Faults : public testing::Test {
 protected:
  void SetUp() override {
    if (size() < 2) GTEST_SKIP() << "needs several processes";
    expect_works();
  }
  void TearDown() override {
    if (size() >= 2) expect_works();
  }
  /// `f` fails on every process, in time, and the others say that it was `culprit`.
  void expect_all_fail(const std::function<void()>& f, int culprit, const std::string& says) {
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = failure_of(f);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
    EXPECT_NE(text.find(says), std::string::npos) << "process " << rank() << ": " << text;
    if (rank() != culprit) {
      EXPECT_NE(text.find(fmt::format("process {}", culprit)), std::string::npos) << text;
    }
  }
};

/// A call that throws on the last process.
Tensor may_throw(const Tensor& v, int only_on) {
  return call(
      {.name = "may_throw", .effect = Effect::ordered}, v.type(),
      [only_on](const CallInfo& info, float x) {
        if (info.process == only_on) throw std::runtime_error("out of milk");
        return x;
      },
      v);
}

TEST_F(Faults, AThrowBeforeACollective) {
  const int culprit = size() - 1;
  const auto f =
      jit(shard_map([&](Tensor v) { return psum(may_throw(v, culprit), "host"); }, hosts()));
  for (int i = 0; i < times; ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, culprit, "out of milk");
}

TEST_F(Faults, AThrowAfterACollective) {
  const auto f = jit(shard_map([&](Tensor v) { return may_throw(psum(v, "host"), 0); }, hosts()));
  for (int i = 0; i < times; ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, 0, "out of milk");
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
                    if (info.process == 0 && k == 3) throw std::runtime_error("step three");
                    return x;
                  },
                  convert(i, DType::s32), c);
              return psum(seen, "host") * 0.5f;
            },
            v);
      },
      hosts()));
  for (int i = 0; i < times; ++i)
    expect_all_fail([&] { f(Tensor(1.0f)).item<float>(); }, 0, "step three");
}

/// Programs that are not the same: other shapes, another order, a loop that one leaves early.
TEST_F(Faults, DifferentShapes) {
  const auto f = jit(shard_map([](Tensor v) { return psum(v, "host"); }, hosts()));
  for (int i = 0; i < times; ++i) {
    const Tensor x = counting({rank() == 0 ? 2 : 3});
    const std::string text = failure_of([&] { f(x).block_until_ready(); });
    EXPECT_NE(text.find("f32[2]"), std::string::npos) << text;
    EXPECT_NE(text.find("f32[3]"), std::string::npos) << text;
  }
}

TEST_F(Faults, AnotherOrder) {
  const auto one = [](Tensor v) { return psum(v, "host"); };
  const auto other = [](Tensor v) { return pmax(v, "host"); };
  const auto f = jit(
      shard_map([&](Tensor v) { return rank() == 0 ? other(one(v)) : one(other(v)); }, hosts()));
  for (int i = 0; i < times; ++i) {
    const std::string text = failure_of([&] { f(Tensor(1.0f)).item<float>(); });
    EXPECT_NE(text.find("'psum' at "), std::string::npos) << text;
    EXPECT_NE(text.find("'pmax' at "), std::string::npos) << text;
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
  for (int i = 0; i < times; ++i) {
    const std::string text = failure_of([&] { f(Tensor(1.0f)).item<float>(); });
    EXPECT_NE(text.find("'end'"), std::string::npos) << text;
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
  for (int i = 0; i < times; ++i) {
    auto run = f.start(Tensor(1.0f));
    if (rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(i % 5));
      run.cancel();
    }
    const std::string text = failure_of([&] { run.wait(); });
    EXPECT_NE(text.find("cancelled"), std::string::npos) << text;
  }
}

TEST_F(Faults, Deadlines) {
  const auto f = jit(shard_map(
      [](Tensor v) {
        const Tensor late = call(
            {.name = "late", .effect = Effect::ordered}, v.type(),
            [](const CallInfo& info, float x) {
              for (int k = 0; k < 300 && info.process == 0; ++k) {
                if (info.stop.stop_requested()) break;
                std::this_thread::sleep_for(10ms);
              }
              return x;
            },
            v);
        return psum(late, "host");
      },
      hosts()));
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    auto run = f.start_with({.deadline = rank() == 1 ? 100ms : 60s}, Tensor(1.0f));
    const std::string text = failure_of([&] { run.wait(); });
    EXPECT_NE(text.find("deadline passed"), std::string::npos) << text;
    if (rank() != 0) {  // which is in its function
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 2500ms);
    }
  }
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

}  // namespace
}  // namespace postern::test
