// Asynchronous taps: the queue, its limit, losses, failures, and the end of the process.
#include <atomic>
#include <mutex>
#include <numeric>

#include "host/enter.h"
#include "host/queue.h"
#include "resident.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using namespace std::chrono_literals;
using test::error_of, test::expect_error, test::has, test::seconds_since, test::wait_until;
using Clock = std::chrono::steady_clock;
using Floats = std::vector<float>;

const TapOptions async{.mode = TapMode::async};

/// The queue's limit for a test.
struct Limit {
  explicit Limit(std::size_t bytes) {
    devices();  // the runtime sets it when it begins
    barrier();
    host::set_tap_queue_limit(bytes);
  }
  ~Limit() {
    barrier();
    host::set_tap_queue_limit(0);
  }
};

TEST(TapAsync, TheProgramDoesNotWait) {
  RecordProperty("covers", "TAP-07 TAP-10");
  std::atomic<bool> go = false;
  std::atomic<int> delivered = 0;
  auto f = jit([&](Tensor x) {
    for (int i = 0; i < 5; ++i)
      x = tap(async, x + 1.0f, [&](float) { delivered += wait_until([&] { return go.load(); }); });
    return x;
  });
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 5);
  EXPECT_EQ(delivered, 0);
  EXPECT_EQ(barrier(10ms), 5u) << "a limit, and how many are pending";
  go = true;
  barrier();
  EXPECT_EQ(delivered, 5);
  EXPECT_EQ(barrier(0ms), 0u) << "nothing to wait for";
}

TEST(TapAsync, BarrierWaitsForAllThreads) {
  RecordProperty("covers", "TAP-10");
  std::atomic<int> delivered = 0;
  auto f = jit([&](Tensor x) {
    return tap(async, x, [&](float) {
      std::this_thread::sleep_for(20ms);
      ++delivered;
    });
  });
  std::thread([&] {
    f(Tensor(1.0f));
    f(Tensor(2.0f));
  }).join();
  f(Tensor(3.0f));
  std::thread other([] { barrier(); });
  barrier();
  EXPECT_EQ(delivered, 3);
  other.join();
}

TEST(TapAsync, AFullQueueMakesTheProgramWaitAndLosesNothing) {
  RecordProperty("covers", "TAP-08");
  const std::size_t limit = 8 << 20, mib = 1 << 20;
  Limit scope(limit);
  Floats seen;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 64,
        [&](Tensor, Tensor v) {
          return tap(async, v + 1.0f, [&](View<const float> w) {
            std::this_thread::sleep_for(1ms);
            seen.push_back(w[0]);
          });
        },
        x);
  });
  EXPECT_EQ(f(zeros(type<float>({mib / 4}))).to_vector<float>()[7], 64);
  barrier();
  Floats want(64);
  std::iota(want.begin(), want.end(), 1.0f);
  EXPECT_EQ(seen, want);
  const TapQueueStats stats = tap_queue_stats();
  EXPECT_EQ(stats.limit, limit);
  EXPECT_EQ(stats.bytes, 0u);
  host::set_tap_queue_limit(mib / 2);
  seen.clear();
  f(zeros(type<float>({mib / 4}))).block_until_ready();
  barrier();
  EXPECT_EQ(seen, want) << "a firing above the limit is delivered alone";
}

TEST(TapAsync, AWaitingRunCanBeCancelled) {
  RecordProperty("covers", "TAP-08");
  Limit scope(1000);
  std::atomic<bool> go = false;
  auto f = jit([&](Tensor x) {
    for (int i = 0; i < 50; ++i)
      x = tap(async, x + 1.0f, [&](float) { wait_until([&] { return go.load(); }); });
    return x;
  });
  auto run = f.start(Tensor(0.0f));
  EXPECT_EQ(run.wait(50ms), RunStatus::running);
  run.cancel();
  expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  go = true;
}

TEST(TapAsync, OnlyTheLastFirings) {
  RecordProperty("covers", "TAP-09");
  std::atomic<bool> go = false;
  std::vector<int> seen;
  std::uint64_t lost = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 100,
        [&](Tensor i, Tensor v) {
          tap({.mode = TapMode::async, .keep_last = 4}, i,
              [&](const TapInfo& info, std::int32_t step) {
                wait_until([&] { return go.load(); });
                seen.push_back(step);
                lost = info.dropped;
              });
          return v + 1.0f;
        },
        x);
  });
  const std::uint64_t before = tap_queue_stats().dropped;
  const auto start = Clock::now();
  EXPECT_EQ(f(Tensor(0.0f)).item<float>(), 100);
  EXPECT_LT(seconds_since(start), 5) << "the program is not slowed";
  go = true;
  barrier();
  EXPECT_EQ(seen.size() + lost, 100u);
  EXPECT_EQ(tap_queue_stats().dropped - before, lost);
  ASSERT_GE(seen.size(), 4u);
  EXPECT_EQ((std::vector<int>(seen.end() - 4, seen.end())), (std::vector<int>{96, 97, 98, 99}));
}

TEST(TapAsync, ShowsASnapshot) {
  RecordProperty("covers", "TAP-11");
  float seen = 0;
  auto f = jit(
      [&](Tensor x) {
        return tap(async, x,
                   [&](float v) {
                     std::this_thread::sleep_for(50ms);
                     seen = v;
                   }) *
               100.0f;
      },
      {.donate = {0}});
  Tensor two(2.0f);
  EXPECT_EQ(f(two * 1.0f).item<float>(), 200);
  barrier();
  EXPECT_EQ(seen, 2);
}

TEST(TapAsync, FailuresWaitForBarrier) {
  RecordProperty("covers", "ERR-11");
  int delivered = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 20,
        [&](Tensor i, Tensor v) {
          tap({.name = "log", .mode = TapMode::async}, i, [&](std::int32_t step) {
            ++delivered;
            if (step >= 1) throw std::runtime_error("disk full at " + std::to_string(step));
          });
          return v;
        },
        x);
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 1);
  const auto e = error_of<CallbackError>([] { barrier(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->site().name, "log");
  EXPECT_EQ(e->code(), ErrorCode::threw);
  EXPECT_TRUE(has(e->what(), "disk full at 1 (and 18 more failures)")) << e->what();
  EXPECT_TRUE(has(e->what(), "tap 'log' at tap_test_async.cc:")) << e->what();
  EXPECT_EQ(e->count(), 19u);
  EXPECT_EQ(e->others().size(), 15u) << "a bounded list";
  EXPECT_EQ(delivered, 20) << "the later ones are delivered all the same";
  barrier();
}

TEST(TapAsync, AListenerMayRunProgramsButNotWaitForItsOwnQueue) {
  Limit scope(1000);
  float inner_sum = 0;
  auto inner = jit([&](Tensor x) {
    for (int i = 0; i < 100; ++i) x = tap(async, x + 1.0f, [&](float v) { inner_sum += v; });
    return x;
  });
  ErrorCode code = ErrorCode::ok;
  auto outer = jit([&](Tensor x) {
    return tap(async, x, [&](float) {
      inner(Tensor(0.0f))
          .item<float>();  // its taps pass the full queue: this thread could not empty it
      try {
        barrier();
      } catch (const CallbackError& e) {
        code = e.code();
        EXPECT_TRUE(has(e.what(), "the queue that is being delivered to it")) << e.what();
      }
    });
  });
  outer(Tensor(1.0f));
  barrier();
  barrier();  // the first one waits for what was there when it began
  EXPECT_EQ(inner_sum, 5050);
  EXPECT_EQ(code, ErrorCode::reentry);
}

// However deep the programs are that it runs: through a started call, a limit, a plain call.
TEST(TapAsync, AListenerMayRunFunctionsThatRunPrograms) {
  for (const char* how : {"start_call", "limit", "call"}) {
    SCOPED_TRACE(how);
    Limit scope(1000);
    std::atomic<float> sum = 0;
    auto inner = jit([&](Tensor x) {
      for (int i = 0; i < 100; ++i) x = tap(async, x + 1.0f, [&](float v) { sum += v; });
      return x;
    });
    const auto runs_inner = [&](float v) { return inner(Tensor(v)).item<float>(); };
    auto through = jit([&](Tensor x) {
      CallOptions options;
      if (how[0] == 'l') options.timeout = 60s;
      return call(options, x.type(), runs_inner, x);
    });
    auto outer = jit([&](Tensor x) {
      return tap(async, x, [&](float) {
        if (how[0] == 's')
          wait(start_call(type<float>(), runs_inner, Tensor(0.0f))).item<float>();
        else
          through(Tensor(0.0f)).item<float>();
      });
    });
    outer(Tensor(1.0f));
    EXPECT_EQ(barrier(30s), 0u);
    EXPECT_EQ(barrier(30s), 0u);  // the first one waits for what was there when it began
    EXPECT_EQ(sum, 5050);
  }
}

TEST(TapAsync, AListenerMayWaitForARunWhoseTapsItDelivers) {
  for (const Mode mode : test::all_modes) {
    Limit scope(1000);
    float sum = 0;
    auto inner = jit(
        [&](Tensor x) {
          for (int i = 0; i < 100; ++i) x = tap(async, x + 1.0f, [&](float v) { sum += v; });
          return x;
        },
        {.mode = mode});
    std::optional<postern::Run<Tensor>> run;
    std::atomic<bool> known = false;
    auto outer = jit([&](Tensor x) {
      return tap(async, x, [&](float) {
        test::wait_until([&] { return known.load(); });
        run->wait();  // its taps pass the full queue: this thread could not empty it
      });
    });
    outer(Tensor(1.0f));
    run = inner.start(Tensor(0.0f));
    known = true;
    EXPECT_EQ(run->result().item<float>(), 100);
    barrier();
    EXPECT_EQ(sum, 5050);
  }
}

TEST(TapAsync, AListenerMayEndTheRun) {
  std::atomic<int> steps = 0;
  auto f = jit([&](Tensor x) {
    return while_loop([](Tensor v) { return v < 1e9f; },
                      [&](Tensor v) {
                        tap(async, v, [&](const TapInfo& info, float) {
                          if (++steps == 10) info.end_run();
                        });
                        return call(
                            {.effect = Effect::unordered}, v.type(), [](float a) { return a + 1; },
                            v);
                      },
                      x);
  });
  auto run = f.start(Tensor(0.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  barrier();
  EXPECT_GE(steps, 10);
}

TEST(TapAsync, AListenerIsToldThatItsRunStops) {
  for (const Mode mode : test::both_modes) {
    std::atomic<bool> inside = false, told = false, to_stop = true;
    auto f = jit(
        [&](Tensor x) {
          x = tap(async, x, [&](const TapInfo& info, float) {
            inside = true;
            told = to_stop ? wait_until([&] { return info.stop.stop_requested(); })
                           : info.stop.stop_requested();
          });
          return call(
              {.effect = Effect::ordered}, x.type(),
              [&](const CallInfo& info, float v) {
                if (to_stop) wait_until([&] { return info.stop.stop_requested(); });
                return v;
              },
              x);
        },
        {.mode = mode});
    const auto run = f.start(Tensor(1.0f));
    EXPECT_TRUE(wait_until([&] { return inside.load(); }));
    run.cancel();
    barrier();
    EXPECT_TRUE(told.load());
    to_stop = false;
    EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 2);
    barrier();
    EXPECT_FALSE(told.load()) << "the next run is none the worse";
  }
}

// As calls of JAX's programs are, and saved ones.
TEST(TapAsync, AListenerIsToldItsElement) {
  std::vector<std::pair<std::int64_t, float>> seen;
  const Callee listener([&](const TapInfo& info, float v) { seen.emplace_back(info.element, v); });
  auto spec = std::make_shared<SiteSpec>();
  spec->kind = SiteSpec::Kind::tap;
  spec->operands = {type<float>()};
  spec->trees.operand_paths = {""};
  spec->batch.levels = {{3, {true}}};
  spec->tap.async = true;
  const host::HostSite site(spec, listener.function());
  host::RunState run;
  float values[] = {1, 2, 3};
  void* const buffers[] = {values, values};
  EXPECT_TRUE(host::enter_site({run, site, buffers, 0}));
  barrier();
  EXPECT_EQ(seen, (std::vector<std::pair<std::int64_t, float>>{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(TapAsync, NoneTornFromFourThreads) {
  constexpr int programs = 10, taps = 10;
  std::mutex guard;
  std::map<std::pair<std::uint64_t, int>, int> last;
  int firings = 0, bad = 0;
  auto make = [&](int p) {
    return jit([&, p](Tensor x) {
      for (int t = 0; t < taps; ++t)
        x = tap(t % 2 ? async : TapOptions{}, std::vector<Tensor>(5, x + float(p)),
                [&, t](const TapInfo& info, std::span<const AnyView> v) {
                  std::scoped_lock lock(guard);
                  ++firings;
                  for (const AnyView& leaf : v)
                    for (float a : leaf.as<float>()) bad += a != v[0].as<float>()[0];
                  int& before = last.try_emplace({info.run, t % 2}, -1).first->second;
                  bad += before >= t;
                  before = t;
                })[3];
      return x;
    });
  };
  std::vector<decltype(make(0))> all;
  for (int p = 0; p < programs; ++p) all.push_back(make(p));
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int p = 0; p < programs; ++p)
        all[static_cast<std::size_t>(p)](full(type<float>({300}), float(i))).block_until_ready();
    });
  threads.clear();
  barrier();
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(firings, 4 * programs * taps);
}

TEST(TapAsync, AFullQueueKeepsMemoryUnderItsLimit) {
  RecordProperty("covers", "TAP-08");
  constexpr long limit = 32 << 10, payload = 1 << 10, firings = 200;  // KiB
  Limit scope(std::size_t{limit} << 10);
  std::vector<float> seen;
  std::atomic<long> most = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, firings,
        [&](Tensor, Tensor v) {
          return tap(async, v + 1.0f, [&](View<const float> w) {
            const auto full = [] {
              return tap_queue_stats().bytes >= std::size_t{limit - 2 * payload} << 10;
            };
            EXPECT_TRUE(!seen.empty() || wait_until(full)) << "it fills up";
            seen.push_back(w[w.size() - 1]);
            most = std::max(most.load(), test::resident_kib());
          });
        },
        x);
  });
  const Tensor x = zeros(type<float>({payload << 8})).block_until_ready();
  f.compile(x);
  const long before = test::resident_kib();
  f(x).block_until_ready();
  barrier();
  std::vector<float> want(firings);
  std::iota(want.begin(), want.end(), 1.0f);
  EXPECT_EQ(seen, want) << "nothing is lost";
  if (test::counts_memory) {
    EXPECT_LT(most - before, limit + (16 << 10)) << "the queue, and what the program itself needs";
  }
}

TEST(TapAsync, AStreamOfFiringsNeedsNoMoreMemory) {
  RecordProperty("covers", "LIFE-02");
  constexpr std::size_t limit = 4 << 20;
  Limit scope(limit);
  std::int64_t count = 0;
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 200'000,
        [&](Tensor, Tensor v) {
          return tap(async, v + 1.0f, [&](float) {
            const auto full = [] { return tap_queue_stats().bytes >= limit - 4096; };
            EXPECT_TRUE(count++ % 200'000 != 1 || wait_until(full)) << "it fills up";
          });
        },
        x);
  });
  f(Tensor(0.0f)).item<float>();
  barrier();
  long least = 8'000;  // the allocator may keep some, once
  for (int i = 0; i < 4; ++i) {
    const long before = test::resident_kib();
    f(Tensor(0.0f)).item<float>();
    barrier();
    least = std::min(least, test::resident_kib() - before);
  }
  if (test::counts_memory) {
    EXPECT_LT(least, 2'000) << "KiB";
  }
  EXPECT_EQ(count, 1'000'000);
}

// --- the end of the process ---

TEST(TapExit, TheQueueIsDrained) {
  RecordProperty("covers", "LIFE-03");
  for (const char* how : {"return", "exit", "throw"}) {
    const test::Ended end = test::run_program("tap_exit", {how});
    EXPECT_EQ(end.out, "tap 1\ntap 2\ntap 3\n") << how << end.err;
    EXPECT_EQ(end.code, std::string_view(how) == "throw" ? 1000 + SIGABRT : 7) << how << end.err;
  }
}

TEST(TapExit, FailuresArePrintedOnce) {
  RecordProperty("covers", "LIFE-03");
  for (const char* how : {"fail", "fail-exit", "fail-throw"}) {
    const test::Ended end = test::run_program("tap_exit", {how});
    EXPECT_EQ(end.code, std::string_view(how) == "fail-throw" ? 1000 + SIGABRT : 7)
        << how << end.err;
    const std::string_view line = "a failure that nobody waited for: tap 'tap' at tap_exit.cc:";
    EXPECT_TRUE(has(end.err, line)) << how << end.err;
    EXPECT_TRUE(has(end.err, "no disk")) << how << end.err;
  }
}

TEST(TapExit, AStuckListenerIsGivenUpAfterTheLimit) {
  RecordProperty("covers", "LIFE-03");
  const test::Ended end = test::run_program("tap_exit", {"stuck"});
  EXPECT_EQ(end.code, 7);
  EXPECT_LT(end.seconds, 20);
  EXPECT_TRUE(has(end.err, "undelivered after 200 ms")) << end.err;
}

TEST(TapExit, HelperThreadsStartOnFirstUse) {
  RecordProperty("covers", "LIFE-06");
  const test::Ended end = test::run_program("tap_exit", {"threads"});
  EXPECT_EQ(end.out, "0 more without taps, 1 with\n") << end.err;
}

}  // namespace
}  // namespace postern
