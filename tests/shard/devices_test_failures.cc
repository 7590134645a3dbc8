// shard_map and pmap: runs that fail on some device, are late or are cancelled.
#include "devices_test.h"

#include <random>

namespace postern::test {
namespace {

using DevicesShardMap = EightDevices;

TEST_F(DevicesShardMap, AFailureOnOneDeviceEndsAll) {
  RecordProperty("covers", "DEV-11");
  for (const int n : {2, 4, 8}) {
    const Mesh mesh({{"d", n}});
    std::set<int> bad;
    const auto f = jit(shard_map(
        [&](Tensor v) {
          v = call(
              {.name = "part"}, v.type(),
              [&](const CallInfo& info, View<const float> in, View<float> out) {
                if (bad.count(info.device)) throw std::runtime_error("no luck");
                out[0] = in[0];
              },
              v);
          return psum(all_gather(v, "d", 0, true), "d");
        },
        mesh, {.in = {rows}, .out = {none}}));
    for (int round = 0; round < 10; ++round) {
      bad = {n - 1};
      const auto e = error_of<CallbackError>([&, n = n] { f(iota<float>(n)).block_until_ready(); });
      ASSERT_TRUE(e);
      EXPECT_EQ(e->device(), n - 1);
      EXPECT_TRUE(has(e->what(), "no luck") && has(e->what(), fmt::format("device {}", n - 1)))
          << e->what();
      bad.clear();
      EXPECT_EQ(f(iota<float>(n)).to_vector<float>().back(), static_cast<float>(n * (n - 1)));
    }
    bad = {0, 1};
    const auto e = error_of<CallbackError>([&, n = n] { f(iota<float>(n)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->device(), 0);
    EXPECT_EQ(e->count(), 2u);
  }
}

TEST_F(DevicesShardMap, TwoThatFailAtOnceAreOneError) {
  RecordProperty("covers", "DEV-11");
  std::atomic<int> arrived{0};
  const auto f = jit(shard_map(
      [&](Tensor v) {
        v = call(
            {.name = "part"}, v.type(),
            [&](const CallInfo& info, View<const float>, View<float>) {
              if (info.device < 1) return;
              ++arrived;
              wait_until([&] { return arrived >= 2; });
              throw std::runtime_error(fmt::format("bad {}", info.device));
            },
            v);
        return psum(v, "d");
      },
      Mesh({{"d", 3}}), {.in = {rows}, .out = {none}}));
  const auto e = error_of<CallbackError>([&] { f(iota<float>(3)).block_until_ready(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->device(), 1) << "the lowest";
  EXPECT_EQ(e->count(), 2u);
  ASSERT_EQ(e->others().size(), 1u);
  EXPECT_TRUE(has(e->others()[0], "bad 2")) << e->others()[0];
}

/// All of an error that a caller can see.
std::string told(const CallbackError& e) {
  return fmt::format("{} | {} | {} | {}", e.what(), e.device(), e.count(),
                     fmt::join(e.others(), " | "));
}

TEST_F(DevicesShardMap, TheSameFailureReadsTheSameEachTime) {
  RecordProperty("covers", "DEV-11");
  constexpr int steps = 5;
  for (const int n : {2, 4, 8}) {
    SCOPED_TRACE(n);
    std::atomic<int> bad_step{0}, odd{0};
    // In a loop without collectives the devices are at different steps.
    const auto part = [&](std::chrono::milliseconds limit, bool meet) {
      return jit(shard_map(
          [&, n, limit, meet](Tensor v) {
            return fori_loop(
                0, steps,
                [&](Tensor i, Tensor c) {
                  c = call(
                      {.name = "step", .effect = Effect::ordered, .timeout = limit}, c.type(),
                      [&](const CallInfo& info, View<const float> in, int here) -> Floats {
                        if (here >= bad_step && info.device % 2 >= odd)
                          throw std::runtime_error(fmt::format("step {}", here));
                        return {in[0] + 1};
                      },
                      c, i);
                  return meet ? psum(c, "d") / static_cast<float>(n) : c;
                },
                v);
          },
          Mesh({{"d", n}}), {.in = {rows}, .out = {rows}}));
    };
    const auto alone = part(0ms, false), meeting = part(0ms, true), limited = part(10s, false);
    for (const auto& f : {alone, meeting, limited}) {
      std::set<std::string> texts;
      for (int i = 0; i < 100; ++i) {
        bad_step = i % 2 ? 3 : 0;
        odd = i % 4 < 2;
        const auto e =
            error_of<CallbackError>([&, n = n] { f(iota<float>(n)).block_until_ready(); });
        ASSERT_TRUE(e);
        EXPECT_EQ(e->count(), static_cast<std::size_t>(odd ? n / 2 : n)) << told(*e);
        EXPECT_EQ(e->device(), odd ? 1 : 0) << told(*e);
        texts.insert(told(*e));
      }
      EXPECT_EQ(texts.size(), 4u) << fmt::format("{}", fmt::join(texts, "\n"));
    }
  }
}

TEST_F(DevicesShardMap, AFailureWaitsForNoDeviceThatTakesAnotherWay) {
  RecordProperty("covers", "DEV-11");
  const auto f = jit(shard_map(
      [&](Tensor v) {
        return psum(
            cond(
                axis_index("d") == 1,
                [](Tensor x) {
                  return call(
                      {.name = "alone"}, x.type(),
                      [](View<const float>, View<float>) { throw std::runtime_error("no"); }, x);
                },
                [](Tensor x) { return x; }, v),
            "d");
      },
      Mesh({{"d", 4}}), {.in = {rows}, .out = {none}}));
  const auto start = std::chrono::steady_clock::now();
  const auto e = error_of<CallbackError>([&] { f(iota<float>(4)).block_until_ready(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->device(), 1);
  EXPECT_EQ(e->count(), 1u);
  EXPECT_LT(seconds_since(start), 20);
}

TEST_F(DevicesShardMap, LoopsThatWaitForTheHostEnd) {
  for (const bool meets : {false, true}) {
    int steps = 0;
    const auto f = jit(shard_map(
        [&](Tensor v) {
          return while_loop([&](Tensor c) { return sum(meets ? pmax(c, "d") : c) < 100.0f; },
                            [&](Tensor c) {
                              Tensor next = call(
                                  {.name = "step"}, c.type(),
                                  [&](const CallInfo& info, View<const float> in, View<float> out) {
                                    if (info.device == 1 && ++steps == 5)
                                      throw std::runtime_error("stuck");
                                    out[0] = in[0] + 0.001f;  // too slow to end by itself
                                  },
                                  c);
                              return meets ? pmax(next, "d") : next;
                            },
                            v);
        },
        Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}}));
    const auto e = error_of<CallbackError>([&] { f(iota<float>(4)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->device(), 1);
    EXPECT_TRUE(has(e->what(), "stuck"));
  }
}

TEST_F(DevicesShardMap, LongLoopsAreLeftWhenADeviceFails) {
  for (const auto& [meets, effect] : {std::pair{false, Effect::pure},
                                      {true, Effect::pure},
                                      {false, Effect::unordered},
                                      {true, Effect::ordered}}) {
    std::atomic<std::int64_t> calls{0};
    const auto f = jit(shard_map(
        [&, meets = meets, effect = effect](Tensor v) {
          return fori_loop(
              0, std::int64_t{1} << 40,
              [&](Tensor, Tensor c) {
                c = call(
                    {.name = "step", .effect = effect}, c.type(),
                    [&](const CallInfo& info, View<const float> in, View<float> out) {
                      if (++calls > 100 && info.device == 2) throw std::runtime_error("enough");
                      out[0] = in[0] + 1;
                    },
                    c);
                return meets ? pmax(c, "d") : c;
              },
              v);
        },
        Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}}));
    const auto e = error_of<CallbackError>([&] { f(iota<float>(4)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->device(), 2);
  }
}

/// Programs whose way depends on what a function of the process answers. Each device asks; device 1
/// fails where it is told to.
class DevicesWays : public EightDevices {
 protected:
  std::atomic<int> bad_at{-1};
  std::array<std::atomic<int>, 4> asked{};
  const Mesh mesh{{{"d", 4}}};

  /// What the function gives, float of the operand's type, unless it is device 1 and time to fail;
  /// there it waits until others are ahead.
  Tensor ask(Tensor v, float add) {
    return call(
        {.name = "ask", .effect = Effect::unordered}, v.type(),
        [this, add](const CallInfo& info, View<const float> in, View<float> out) {
          if (asked[static_cast<std::size_t>(info.device)]++ == bad_at && info.device == 1) {
            std::this_thread::sleep_for(20ms);
            throw std::runtime_error("no answer");
          }
          out[0] = in[0] + add;
        },
        v);
  }

  template <class F>
  void fails_and_goes_well(F part, const Floats& want) {
    const auto f = jit(shard_map(part, mesh, {.in = {rows}, .out = {rows}}));
    const Tensor x = full(type<float>({4}), 1.0f);
    for (const int at : {-1, 0, -1}) {
      for (auto& a : asked) a = 0;
      bad_at = at;
      if (at < 0) {
        EXPECT_EQ(f(x).template to_vector<float>(), want);
        continue;
      }
      const auto start = std::chrono::steady_clock::now();
      const auto e = error_of<CallbackError>([&] { f(x).block_until_ready(); });
      EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
      ASSERT_TRUE(e);
      EXPECT_EQ(e->device(), 1);
      EXPECT_TRUE(has(e->what(), "no answer")) << e->what();
    }
    barrier();
  }
};

TEST_F(DevicesWays, ALoopsConditionFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        return while_loop([&](Tensor c) { return pmin(sum(ask(c, 0)), "d") < 100.0f; },
                          [](Tensor c) { return psum(c, "d"); }, v);
      },
      Floats(4, 256));
}

TEST_F(DevicesWays, AStepsSecondCallFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        return while_loop([&](Tensor c) { return pmin(sum(c), "d") < 100.0f; },
                          [&](Tensor c) {
                            c = call(
                                c.type(),
                                [](View<const float> in, View<float> out) { out[0] = in[0]; },
                                psum(c, "d"));
                            return ask(c, 1);
                          },
                          v);
      },
      Floats(4, 341));
}

TEST_F(DevicesWays, ABranchesIndexFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        return cond(
            pmin(sum(ask(v, 0)), "d") > 0.5f, [](Tensor c) { return psum(c, "d"); },
            [](Tensor c) { return c; }, v);
      },
      Floats(4, 4));
}

TEST_F(DevicesWays, ALoopsBoundFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        const Tensor steps = pmax(convert(sum(ask(v, 2)), DType::s32), "d");
        return fori_loop(
            0, steps, [](Tensor, Tensor c) { return psum(c, "d"); }, v);
      },
      Floats(4, 64));
}

TEST_F(DevicesWays, ZerosKeepALoopThatCallsNobody) {
  auto part = [&](Tensor v) {
    return while_loop([](Tensor c) { return sum(c) < 100.0f; }, [](Tensor c) { return c * 2.0f; },
                      ask(v, 0));
  };
  fails_and_goes_well(part, Floats(4, 128));
  // The same in a program that XLA cuts, where the function sees the whole once.
  bool fails = false;
  const auto f = jit([&](Tensor v) {
    v = call(
        v.type(),
        [&](View<const float> in, View<float> out) {
          if (fails) throw std::runtime_error("no answer");
          std::ranges::copy(in, out.begin());
        },
        v);
    return while_loop([](Tensor c) { return max(c) < 100.0f; }, [](Tensor c) { return c * 2.0f; },
                      v);
  });
  const Tensor x = device_put(full(type<float>({8}), 1.0f), Sharding(mesh, rows));
  for (const bool now : {false, true, false}) {
    fails = now;
    if (now)
      expect_error<CallbackError>([&] { f(x).block_until_ready(); }, {"no answer"});
    else
      EXPECT_EQ(f(x).to_vector<float>(), Floats(8, 128));
  }
}

TEST_F(DevicesShardMap, LimitsNonsenseAndCancelling) {
  const Mesh mesh({{"d", 4}});
  std::atomic<bool> go{false};
  auto with = [&](auto fn, std::chrono::nanoseconds timeout) {
    return jit(shard_map(
        [&, fn, timeout](Tensor v) {
          return psum(call({.name = "part", .timeout = timeout}, v.type(), fn, v), "d");
        },
        mesh, {.in = {rows}, .out = {none}}));
  };
  const auto late = error_of<TimeoutError>([&] {
    with(
        [&](const CallInfo& info, View<const float>, View<float>) {
          if (info.device == 2) wait_until([&] { return go.load(); });
        },
        50ms)(iota<float>(4))
        .block_until_ready();
  });
  ASSERT_TRUE(late);
  EXPECT_EQ(late->device(), 2);
  go = true;
  const auto wrong = error_of<CallbackError>([&] {
    with(
        [](const CallInfo& info, View<const float>) {
          return info.device == 3 ? Floats{1, 2} : Floats{1};
        },
        0ns)(iota<float>(4))
        .block_until_ready();
  });
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->code(), ErrorCode::bad_result);
  EXPECT_EQ(wrong->device(), 3);
  std::atomic<int> inside{0};
  const auto f = with(
      [&](const CallInfo& info, View<const float>, View<float>) {
        ++inside;
        wait_until([&] { return info.stop.stop_requested(); });
      },
      0ns);
  auto run = f.start(iota<float>(4));
  ASSERT_TRUE(wait_until([&] { return inside > 0; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.result(); }, {"cancelled"}, ErrorCode::cancelled);
  barrier();
}

TEST_F(DevicesShardMap, AThousandRunsWithFailures) {
  RecordProperty("covers", "DEV-11");
  enum Kind { exception, number, shape, together, late };
  constexpr int steps = 6;
  std::array<std::atomic<int>, 8> step{};
  std::atomic<int> bad_device{-1}, bad_step{-1}, kind{0};
  const auto part = [&](int n, std::chrono::milliseconds limit) {
    return jit(shard_map(
        [&, n, limit](Tensor v) {
          return fori_loop(
              0, steps,
              [&](Tensor, Tensor c) {
                c = call(
                    {.name = "step", .effect = Effect::ordered, .timeout = limit}, c.type(),
                    [&](const CallInfo& info, View<const float> in) -> Floats {
                      const int here = step[static_cast<std::size_t>(info.device)]++;
                      const bool bad =
                          info.device == bad_device ||
                          (kind == together && bad_device >= 0 && info.device == bad_device + 1);
                      if (!bad || here != bad_step) return {in[0] + 1};
                      if (kind == number) throw 7;
                      if (kind == shape) return {1, 2, 3};
                      if (kind == late) wait_until([&] { return info.stop.stop_requested(); });
                      throw std::runtime_error("bad step");
                    },
                    c);
                return psum(c, "d") / static_cast<float>(n);
              },
              v);
        },
        Mesh({{"d", n}}), {.in = {rows}, .out = {none}}));
  };
  std::mt19937 random(3);
  for (const auto& [n, runs] : {std::pair{4, 1000}, {2, 200}, {8, 200}}) {
    SCOPED_TRACE(n);
    const auto f = part(n, 0ms), limited = part(n, 500ms);
    for (int i = 0; i < runs; ++i) {
      for (auto& s : step) s = 0;
      const bool fails = random() % 4 != 0;
      kind = i % 50 == 0 ? late : static_cast<int>(random() % late);
      const int first =
          static_cast<int>(random() % static_cast<unsigned>(kind == together ? n - 1 : n));
      bad_device = fails ? first : -1;
      bad_step = static_cast<int>(random() % steps);
      if (!fails) {
        ASSERT_EQ(f(iota<float>(n)).item<float>(), static_cast<float>(n - 1) / 2 + steps);
        continue;
      }
      if (kind == late) {
        const auto e =
            error_of<TimeoutError>([&, n = n] { limited(iota<float>(n)).block_until_ready(); });
        ASSERT_TRUE(e && e->device() == first) << "run " << i;
        continue;
      }
      const auto e = error_of<CallbackError>([&, n = n] { f(iota<float>(n)).block_until_ready(); });
      ASSERT_TRUE(e) << "run " << i;
      ASSERT_EQ(e->device(), first) << e->what();
      ASSERT_EQ(e->code(), kind == shape ? ErrorCode::bad_result : ErrorCode::threw);
      ASSERT_EQ(e->count(), e->others().size() + 1);
      ASSERT_EQ(e->count(), kind == together ? 2u : 1u) << e->what();
    }
  }
}

}  // namespace
}  // namespace postern::test
