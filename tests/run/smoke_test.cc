// Twenty small tests, one for each thing that the library is for: read them in order to see what it
// does.
#include "support.h"

namespace postern {
namespace {

using test::has;
using Floats = std::vector<float>;

TEST(Smoke, OperationsOnValuesRunAtOnce) {
  Tensor x = tensor<float>({1, 2, 3});
  EXPECT_EQ((x + x * 2.0f).to_vector<float>(), (Floats{3, 6, 9}));
}

TEST(Smoke, ShapesBroadcast) {
  Tensor column = tensor<float>({1, 2}, {2, 1}), row = tensor<float>({10, 20});
  Tensor table = column + row;
  EXPECT_EQ(to_string(table.type()), "f32[2,2]");
  EXPECT_EQ(table.to_vector<float>(), (Floats{11, 21, 12, 22}));
}

TEST(Smoke, ReduceAndMultiplyMatrices) {
  Tensor a = tensor<float>({1, 2, 3, 4}, {2, 2});
  EXPECT_EQ(sum(a).item<float>(), 10);
  EXPECT_EQ(matmul(a, a).to_vector<float>(), (Floats{7, 10, 15, 22}));
}

TEST(Smoke, JitCompilesOnceForEachType) {
  int traced = 0;
  auto f = jit([&](Tensor x) {
    ++traced;
    return x * x;
  });
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 9);
  EXPECT_EQ(f(Tensor(4.0f)).item<float>(), 16);
  EXPECT_EQ(f(Tensor(4)).item<int>(), 16);
  EXPECT_EQ(traced, 2);
}

TEST(Smoke, ArgumentsAndResultsAreContainers) {
  struct Line {
    Tensor slope, offset;
  };
  auto f = jit([](Line line, std::vector<Tensor> xs) {
    for (Tensor& x : xs) x = x * line.slope + line.offset;
    return xs;
  });
  auto ys = f({Tensor(2.0f), Tensor(1.0f)}, {Tensor(3.0f), Tensor(4.0f)});
  EXPECT_EQ(ys[0].item<float>(), 7);
  EXPECT_EQ(ys[1].item<float>(), 9);
}

TEST(Smoke, ACallLeavesTheProgramAndComesBack) {
  auto f = jit([](Tensor x) {
    Tensor y = call(
        x.type(),
        [](View<const float> in, View<float> out) {
          for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] + 10;
        },
        x * 2.0f);
    return sum(y);
  });
  EXPECT_EQ(f(tensor<float>({1, 2, 3})).item<float>(), 42);
}

TEST(Smoke, ACallReturnsByValue) {
  auto f = jit([](Tensor x) {
    return call(
        type<double>(), [](float v) { return double(v) / 2; }, x);
  });
  EXPECT_EQ(f(Tensor(3.0f)).item<double>(), 1.5);
}

TEST(Smoke, ACallHasState) {
  int count = 0;
  auto f = jit([&](Tensor x) { return x + call(type<int>(), [&] { return ++count; }); });
  EXPECT_EQ(f(Tensor(10)).item<int>(), 11);
  EXPECT_EQ(f(Tensor(10)).item<int>(), 12);
}

TEST(Smoke, TracingRunsNoHostFunction) {
  int count = 0;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          ++count;
          return v;
        },
        x);
  });
  EXPECT_TRUE(has(f.lower(Tensor(1.0f)).stablehlo(), "stablehlo.custom_call"));
  EXPECT_TRUE(has(f.program(Tensor(1.0f)).text(), "smoke_test.cc"));
  EXPECT_EQ(count, 0);
}

TEST(Smoke, EffectsSayWhetherAnUnusedCallRuns) {
  int pure = 0, kept = 0;
  auto f = jit([&](Tensor x) {
    call(
        x.type(),
        [&](float v) {
          ++pure;
          return v;
        },
        x);
    call(
        {.effect = Effect::ordered}, x.type(),
        [&](float v) {
          ++kept;
          return v;
        },
        x);
    return x;
  });
  f(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(pure, 0);
  EXPECT_EQ(kept, 1);
}

TEST(Smoke, ACallKnowsWhereItWasWritten) {
  std::string told;
  auto f = jit([&](Tensor x) {
    return call(
        {.name = "spy"}, x.type(),
        [&](const CallInfo& info, float v) {
          told = std::string(info.name) + " " + to_string(info.place);
          return v;
        },
        x);
  });
  f(Tensor(1.0f)).block_until_ready();
  EXPECT_TRUE(has(told, "spy smoke_test.cc:")) << told;
}

TEST(Smoke, AnExceptionReachesTheCaller) {
  auto f = jit([](Tensor x) {
    return call(
        {.name = "lookup"}, x.type(),
        [](float) -> float { throw std::out_of_range("no such key"); }, x);
  });
  const auto e = test::error_of<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "lookup") && has(e->what(), "no such key") &&
              has(e->what(), "smoke_test.cc"))
      << e->what();
  EXPECT_TRUE(test::cause_of<std::out_of_range>(*e));
}

TEST(Smoke, AMistakeIsFoundWhileTracing) {
  auto f = jit([](Tensor x) {
    return call(
        {.name = "typed"}, x.type(), [](View<const double>, View<float>) {}, x);
  });
  test::expect_error<TypeError>([&] { f(Tensor(1.0f)); }, {"typed", "f64", "f32"},
                                ErrorCode::invalid_argument);
}

TEST(Smoke, ASlowCallHasALimit) {
  using namespace std::chrono_literals;
  auto f = jit([](Tensor x) {
    return call(
        {.name = "slow", .timeout = 20ms}, x.type(),
        [](const CallInfo& info, float v) {
          while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
          return v;
        },
        x);
  });
  test::expect_error<TimeoutError>([&] { f(Tensor(1.0f)).item<float>(); }, {"slow", "20 ms"},
                                   ErrorCode::timeout);
}

TEST(Smoke, AHostFunctionRunsPrograms) {
  auto inner = jit([](Tensor x) { return x * 2.0f + 1.0f; });
  auto outer = jit([&](Tensor x) {
    return call(
        x.type(), [&](float v) { return inner(Tensor(v)).item<float>(); }, x);
  });
  EXPECT_EQ(outer(Tensor(3.0f)).item<float>(), 7);
}

TEST(Smoke, ARunIsStartedAndWaitedFor) {
  auto f = jit([](Tensor x) { return x + 1; });
  auto run = f.start(Tensor(1));
  EXPECT_EQ(run.wait(), RunStatus::done);
  EXPECT_EQ(run.result().item<int>(), 2);
}

TEST(Smoke, AHostFunctionEndsTheRun) {
  auto f = jit([](Tensor x) {
    return call(
        x.type(),
        [](const CallInfo& info, float v) {
          info.end_run();
          return v;
        },
        x);
  });
  EXPECT_EQ(f.start(Tensor(1.0f)).wait(), RunStatus::stopped);
}

TEST(Smoke, FunctionsHaveNames) {
  register_function("smoke.scale", [](const Attributes& a, float v) {
    return v * float(a.get<std::int64_t>("factor"));
  });
  auto f = jit([](Tensor x) { return call(x.type(), Named{"smoke.scale", {{"factor", 3}}}, x); });
  EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 6);
  EXPECT_TRUE(unregister_function("smoke.scale"));
}

TEST(Smoke, IndexAndClassify) {
  Tensor rows = tensor<float>({1, 2, 3, 4, 5, 6}, {3, 2});
  EXPECT_EQ(take(rows, tensor<int>({2, 0})).to_vector<float>(), (Floats{5, 6, 1, 2}));
  EXPECT_EQ(argmax(softmax(rows)).to_vector<int>(), (std::vector<int>{1, 1, 1}));
  EXPECT_EQ(one_hot(tensor<int>({1}), 3).to_vector<float>(), (Floats{0, 1, 0}));
}

TEST(Smoke, NothingIsLeftRunning) {
  std::atomic<int> done = 0;
  auto f = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](float v) {
          ++done;
          return v;
        },
        x);
  });
  for (int i = 0; i < 4; ++i) f(Tensor(1.0f));
  barrier();
  EXPECT_EQ(done, 4);
}

}  // namespace
}  // namespace postern
