// Calls that overlap: start_call and wait.
#include "resident.h"
#include "support.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>

namespace postern {
namespace {

using test::error_of, test::expect_error, test::has, test::wait_until;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

/// Where functions meet: each waits until so many are inside, or for too long.
class Meeting {
 public:
  explicit Meeting(int wanted) : wanted_(wanted) {}
  bool come() {
    std::unique_lock lock(guard_);
    ++inside_;
    all_.notify_all();
    return all_.wait_for(lock, 20s, [&] { return inside_ >= wanted_; });
  }

 private:
  const int wanted_;
  int inside_ = 0;
  std::mutex guard_;
  std::condition_variable all_;
};

/// A door that stays shut until it is opened.
class Door {
 public:
  void open() {
    std::scoped_lock lock(guard_);
    open_ = true;
    opened_.notify_all();
  }
  bool pass() {
    std::unique_lock lock(guard_);
    return opened_.wait_for(lock, 20s, [&] { return open_; });
  }

 private:
  std::mutex guard_;
  std::condition_variable opened_;
  bool open_ = false;
};

TEST(Overlap, FunctionsAreInsideAtTheSameTime) {
  RecordProperty("covers", "OVERLAP-01");
  Meeting meeting(2);
  auto f = jit([&](Tensor x) {
    const auto inside = [&](float v) { return meeting.come() ? v * 2 : -1; };
    const auto a = start_call(x.type(), inside, x);
    const auto b = start_call({.name = "b"}, x.type(), inside, x + 1.0f);
    return wait(a) + wait(b);
  });
  EXPECT_EQ(f(1.0f).item<float>(), 6);
}

TEST(Overlap, TheProgramGoesOnMeanwhile) {
  RecordProperty("covers", "OVERLAP-01");
  Door door;
  auto f = jit([&](Tensor x) {
    const auto started = start_call(
        x.type(), [&](float v) { return door.pass() ? v + 1 : -1; }, x);
    Tensor y = call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          door.open();
          return v * 10;
        },
        x);
    return wait(started) + y;
  });
  EXPECT_EQ(f(2.0f).item<float>(), 23) << "the call behind the start opened the door for it";
}

TEST(Overlap, ContainersGoInAndOut) {
  RecordProperty("covers", "OVERLAP-02");
  auto f = jit([](Tensor x) {
    const auto pending = start_call(
        std::pair{type<float>({2}), type<int>()},
        [](View<const float> v) {
          return std::tuple(Floats{v[0] + 1, v[1] + 1}, int(v.size()));
        },
        x);
    static_assert(std::is_same_v<decltype(wait(pending)), std::pair<Tensor, Tensor>>);
    const auto [y, n] = wait(pending);
    return std::pair{y, n};
  });
  const auto [y, n] = f(tensor<float>({1, 2}));
  EXPECT_EQ(y.to_vector<float>(), (Floats{2, 3}));
  EXPECT_EQ(n.item<int>(), 2);
}

TEST(Overlap, APendingIsCarriedThroughLoops) {
  RecordProperty("covers", "OVERLAP-02");
  std::atomic<int> fetched = 0;
  auto fetch = [&] {
    return start_call({.name = "fetch", .effect = Effect::ordered}, type<float>(),
                      [&] { return static_cast<float>(fetched++); });
  };
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto loop = jit([&](Tensor x) {
    return fori_loop(
               0, 10,
               [&](Tensor, Tensor sum, Pending<Tensor> batch) {
                 const auto next = fetch();
                 return Carry{sum + wait(batch), next};
               },
               Carry{x, fetch()})
        .first;
  });
  EXPECT_EQ(loop(0.0f).item<float>(), 45);
  barrier();
  EXPECT_EQ(fetched.load(), 11) << "the last, for which nobody waits, ran too";

  fetched = 0;
  auto bounded = jit([&](Tensor x) {
    return while_loop([](Tensor sum, Pending<Tensor>) { return sum < 10.0f; },
                      [&](Tensor sum, Pending<Tensor> batch) {
                        Tensor now = sum + wait(batch);
                        return Carry{now, fetch()};
                      },
                      Carry{x, fetch()})
        .first;
  });
  EXPECT_EQ(bounded(0.0f).item<float>(), 10) << "0 + 1 + 2 + 3 + 4";
  auto scanned = jit([&](Tensor xs) {
    return scan(
               [&](Pending<Tensor> batch, Tensor x) {
                 Tensor got = wait(batch);
                 return std::pair{fetch(), got + x};
               },
               fetch(), xs)
        .second;
  });
  barrier();
  fetched = 0;
  EXPECT_EQ(scanned(tensor<float>({10, 20, 30})).to_vector<float>(), (Floats{10, 21, 32}));
}

TEST(Overlap, BranchesReturnAndTakeThem) {
  RecordProperty("covers", "OVERLAP-02");
  const auto times = [](float factor, const Tensor& x) {
    return start_call(
        type<float>(), [factor](float v) { return v * factor; }, x);
  };
  auto chosen = jit([&](Tensor yes, Tensor x) {
    const auto pending = cond(
        yes, [&](Tensor v) { return times(2, v); }, [&](Tensor v) { return times(3, v); }, x);
    return wait(pending);
  });
  EXPECT_EQ(chosen(true, 5.0f).item<float>(), 10);
  EXPECT_EQ(chosen(false, 5.0f).item<float>(), 15);
  auto taken = jit([&](Tensor yes, Tensor x) {
    const auto pending = times(2, x);
    return cond(
        yes, [&](Tensor v) { return wait(pending) + v; }, [&](Tensor v) { return v; }, x);
  });
  EXPECT_EQ(taken(true, 5.0f).item<float>(), 15);
  EXPECT_EQ(taken(false, 5.0f).item<float>(), 5) << "where nobody waits it is no failure";
}

// XLA begins what reads the rows when it likes, so the next start must lie between them.
TEST(Overlap, AStartBehindAWaitComesBeforeWhatIsComputed) {
  RecordProperty("covers", "OVERLAP-01");
  const auto begin = [](const Tensor& v) {
    return start_call(
        {.name = "next"}, type<float>({2}),
        [](float x) {
          return Floats{x, x};
        },
        v);
  };
  auto f = jit([&](Tensor x) {
    const Tensor rows = wait(begin(x));
    const Tensor waves = sin(rows);
    const auto a = begin(x + 1.0f), b = begin(x + 2.0f);
    return waves + wait(a) * 10.0f + wait(b) * 100.0f + rows;
  });
  const std::string text = f.lower(Tensor(3.0f)).stablehlo();
  std::vector<std::size_t> sites;
  for (std::size_t at = 0; (at = text.find("custom_call", at)) != std::string::npos; ++at)
    if (text.compare(at, 14, "custom_call\"(%") == 0) sites.push_back(at);
  ASSERT_EQ(sites.size(), 6u) << text;
  const auto hands_on = [&](std::size_t i) {
    return text.substr(sites[i], text.find('\n', sites[i]) - sites[i]).find("operand_index = 1") !=
           std::string::npos;
  };
  EXPECT_TRUE(hands_on(2) && hands_on(3)) << "both starts hand the rows on\n" << text;
  EXPECT_GT(text.find("stablehlo.sine"), sites[3]) << text;
  EXPECT_NEAR(f(Tensor(3.0f)).to_vector<float>()[1], std::sin(3.0f) + 40 + 500 + 3, 1e-4);
}

TEST(Overlap, OnesThatNobodyWaitsForRunOnce) {
  RecordProperty("covers", "OVERLAP-03");
  std::atomic<int> runs = 0;
  Door door;
  auto f = jit([&](Tensor x) {
    static_cast<void>(start_call(
        x.type(),
        [&](float v) {
          door.pass();
          ++runs;
          return v;
        },
        x));
    static_cast<void>(start_call(
        std::tuple<>(), [&](float) { ++runs; }, x));
    return x + 1.0f;
  });
  EXPECT_EQ(f(1.0f).item<float>(), 2) << "the result is there before the function returns";
  door.open();
  barrier();
  EXPECT_EQ(runs.load(), 2);
}

TEST(Overlap, OrderedOnesFollowEachOther) {
  RecordProperty("covers", "OVERLAP-04");
  std::vector<int> order;
  std::atomic<int> inside = 0;
  bool alone = true;
  auto f = jit([&](Tensor n) {
    return fori_loop(
        0, n,
        [&](Tensor i, Tensor x) {
          static_cast<void>(start_call(
              {.name = "log", .effect = Effect::ordered}, std::tuple<>(),
              [&](int v) {
                alone = alone && ++inside == 1;
                order.push_back(v);
                std::this_thread::sleep_for(100us);
                --inside;
              },
              i));
          return x + 1.0f;
        },
        Tensor(0.0f));
  });
  EXPECT_EQ(f(50).item<float>(), 50);
  barrier();
  EXPECT_TRUE(alone);
  ASSERT_EQ(order.size(), 50u);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(Overlap, ManyAtOnceHaveAFewThreads) {
  RecordProperty("covers", "OVERLAP-04");
  std::atomic<int> inside = 0, most = 0, runs = 0;
  auto f = jit([&](Tensor n) {
    return fori_loop(
        0, n,
        [&](Tensor, Tensor x) {
          static_cast<void>(start_call(std::tuple<>(), [&] {
            const int now = ++inside;
            int before = most.load();
            while (before < now && !most.compare_exchange_weak(before, now)) {
            }
            std::this_thread::sleep_for(1ms);
            --inside;
            ++runs;
          }));
          return x + 1.0f;
        },
        Tensor(0.0f));
  });
  EXPECT_EQ(f(500).item<float>(), 500);
  barrier();
  EXPECT_EQ(runs.load(), 500);
  EXPECT_LE(most.load(), 64);
}

Tensor broken(const Tensor& x) {
  return wait(start_call(
      {.name = "broken"}, x.type(), [](float) -> float { throw std::runtime_error("no data"); },
      x));
}

TEST(Overlap, FailuresArriveWhereTheyAreWaitedFor) {
  RecordProperty("covers", "OVERLAP-05");
  auto f = jit([](Tensor x) { return broken(x) + 1.0f; });
  const auto e = error_of<CallbackError>([&] { f(1.0f).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "call 'broken' at overlap_test.cc")) << e->what();
  EXPECT_TRUE(has(e->what(), "no data")) << e->what();
  EXPECT_EQ(e->site().name, "broken");
  EXPECT_EQ(e->code(), ErrorCode::threw);
  EXPECT_TRUE(test::cause_of<std::runtime_error>(*e));
  barrier();

  auto wrong = jit([](Tensor x) {
    return wait(start_call(
        {.name = "wrong"}, type<float>({2}), [](float) { return 1; }, x));
  });
  expect_error<CallbackError>([&] { wrong(1.0f).to_vector<float>(); }, {"wrong", "f32[2]"},
                              ErrorCode::bad_result);
}

TEST(Overlap, FailuresThatNobodyWaitsForGoToTheBarrier) {
  RecordProperty("covers", "OVERLAP-05");
  auto f = jit([](Tensor x) {
    static_cast<void>(start_call(
        {.name = "lost"}, x.type(), [](float) -> float { throw std::runtime_error("nobody saw"); },
        x));
    return x + 1.0f;
  });
  EXPECT_EQ(f(1.0f).item<float>(), 2);
  expect_error<CallbackError>([] { barrier(); }, {"lost", "nobody saw"}, ErrorCode::threw);
  barrier();
}

TEST(Overlap, TimeLimits) {
  RecordProperty("covers", "OVERLAP-06");
  const auto until_told = [](const CallInfo& info, float v) {
    while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
    return v;
  };
  auto f = jit([&](Tensor x) {
    return wait(start_call({.name = "slow", .timeout = 20ms}, x.type(), until_told, x));
  });
  expect_error<TimeoutError>([&] { f(1.0f).item<float>(); }, {"slow", "the limit of 20 ms"},
                             ErrorCode::timeout);
  auto lost = jit([&](Tensor x) {
    static_cast<void>(start_call({.name = "late", .timeout = 20ms}, x.type(), until_told, x));
    return x + 1.0f;
  });
  EXPECT_EQ(lost(1.0f).item<float>(), 2);
  expect_error<TimeoutError>([] { barrier(); }, {"late", "the limit of 20 ms"}, ErrorCode::timeout);
}

TEST(Overlap, DeadlinesAndCancelling) {
  RecordProperty("covers", "OVERLAP-06");
  std::atomic<bool> entered = false;
  auto f = jit([&](Tensor x) {
    return wait(start_call(
        {.name = "stuck"}, x.type(),
        [&](const CallInfo& info, float v) {
          entered = true;
          while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
          return v;
        },
        x));
  });
  {
    auto run = f.start_with({.deadline = 50ms}, Tensor(1.0f));
    expect_error<TimeoutError>([&] { run.wait(); }, {"deadline"}, ErrorCode::timeout);
  }
  barrier();
  entered = false;
  {
    auto run = f.start(Tensor(1.0f));
    ASSERT_TRUE(wait_until([&] { return entered.load(); }));
    run.cancel();
    expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
  }
  barrier();
}

TEST(Overlap, AFunctionMayEndTheRun) {
  RecordProperty("covers", "OVERLAP-06");
  std::atomic<int> later = 0;
  auto f = jit([&](Tensor x) {
    Tensor y = wait(start_call(
        {.name = "last"}, x.type(),
        [](const CallInfo& info, float v) {
          info.end_run();
          return v;
        },
        x));
    return call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          ++later;
          return v;
        },
        y);
  });
  auto run = f.start(Tensor(1.0f));
  EXPECT_EQ(run.wait(), RunStatus::stopped);
  EXPECT_EQ(later.load(), 0);
}

TEST(Overlap, WhoEndsTheRunStopsTheOthers) {
  RecordProperty("covers", "OVERLAP-06");
  for (const bool waits : {true, false}) {
    std::atomic<bool> inside = false, told = false;
    auto f = jit([&](Tensor x) {
      const auto last = start_call(
          {.name = "last"}, x.type(),
          [&](const CallInfo& info, float v) {
            wait_until([&] { return inside.load(); });
            info.end_run();
            return v;
          },
          x);
      static_cast<void>(start_call(
          {.name = "other"}, x.type(),
          [&](const CallInfo& info, float v) {
            inside = true;
            told = wait_until([&] { return info.stop.stop_requested(); });
            return v;
          },
          x));
      return waits ? wait(last) : x + 1.0f;
    });
    const RunStatus status = f.start(Tensor(1.0f)).wait();
    EXPECT_TRUE(!waits || status == RunStatus::stopped);
    barrier();
    EXPECT_TRUE(told.load()) << waits;
  }
}

TEST(Overlap, NothingEntersBehindALateOne) {
  RecordProperty("covers", "OVERLAP-04 OVERLAP-06");
  for (const bool waits : {true, false}) {
    Door door;
    std::atomic<int> entered = 0;
    std::atomic<bool> returned = false;
    auto f = jit([&](Tensor x) {
      const auto late = start_call(
          {.name = "late", .effect = Effect::ordered, .timeout = 20ms}, x.type(),
          [&](float v) {
            ++entered;
            door.pass();
            returned = true;
            return v;
          },
          x);
      static_cast<void>(start_call(
          {.name = "behind", .effect = Effect::ordered}, x.type(),
          [&](float v) {
            ++entered;
            return v;
          },
          x));
      return waits ? wait(late) : x + 1.0f;
    });
    expect_error<TimeoutError>(
        [&] {
          f(1.0f).item<float>();
          barrier();
        },
        {"late", "the limit of 20 ms"}, ErrorCode::timeout);
    barrier();
    EXPECT_EQ(entered.load(), 1) << waits;
    door.open();
    EXPECT_TRUE(wait_until([&] { return returned.load(); }));
  }
}

TEST(Overlap, VmapStartsOneForEachElement) {
  RecordProperty("covers", "OVERLAP-07");
  const auto square = [](float v) { return v * v; };
  for (const VmapMethod method : {VmapMethod::sequential, VmapMethod::parallel}) {
    auto f = jit(
        vmap([&](Tensor x) { return wait(start_call({.vmap = method}, x.type(), square, x)); }));
    EXPECT_EQ(f(tensor<float>({1, 2, 3})).to_vector<float>(), (Floats{1, 4, 9}));
    auto nested = jit(vmap(
        vmap([&](Tensor x) { return wait(start_call({.vmap = method}, x.type(), square, x)); })));
    EXPECT_EQ(nested(tensor<float>({1, 2, 3, 4}, {2, 2})).to_vector<float>(),
              (Floats{1, 4, 9, 16}));
  }
  std::atomic<int> entered = 0;
  for (const VmapMethod method : {VmapMethod::expand_dims, VmapMethod::broadcast_all}) {
    auto f = jit(vmap(
        [&](Tensor x, Tensor shift) {
          return wait(start_call(
              {.vmap = method}, x.type(),
              [&](AnyView v, AnyView by, AnyMutableView out) {
                ++entered;
                const auto in = v.as<float>(), s = by.as<float>();
                for (std::int64_t i = 0; i < in.size(); ++i)
                  out.as<float>()[i] = in[i] + s[i % s.size()];
              },
              x, shift));
        },
        {.in_axes = {0, unmapped}}));
    entered = 0;
    EXPECT_EQ(
        f(tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2}), tensor<float>({10, 20})).to_vector<float>(),
        (Floats{11, 22, 13, 24, 15, 26}));
    EXPECT_EQ(entered.load(), 1);
  }
}

TEST(Overlap, VmapOfLoopsThatEndAtDifferentTimes) {
  RecordProperty("covers", "OVERLAP-07");
  std::atomic<int> started = 0;
  auto halve = [&](const Tensor& x) {
    return start_call(
        x.type(),
        [&](float v) {
          ++started;
          return v / 2;
        },
        x);
  };
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto f = jit(vmap([&](Tensor x) {
    return while_loop([](Tensor v, Pending<Tensor>) { return v > 1.0f; },
                      [&](Tensor, Pending<Tensor> half) {
                        Tensor v = wait(half);
                        return Carry{v, halve(v)};
                      },
                      Carry{x, halve(x)})
        .first;
  }));
  EXPECT_EQ(f(tensor<float>({8, 1, 2})).to_vector<float>(), (Floats{1, 1, 1}));
  barrier();
  EXPECT_EQ(started.load(), 3 + 4) << "one for each element, and one for each of its steps";
}

TEST(Overlap, WhatElementsShareIsWaitedForOnce) {
  RecordProperty("covers", "OVERLAP-07");
  std::atomic<int> runs = 0;
  auto f = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start_call(
        shift.type(),
        [&](float v) {
          ++runs;
          return v * 10;
        },
        shift);
    return vmap([&](Tensor x) { return x + wait(shared); })(xs);
  });
  EXPECT_EQ(f(tensor<float>({1, 2, 3}), 2.0f).to_vector<float>(), (Floats{21, 22, 23}));
  EXPECT_EQ(runs.load(), 1);
}

TEST(Overlap, WhatElementsShareIsWaitedForOnceWhateverBranchTheyTake) {
  RecordProperty("covers", "OVERLAP-07");
  std::atomic<int> runs = 0;
  const auto start = [&](const Tensor& x) {
    return start_call(
        {.name = "shared"}, x.type(),
        [&](float v) {
          ++runs;
          return v * 10;
        },
        x);
  };
  auto f = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start(shift), other = start(shift + 1.0f);
    return vmap([&](Tensor x) {
      const Tensor of_three =
          switch_(convert<int>(x),
                  std::vector<std::function<Tensor(Tensor)>>{
                      [&](Tensor v) { return v + wait(shared); }, [](Tensor v) { return v; },
                      [&](Tensor v) { return wait(other) - wait(shared) * v; }},
                  x);
      return of_three;
    })(xs);
  });
  EXPECT_EQ(f(tensor<float>({0, 1, 2, 0}), 2.0f).to_vector<float>(), (Floats{20, 1, -10, 20}));
  EXPECT_EQ(f(tensor<float>({1, 1}), 2.0f).to_vector<float>(), (Floats{1, 1}));
  EXPECT_EQ(runs.load(), 2 * 2);
  auto nested = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start(shift);
    const auto one = [&](Tensor x) {
      return cond(
          x > 1.0f, [&](Tensor v) { return v + wait(shared); },
          [&](Tensor v) { return v - wait(shared); }, x);
    };
    return vmap(vmap(one))(xs);
  });
  EXPECT_EQ(nested(tensor<float>({0, 1, 2, 3}, {2, 2}), 2.0f).to_vector<float>(),
            (Floats{-20, -19, 22, 23}));
  auto by_both = jit([&](Tensor xs, Tensor ys) {  // the inner masks are not those of the branches
    const auto started = vmap([&](Tensor y) { return start(y); })(ys);
    const auto some = [&](auto takes) {
      return [&, takes](Tensor) {
        return vmap([&](auto pending, Tensor y) {
          return cond(
              takes(y), [&](Tensor) { return wait(pending); }, [](Tensor v) { return v * 0.0f; },
              y);
        })(started, ys);
      };
    };
    return vmap([&](Tensor x) {
      return cond(x > 0.0f, some([](Tensor y) { return y > 0.0f; }),
                  some([](Tensor y) { return y <= 0.0f; }), x);
    })(xs);
  });
  EXPECT_EQ(by_both(tensor<float>({1, -1}), tensor<float>({3, -3})).to_vector<float>(),
            (Floats{30, 0, 0, -30}));
  auto twice = jit([&](Tensor xs, Tensor shift) {
    const auto shared = start(shift);
    return vmap([&](Tensor x) {
      const Tensor once = cond(
          x > 1.0f, [&](Tensor v) { return v + wait(shared); },
          [&](Tensor v) { return v - wait(shared); }, x);
      return once + cond(
                        x > 2.0f, [&](Tensor v) { return wait(shared) + v; },
                        [](Tensor v) { return v; }, x);
    })(xs);
  });
  expect_error<CallbackError>(
      [&] {
        twice(tensor<float>({0, 3}), 2.0f).to_vector<float>();
      },
      {"shared", "waited for before"});
}

TEST(Overlap, OtherModes) {
  RecordProperty("covers", "OVERLAP-08");
  for (const Mode mode : {Mode::evaluate, Mode::staged, Mode::compiled}) {
    std::atomic<int> runs = 0;
    auto f = jit(
        [&](Tensor x) {
          const auto add = [&](float v) {
            ++runs;
            return v + 1;
          };
          using Carry = std::pair<Tensor, Pending<Tensor>>;
          static_cast<void>(start_call(x.type(), add, x));
          return fori_loop(
                     0, 3,
                     [&](Tensor, Tensor v, Pending<Tensor> p) {
                       Tensor y = v + wait(p);
                       return Carry{y, start_call({.name = "add"}, y.type(), add, y)};
                     },
                     Carry{x, start_call({.name = "add"}, x.type(), add, x)})
              .first;
        },
        {.mode = mode});
    EXPECT_EQ(f(1.0f).item<float>(), 15) << static_cast<int>(mode);
    barrier();
    EXPECT_EQ(runs.load(), 5) << static_cast<int>(mode);
    auto fails = jit([](Tensor x) { return broken(x); }, {.mode = mode});
    expect_error<CallbackError>([&] { fails(1.0f).item<float>(); }, {"broken", "no data"},
                                ErrorCode::threw);
  }
}

TEST(Overlap, OutsideOfPrograms) {
  RecordProperty("covers", "OVERLAP-08");
  Door door;
  auto a = start_call(
      type<float>(), [&](float v) { return door.pass() ? v * 2 : -1; }, 4.0f);
  door.open();
  EXPECT_EQ(wait(a).item<float>(), 8);
  expect_error<CallbackError>([&] { wait(a); }, {"has been waited for before", "overlap_test.cc"},
                              ErrorCode::failed_precondition);
  std::atomic<int> runs = 0;
  static_cast<void>(start_call(std::tuple<>(), [&] { ++runs; }));
  barrier();
  EXPECT_EQ(runs.load(), 1);
  static_cast<void>(start_call({.name = "dropped"}, std::tuple<>(),
                               [] { throw std::runtime_error("nobody saw"); }));
  expect_error<CallbackError>([] { barrier(); }, {"dropped", "nobody saw"}, ErrorCode::threw);
}

TEST(Overlap, BadWaitsAreRefusedWhileTracing) {
  RecordProperty("covers", "OVERLAP-09");
  const auto begin = [](const Tensor& x) {
    return start_call(
        {.name = "once"}, x.type(), [](float v) { return v; }, x);
  };
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          const auto p = begin(x);
          return wait(p) + wait(p);
        })(1.0f);
      },
      {"'once'", "has been waited for before", "overlap_test.cc"});
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          const auto p = begin(x);
          return fori_loop(
              0, 2, [&](Tensor, Tensor v) { return v + wait(p); }, x);
        })(1.0f);
      },
      {"'once'", "a loop that does not carry it", "overlap_test.cc"});
  Pending<Tensor> leaked;
  jit([&](Tensor x) {
    leaked = begin(x);
    return x;
  })(1.0f);
  expect_error<TypeError>([&] { wait(leaked); }, {"'once'", "overlap_test.cc"});
  expect_error<TypeError>([&] { jit([&](Tensor x) { return x + wait(leaked); })(1.0f); },
                          {"'once'", "of another program", "overlap_test.cc"});
  const auto outside = begin(1.0f);
  expect_error<TypeError>([&] { jit([&](Tensor x) { return x + wait(outside); })(1.0f); },
                          {"'once'", "not of the program", "overlap_test.cc"});
  expect_error<TypeError>([] { wait(Pending<Tensor>()); }, {"empty"});
  expect_error<TypeError>(
      [] {
        start_call(
            {.name = "g", .memory = Memory::device}, type<float>(),
            [](View<const float>, View<float>) {}, 1.0f);
      },
      {"start_call 'g'", "Memory::device"});
  EXPECT_EQ(wait(outside).item<float>(), 1);
}

TEST(Overlap, BadWaitsFailTheRun) {
  RecordProperty("covers", "OVERLAP-09");
  const auto begin = [](const Tensor& x) {
    return start_call(
        {.name = "once"}, x.type(), [](float v) { return v; }, x);
  };
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto again = jit([&](Tensor x) {
    return fori_loop(
               0, 3,
               [&](Tensor, Tensor v, Pending<Tensor> p) {
                 return Carry{v + wait(p), p};
               },
               Carry{x, begin(x)})
        .first;
  });
  expect_error<CallbackError>([&] { again(1.0f).item<float>(); },
                              {"'once'", "has been waited for before", "overlap_test.cc"},
                              ErrorCode::failed_precondition);
  auto gives = jit([&](Tensor x) { return begin(x); });
  const Pending<Tensor> given = gives(1.0f);
  expect_error<CallbackError>([&] { wait(given); },
                              {"'once'", "was not started by this run", "overlap_test.cc"},
                              ErrorCode::failed_precondition);
  auto takes = jit([&](Pending<Tensor> p) { return wait(p); });
  expect_error<CallbackError>([&] { takes(given).item<float>(); },
                              {"'once'", "was not started by this run", "overlap_test.cc"},
                              ErrorCode::failed_precondition);
}

TEST(Overlap, WhatIsDifferentiatedNeedsARule) {
  RecordProperty("covers", "OVERLAP-10");
  const auto squared = [](Tensor x) {
    return wait(start_call(
        {.name = "sq"}, x.type(), [](float v) { return v * v; }, x));
  };
  expect_error<TypeError>([&] { jit(grad(squared))(3.0f); }, {"call 'sq' has no derivative"});
  auto with_rule = custom_vjp(
      squared,
      [&](Tensor x) {
        return std::pair{squared(x), x};
      },
      [](Tensor x, Tensor ct) { return 2.0f * x * ct; });
  EXPECT_EQ(jit(grad(with_rule))(3.0f).item<float>(), 6);
  auto begins = custom_vjp(
      [](Tensor x) {
        return start_call(
            {.name = "sq"}, x.type(), [](float v) { return v; }, x);
      },
      [](Tensor x) {
        return std::pair{start_call(
                             {.name = "sq"}, x.type(), [](float v) { return v; }, x),
                         x};
      },
      [](Tensor x, Pending<Tensor>) { return x; });
  expect_error<TypeError>([&] { jit([&](Tensor x) { return wait(begins(x)); })(3.0f); },
                          {"custom_vjp", "'sq'", "start_call_with_vjp"});
}

TEST(Overlap, ManyThatNobodyWaitsForLeaveNothing) {
  RecordProperty("covers", "OVERLAP-03");
  std::atomic<int> runs = 0;
  long before = 0, most = 0;
  auto f = jit([&](Tensor n, Tensor big) {
    return fori_loop(
        0, n,
        [&](Tensor i, Tensor x) {
          static_cast<void>(start_call(
              {.effect = Effect::ordered}, big.type(),
              [&](View<const float> in, View<float> out) {
                ++runs;
                std::ranges::copy(in, out.begin());
              },
              big));
          // Has returned after the one above, so that none pile up.
          return wait(start_call(
              {.effect = Effect::ordered}, x.type(),
              [&](int step, float v) {
                const long now = test::resident_kib();
                if (step == 10) before = now;
                most = std::max(most, now);
                return v + 1;
              },
              i, x));
        },
        Tensor(0.0f));
  });
  const Tensor big = zeros(type<float>({1 << 18}));  // 2 MiB of operand and result
  EXPECT_EQ(f(500, big).item<float>(), 500);
  barrier();
  EXPECT_EQ(runs.load(), 500);
  if (test::counts_memory) {
    EXPECT_LT(most - before, 300 << 10) << "KiB, of 1,000,000 that were copied";
  }
}

TEST(Overlap, ADerivativeOnTheHost) {
  RecordProperty("covers", "OVERLAP-10");
  std::atomic<int> forward = 0, backward = 0;
  const HostVjp by_two = [&](float x, float, float ct, View<float> dx) {
    ++backward;
    dx[0] = 2 * x * ct;
  };
  const auto square = [&](const Tensor& x) {
    return start_call_with_vjp(
        {.name = "sq"}, x.type(),
        [&](float v) {
          ++forward;
          return v * v;
        },
        by_two, x);
  };
  auto f = [&](Tensor x) {
    const auto a = square(x);
    const auto b = square(x + 1.0f);
    return wait(a) * wait(b);
  };
  EXPECT_EQ(jit(grad(f))(2.0f).item<float>(), 2 * 2 * 9 + 4 * 2 * 3);
  EXPECT_EQ(forward.load(), 2);
  EXPECT_EQ(backward.load(), 2);
  using Carry = std::pair<Tensor, Pending<Tensor>>;
  auto loop = [&](Tensor x) {
    return fori_loop(
               0, 3,
               [&](Tensor, Tensor sum, Pending<Tensor> p) {
                 Tensor y = wait(p);
                 return Carry{sum + y, square(y)};
               },
               Carry{Tensor(0.0f), square(x)})
        .first;
  };
  EXPECT_EQ(jit(loop)(2.0f).item<float>(), 4 + 16 + 256);
  EXPECT_EQ(jit(grad(loop))(2.0f).item<float>(), 4 + 32 + 8 * 128) << "of x^2 + x^4 + x^8";
  EXPECT_EQ(jit(vmap(grad(loop)))(tensor<float>({1, 2})).to_vector<float>(), (Floats{14, 1060}));
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          return fori_loop(
                     0, 3,
                     [&](Tensor, Tensor v, Pending<Tensor> p) {
                       return Carry{
                           v + wait(p),
                           start_call_with_vjp(
                               x.type(), [](float u) { return u; },
                               [](float, float, float ct, View<float> dx) { dx[0] = ct; }, v)};
                     },
                     Carry{x, square(x)})
              .first;
        })(2.0f);
      },
      {"fori_loop"});
  barrier();  // the last call of each loop, for which nobody waits, counts in what is above
}

TEST(Overlap, RecordedAndReplayed) {
  RecordProperty("covers", "OVERLAP-11");
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/recording";
  std::atomic<int> world = 0;
  auto f = jit([&](Tensor x) {
    const auto ask = [&](float v) { return v + static_cast<float>(++world); };
    const auto a = start_call({.name = "a", .effect = Effect::ordered}, x.type(), ask, x);
    const auto b = start_call({.name = "b", .effect = Effect::ordered}, x.type(), ask, x);
    return wait(b) * 10.0f + wait(a);
  });
  {
    const Taping recording = record(file);
    EXPECT_EQ(f(1.0f).item<float>(), 32);
  }
  {
    const Taping replaying = replay(file);
    EXPECT_EQ(f(1.0f).item<float>(), 32);
  }
  EXPECT_EQ(world.load(), 2) << "the replay entered no function";
  EXPECT_EQ(f(1.0f).item<float>(), 54);
}

TEST(Overlap, SavedPrograms) {
  RecordProperty("covers", "OVERLAP-11");
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/program.mlir";
  std::atomic<int> runs = 0;
  register_function("overlap.double", [&](float v) {
    ++runs;
    return v * 2;
  });
  auto f = jit([](Tensor x) {
    using Carry = std::pair<Tensor, Pending<Tensor>>;
    const auto begin = [](const Tensor& v) {
      return start_call({.name = "double"}, v.type(), Named{"overlap.double"}, v);
    };
    return fori_loop(
               0, 2,
               [&](Tensor, Tensor v, Pending<Tensor> p) {
                 Tensor y = v + wait(p);
                 return Carry{y, begin(y)};
               },
               Carry{x, begin(x)})
        .first;
  });
  save(file, f.lower(Tensor(1.0f)));
  const Loaded loaded = load(file);
  EXPECT_EQ(loaded.required_functions(), std::vector<std::string>{"overlap.double"});
  EXPECT_EQ(loaded(Tensor(1.0f)).at(0).item<float>(), 9);
  barrier();
  EXPECT_EQ(runs.load(), 3);
  unregister_function("overlap.double");
}

TEST(Overlap, AStartedRunWithoutResultsEndsWithItsFunctions) {
  std::atomic<int> returned{0};
  auto f = jit([&](Tensor x) {
    start_call(
        {.effect = Effect::unordered}, x.type(),
        [&](float v) {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          ++returned;
          if (v > 1) throw std::runtime_error("too large");
          return v;
        },
        x);
    return std::vector<Tensor>();
  });
  EXPECT_EQ(f.start(Tensor(1.0f)).wait(), RunStatus::done);
  EXPECT_EQ(returned, 1);
  EXPECT_EQ(f.start(Tensor(2.0f)).wait(), RunStatus::done) << "nobody waited for the call";
  EXPECT_EQ(returned, 2);
  expect_error<CallbackError>([] { barrier(); }, {"too large"}, ErrorCode::threw);
}

}  // namespace
}  // namespace postern
