// Calls that overlap: start_call and wait.
#include "overlap_test.h"
#include "resident.h"

#include <atomic>
#include <functional>

namespace postern {
namespace {

using test::Door, test::Meeting, test::broken, test::expect_error, test::has;
using namespace std::chrono_literals;
using Floats = std::vector<float>;

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
  barrier();  // nobody waits for the last one, which counts here too
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

TEST(Overlap, OtherModes) {
  RecordProperty("covers", "OVERLAP-08");
  for (const Mode mode : test::all_modes) {
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
  expect_error<TypeError>([&] { wait(a); }, {"call 'call' at overlap_test.cc:280",
                                             "has been waited for before, at overlap_test.cc:279"});
  std::atomic<int> runs = 0;
  static_cast<void>(start_call(std::tuple<>(), [&] { ++runs; }));
  barrier();
  EXPECT_EQ(runs.load(), 1);
  static_cast<void>(start_call({.name = "dropped"}, std::tuple<>(),
                               [] { throw std::runtime_error("nobody saw"); }));
  expect_error<CallbackError>([] { barrier(); }, {"dropped", "nobody saw"}, ErrorCode::threw);
}

TEST(Overlap, OutsideOfProgramsCopiesOfHandlesKeepTheirCalls) {
  RecordProperty("covers", "OVERLAP-07 OVERLAP-08");
  const HostVjp slope = [](float v, float, float ct, View<float> to_v) { to_v[0] = 2 * v * ct; };
  const auto start = [&](const Tensor& x) {
    return start_call_with_vjp(
        type<float>(), [](float v) { return v * v; }, slope, x);
  };
  const auto waited = [](auto pending) { return wait(pending); };
  // By what handles go through: selects, stacks and their rows, transposes.
  const auto branches = [&](Tensor xs) {
    return vmap([&](Tensor x) {
      return wait(cond(
          x < 2.0f, start, [&](Tensor v) { return start(v + 10.0f); }, x));
    })(xs);
  };
  const auto stacks = [&](Tensor xs) { return map(waited, map(start, xs)); };
  const auto rows = [&](Tensor xs) {
    const auto [last, y] = scan(
        [](auto before, auto next) {
          return std::pair{next, wait(before)};
        },
        start(xs[0]), map(start, xs));
    return y + wait(last);
  };
  const auto loops = [&](Tensor xs) {
    return vmap([&](Tensor x) {
      const auto [y, last] = while_loop([](Tensor v, auto) { return v < 9.0f; },
                                        [&](Tensor v, auto before) {
                                          return std::pair{v + wait(before), start(v)};
                                        },
                                        std::pair{x, start(x)});
      return y + wait(last);
    })(xs);
  };
  const auto nested = [&](Tensor xs) {
    const auto all = vmap(vmap(start), {.in_axes = 1, .out_axes = 1})(stack({xs, xs}));
    return vmap(vmap(waited))(all)[1];
  };
  const auto captured = [&](Tensor xs) {
    const auto choose = [&] {  // what a branch gives is all that is left of either
      const auto one = start(xs[0]), other = start(xs[1]);
      return cond(
          xs[2] < 2.0f, [&](Tensor) { return one; }, [&](Tensor) { return other; }, xs);
    };
    return wait(choose()) + xs;
  };
  const Tensor xs = tensor<float>({1, 2, 3});
  for (const auto& f : std::vector<std::function<Tensor(Tensor)>>{branches, stacks, rows, loops,
                                                                  nested, captured}) {
    const auto gradient = grad([&](Tensor v) { return sum(f(v)); });
    EXPECT_EQ(f(xs).to_vector<float>(), jit(f, {.mode = Mode::evaluate})(xs).to_vector<float>());
    EXPECT_EQ(gradient(xs).to_vector<float>(),
              jit(gradient, {.mode = Mode::evaluate})(xs).to_vector<float>());
  }
  EXPECT_EQ(loops(xs).to_vector<float>(), (Floats{65, 46, 21}));

  const auto shared = start_call(
      type<float>(), [](float v) { return v * v; }, 4.0f);
  const auto by_branch = vmap([&](Tensor x) {
    return cond(
        x < 2.0f, [&](Tensor v) { return v + wait(shared); },
        [&](Tensor v) { return v - wait(shared); }, x);
  });
  EXPECT_EQ(by_branch(xs).to_vector<float>(), (Floats{17, -14, -13}));

  auto one = map_leaves([](const Tensor& t) { return t[0]; }, vmap([](Tensor x) {
                          return start_call(
                              {.name = "dropped"}, x.type(),
                              [](float) -> float { throw std::runtime_error("no data"); }, x);
                        })(tensor<float>({1})));
  one = {};
  expect_error<CallbackError>([] { barrier(); }, {"dropped", "no data"}, ErrorCode::threw);
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
    const long limit = plugin_info().calls_back ? 300 : 700;
    EXPECT_LT(most - before, limit << 10) << "KiB, of 1,000,000 that were copied";
  }
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
  if (test::skipped_in_stages("of a saved program, started calls are no stages")) return;
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
