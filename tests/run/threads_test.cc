// What may be done from several threads at once: everything that is const, for each public type.
#include <unistd.h>

#include <functional>

#include "support.h"

namespace postern {
namespace {

using test::has, test::run_program;
using Floats = std::vector<float>;

constexpr int threads = 8;

/// `act(thread)` on 8 threads that begin together; an exception is a failure.
template <class Act>
void together(Act act) {
  std::atomic<int> ready{0};
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      ++ready;
      while (ready < threads) std::this_thread::yield();
      EXPECT_NO_THROW(act(t));
    });
  for (std::thread& t : all) t.join();
}

/// They may kill the process, so each has one of its own.
class ThreadsTensor : public testing::TestWithParam<const char*> {};

TEST_P(ThreadsTensor, IsAValue) {
  const bool devices = std::string_view(GetParam()) == "devices_capture";
  if (devices && test::skipped_in_stages("a program over several devices is not cut")) return;
  const auto ended =
      run_program("tensor_threads", {GetParam(), "100"}, {}, std::chrono::seconds(600));
  EXPECT_EQ(ended.code, 0) << ended.err;
}

INSTANTIATE_TEST_SUITE_P(Cases, ThreadsTensor,
                         testing::Values("read_result", "read_number", "read_unfinished",
                                         "host_tensor", "copies", "parallel_capture",
                                         "devices_capture", "staged_branches", "staged_operand",
                                         "sharded", "moved", "nested", "donated", "exchanged"),
                         [](const auto& chosen) { return std::string(chosen.param); });

TEST(Threads, ATensorsTypePlaceAndText) {
  const Tensor x = tensor<float>({1, 2, 3}) * 2.0f, none, shape = abstract(type<float>({2}));
  together([&](int) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(to_string(x.type()), "f32[3]");
      EXPECT_EQ(x.dims(), (Dims{3}));
      EXPECT_EQ(x.size(), 3);
      EXPECT_EQ(x.rank(), 1);
      EXPECT_EQ(x.device(), 0);
      EXPECT_TRUE(x.has_value() && !x.is_traced() && !none.has_value() && shape.is_traced());
      x.block_until_ready();
      EXPECT_FALSE(sharding_of(x));
      EXPECT_EQ(shards_of(x).size(), 1u);
      EXPECT_THROW(none.type(), TypeError);
    }
  });
}

TEST(Threads, AFailureIsTheSameForAllWhoWait) {
  const auto f = jit([](Tensor x) {
    return call(
        {}, x.type(), [](float) -> float { throw std::runtime_error("no luck"); }, x);
  });
  for (int i = 0; i < 5; ++i) {
    const auto run = f.start(Tensor(1.0f));
    std::vector<std::string> said(threads);
    together([&](int t) {
      try {
        run.result();
        ADD_FAILURE() << "threw nothing";
      } catch (const CallbackError& e) {
        said[static_cast<std::size_t>(t)] = e.what();
        EXPECT_TRUE(e.cause());
        EXPECT_THROW(std::rethrow_exception(e.cause()), std::runtime_error);
      }
    });
    for (const std::string& s : said) EXPECT_EQ(s, said[0]);
    EXPECT_TRUE(has(said[0], "no luck")) << said[0];
  }
}

TEST(Threads, AJittedFunctionIsCalledTracedAndShown) {
  std::atomic<int> traced{0};
  const auto f = jit([&](Tensor x) {
    ++traced;
    return hook("h", x * 2.0f) + 1.0f;
  });
  together([&](int t) {
    const auto n = static_cast<std::int64_t>(t % 2 + 1);  // two entries of the cache
    const Tensor x = full(type<float>({n}), 3.0f);
    EXPECT_EQ(f(x).to_vector<float>(), Floats(static_cast<std::size_t>(n), 7));
    EXPECT_TRUE(has(f.lower(x).stablehlo(), "stablehlo.multiply"));
    EXPECT_TRUE(has(to_string(f.program(x)), "multiply"));
    EXPECT_EQ(f.hooks(x).size(), 1u);
    EXPECT_FALSE(f.stages(x).empty());
    EXPECT_FALSE(f.compile(x).optimized().empty());
    const auto copy = f;
    EXPECT_EQ(copy.start(x).result().to_vector<float>()[0], 7);
    std::atomic<int> heard{0};
    EXPECT_EQ(f.with_hooks({{"h", [&](AnyView) { ++heard; }}})(x).template to_vector<float>()[0],
              7);
    EXPECT_EQ(heard, 1);
  });
  EXPECT_LE(traced, 2 + threads) << "once for each type, and for each copy with hooks";
}

TEST(Threads, JittedFunctionsOfEachModeAndTransformation) {
  for (const Mode mode : test::all_modes) {
    const auto f =
        jit(grad([](Tensor x) { return sum(tap(x * x, [](AnyView) {})); }), {.mode = mode});
    const auto g = jit(vmap([](Tensor x) { return test::host_plus_one(x); }), {.mode = mode});
    together([&](int t) {
      EXPECT_EQ(f(tensor<float>({1, 2})).to_vector<float>(), (Floats{2, 4}));
      EXPECT_EQ(g(full(type<float>({2}), static_cast<float>(t))).to_vector<float>(),
                Floats(2, static_cast<float>(t + 1)));
    });
  }
}

TEST(Threads, ATracedProgramALoweredOneAndAnExecutable) {
  if (test::skipped_in_stages("it compiles one program that calls")) return;
  const auto f = jit([](Tensor x) { return tap(x + 1.0f, [](AnyView) {}); });
  const TracedProgram program = f.program(Tensor(1.0f));
  const Lowered lowered = f.lower(Tensor(1.0f));
  const Executable executable = f.compile(Tensor(1.0f));
  const std::string text = program.text(), module = lowered.stablehlo(),
                    optimized = executable.optimized();
  const std::int64_t bytes = executable.temporary_bytes();
  together([&](int) {
    EXPECT_EQ(program.text(), text);
    EXPECT_EQ(program.inputs().size(), 1u);
    EXPECT_EQ(program.outputs().size(), 1u);
    EXPECT_GT(program.equations(), 1u);
    EXPECT_EQ(program.effects().size(), 1u);
    program.verify();
    EXPECT_EQ(lowered.stablehlo(), module);
    EXPECT_EQ(lowered.outputs().size(), 1u);
    EXPECT_TRUE(lowered.captures().empty());
    EXPECT_EQ(lowered.program().text(), text);
    EXPECT_EQ(executable.optimized().size(), optimized.size());  // of its maps the order varies
    EXPECT_EQ(executable.temporary_bytes(), bytes);
  });
}

TEST(Threads, ARunIsWaitedForAndCancelledByAll) {
  const auto f = jit([](Tensor x) { return test::host_plus_one(x); });
  for (int i = 0; i < 20; ++i) {
    const auto run = f.start(Tensor(1.0f));
    together([&](int t) {
      const auto copy = run;
      if (t % 2) {
        EXPECT_EQ(copy.wait(), RunStatus::done);
      }
      EXPECT_EQ(copy.result().item<float>(), 2);
      EXPECT_EQ(run.status(), RunStatus::done);
      run.cancel();
    });
  }
  std::atomic<bool> inside{false};
  const auto stuck = jit([&](Tensor x) {
    return call(
        x.type(),
        [&](const CallInfo& info, float v) {
          inside = true;
          test::wait_until([&] { return info.stop.stop_requested(); });
          return v;
        },
        x);
  });
  const auto run = stuck.start(Tensor(1.0f));
  ASSERT_TRUE(test::wait_until([&] { return inside.load(); }));
  together([&](int t) {
    if (t % 2) run.cancel();
    EXPECT_THROW(run.result(), CallbackError);
    EXPECT_EQ(run.status(), RunStatus::cancelled);
  });
}

TEST(Threads, AMeshASpecAndASharding) {
  const Mesh mesh({{"x", 2}, {"y", 4}});
  const P spec("x", "y");
  const Sharding sharding(mesh, spec);
  together([&](int t) {
    for (int i = 0; i < 20; ++i) {
      const Sharding copy = sharding;
      EXPECT_TRUE(copy == sharding && copy.mesh() == mesh && copy.spec() == spec);
      EXPECT_EQ(mesh.size("y"), 4);
      EXPECT_EQ(mesh.coordinates(t), (std::vector<std::int64_t>{t / 4, t % 4}));
      EXPECT_EQ(to_string(sharding.part_type(type<float>({4, 8}))), "f32[2,2]");
      EXPECT_EQ(sharding.part({4, 8}, t)[1].begin, 2 * (t % 4));
      EXPECT_FALSE(sharding.is_replicated());
      EXPECT_EQ(to_string(sharding), to_string(copy));
      EXPECT_EQ(draw(sharding, {4, 8}), draw(copy, {4, 8}));
    }
  });
}

TEST(ThreadsDeathTest, ATraceMayWaitForAThreadThatTracesTheSame) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // what deadlocks is ended by its alarm
  EXPECT_EXIT(
      {
        alarm(200);
        int traces = 0;
        float there = 0;
        std::function<float(float)> again;
        const auto f = jit([&](Tensor x) {
          if (traces++ == 0) std::thread([&] { there = again(4); }).join();
          return x * 2.0f;
        });
        again = [&](float v) { return f(Tensor(v)).item<float>(); };
        const bool right = again(3) == 6 && there == 8 && again(5) == 10 && traces == 2;
        std::_Exit(right ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ThreadsDeathTest, ATraceThatAsksForItselfIsAnError) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        alarm(200);
        std::function<void()> again;
        const auto f = jit([&](Tensor x) {
          again();
          return x * 2.0f;
        });
        again = [&] { f.lower(Tensor(1.0f)); };
        test::expect_error<Error>(again, {"jit", "is being traced", "none of them goes on"});
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Threads, ALoadedProgram) {
  register_function("threads_plus", [](float v) { return v + 1; }, {.replace = true});
  const auto f = jit([](Tensor x) { return call(x.type(), Named{"threads_plus"}, x) * 2.0f; });
  const Loaded loaded = load_text(saved_text(f.lower(Tensor(1.0f))));
  together([&](int t) {
    EXPECT_EQ(loaded(Tensor(static_cast<float>(t)))[0].item<float>(),
              static_cast<float>(2 * t + 2));
    EXPECT_EQ(loaded.start({Tensor(1.0f)}).result()[0].item<float>(), 4);
    EXPECT_EQ(loaded.inputs().size(), 1u);
    EXPECT_EQ(loaded.outputs().size(), 1u);
    EXPECT_EQ(loaded.sites().at(0).function, "threads_plus");
    EXPECT_EQ(loaded.required_functions(), std::vector<std::string>{"threads_plus"});
    EXPECT_TRUE(has(loaded.stablehlo(), "module"));
  });
  unregister_function("threads_plus");
}

TEST(Threads, LinearMapsOfVjpAndLinearize) {
  const auto square = [](Tensor x) { return x * x; };
  const auto [y, pullback] = vjp(square, tensor<float>({1, 2, 3}));
  const auto [z, pushforward] = linearize(square, tensor<float>({1, 2, 3}));
  together([&, &pullback = pullback, &pushforward = pushforward](int t) {
    const auto by = static_cast<float>(t);
    EXPECT_EQ(std::get<0>(pullback(full(type<float>({3}), by))).template to_vector<float>(),
              (Floats{2 * by, 4 * by, 6 * by}));
    EXPECT_EQ(pushforward(full(type<float>({3}), by)).template to_vector<float>(),
              (Floats{2 * by, 4 * by, 6 * by}));
  });
}

TEST(Threads, ListenersOptionsAndTheRegistry) {
  const listen::Stats stats = listen::stats();
  const Attributes attributes{{"factor", 3.0}, {"name", "n"}};
  const CallOptions options{.name = "c", .effect = Effect::unordered};
  const auto f =
      jit([&](Tensor x) { return tap({.name = "seen"}, test::host_plus_one(x, options), stats); });
  together([&](int t) {
    const std::string name = "threads_" + std::to_string(t);
    for (int i = 0; i < 10; ++i) {
      f(Tensor(static_cast<float>(t))).block_until_ready();
      EXPECT_FALSE(stats.table().empty());
      EXPECT_EQ(attributes.get<double>("factor"), 3);
      EXPECT_EQ(attributes.get<std::string>("name"), "n");
      register_function(name, [](float v) { return v; });
      EXPECT_FALSE(registered_functions().empty());
      EXPECT_TRUE(unregister_function(name));
      EXPECT_GE(devices().size(), 1u);
    }
  });
  EXPECT_EQ(stats.series().at(0).firings, 8u * 10);
}

}  // namespace
}  // namespace postern
