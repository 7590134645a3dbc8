// jit: what is compiled when, for whom, and what comes back.
#include "support.h"

#include <barrier>
#include <numeric>
#include <set>

#include "run/run_record.h"

namespace postern {
using namespace internal;
namespace {

using test::error_of, test::expect_error, test::has;
using Floats = std::vector<float>;

TEST(Jit, OneProgramForEachTypeAndShape) {
  RecordProperty("covers", "IR-08");
  int traced = 0;
  auto f = jit([&](Tensor x) {
    ++traced;
    return x + x;
  });
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(f(tensor<float>({1, float(i)})).to_vector<float>(), (Floats{2, 2 * float(i)}));
  EXPECT_EQ(traced, 1);
  f(tensor<float>({1, 2, 3}));
  f(tensor<int>({1, 2}));
  f(tensor<float>({1, 2}, {2, 1}));
  EXPECT_EQ(traced, 4);
  f(tensor<int>({3, 4}));
  EXPECT_EQ(traced, 4);
}

TEST(Jit, CopiesShareTheCache) {
  int traced = 0;
  auto f = jit([&](Tensor x) {
    ++traced;
    return x + 1;
  });
  auto g = f;
  f(Tensor(1));
  g(Tensor(1));
  EXPECT_EQ(traced, 1);
}

TEST(Jit, LoweringAndPrintingDoNotCompileTwice) {
  int traced = 0;
  auto f = jit([&](Tensor x) {
    ++traced;
    return x + 1;
  });
  f.program(Tensor(1));
  f.lower(Tensor(1));
  f.compile(abstract(type<int>()));
  f(Tensor(1));
  EXPECT_EQ(traced, 1);
}

// Handlers know a run again by it.
TEST(Jit, NoTwoRunsHaveTheSameMark) {
  std::set<int> marks;
  for (std::uint64_t n = 1; n <= 10'000; ++n) marks.insert(run::mark_of(n));
  for (std::uint64_t n = (1ull << 31) - 10'000; n < 1ull << 31; ++n) marks.insert(run::mark_of(n));
  EXPECT_EQ(marks.size(), 20'000u);
  EXPECT_GT(*marks.begin(), 0);
  for (std::uint64_t n = 1ull << 31; n < (1ull << 31) + 10'000; ++n) EXPECT_LT(run::mark_of(n), 0);
}

TEST(Jit, ThreadsThatSendOneArgument) {
  const auto f = jit([](Tensor x) {
    return call(
        x.type(),
        [](View<const float> a, View<float> b) {
          b[0] = a[0] + 1;
          b[1] = a[1];
        },
        x);
  });
  f(tensor<float>({0, 0})).block_until_ready();
  std::atomic<int> right = 0;
  for (int round = 0; round < 20; ++round) {
    const Tensor x = tensor<float>({static_cast<float>(round), 2});
    std::barrier start(4);
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        start.arrive_and_wait();
        for (int i = 0; i < 5; ++i)
          right += f(x).to_vector<float>() == Floats{static_cast<float>(round + 1), 2};
      });
  }
  EXPECT_EQ(right, 20 * 4 * 5);
}

TEST(Jit, ThreadsThatAskForOneProgramWaitForOneCompilation) {
  RecordProperty("covers", "CALL-18 IR-08");
  std::atomic<int> traced = 0, right = 0;
  auto f = jit([&](Tensor x) {
    ++traced;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return x * 3 + 1;
  });
  std::barrier start(8);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        for (int i = 0; i < 20; ++i) right += f(Tensor(t + i)).item<int>() == 3 * (t + i) + 1;
        right += f(tensor<int>(std::vector<int>(std::size_t(t + 1), 1))).size() ==
                 t + 1;  // and one of its own
      });
  }
  EXPECT_EQ(right, 8 * 21);
  EXPECT_EQ(traced, 1 + 8);
}

TEST(Jit, NewClosuresOfTheSameProgramAreEntered) {
  RecordProperty("covers", "IR-08");
  for (float k : {1.0f, 2.0f, 3.0f}) {
    auto f = jit([=](Tensor x) {
      return call(
          {.name = "same"}, x.type(), [=](float v) { return v + k; }, x);
    });
    EXPECT_EQ(f(Tensor(10.0f)).item<float>(), 10 + k);
  }
}

TEST(Jit, ArgumentsOfEveryKind) {
  EXPECT_EQ(jit([] { return Tensor(5); })().item<int>(), 5);
  EXPECT_EQ(jit([](Tensor a, Tensor b) { return a - b; })(7, 4).item<int>(), 3)
      << "numbers are scalars";
  EXPECT_EQ(jit([](auto a, auto b) { return a * b; })(Tensor(7), 4).item<int>(), 28);
  EXPECT_EQ(jit([](const Tensor& a) { return a + 1; })(Tensor(1)).item<int>(), 2);
  auto many =
      jit([](std::vector<Tensor> xs) { return std::accumulate(xs.begin(), xs.end(), Tensor(0)); });
  EXPECT_EQ(many(std::vector<Tensor>(50, Tensor(2))).item<int>(), 100);
  const Tensor x = tensor<float>({1, 2});
  EXPECT_EQ(jit([](Tensor a, Tensor b, Tensor c) { return a + b + c; })(x, x, x).to_vector<float>(),
            (Floats{3, 6}))
      << "one tensor three times";
}

TEST(Jit, ResultsOfEveryKind) {
  EXPECT_EQ(jit([](Tensor x) { return x; })(Tensor(3)).item<int>(), 3) << "an argument";
  EXPECT_EQ(jit([](Tensor) { return 2.5f; })(Tensor(3)).item<float>(), 2.5f) << "a number";
  const auto [a, b] = jit([](Tensor x) { return std::pair(x, x); })(Tensor(3));
  EXPECT_EQ(a.item<int>() + b.item<int>(), 6) << "one value twice";
  const Tensor constant = tensor<int>({1, 2, 3});
  EXPECT_EQ(jit([&](Tensor) { return constant; })(Tensor(1)).to_vector<int>(),
            (std::vector<int>{1, 2, 3}))
      << "a captured tensor";
  std::vector<Tensor> many =
      jit([](Tensor x) { return std::vector<Tensor>(20, x + 1); })(Tensor(1));
  EXPECT_EQ(many.size(), 20u);
  EXPECT_EQ(many.back().item<int>(), 2);
}

TEST(Jit, CapturedTensors) {
  Tensor small = Tensor(2.0f), large = iota<float>(10'000);
  auto f = jit([&](Tensor x) { return sum(large * small) * x; });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 99'990'000);
  small = Tensor(100.0f);  // the program has the value that it was traced with
  EXPECT_EQ(f(Tensor(2.0f)).item<float>(), 2 * 99'990'000);
  EXPECT_LT(f.lower(Tensor(1.0f)).stablehlo().size(), 20'000u) << "large ones are not written out";
}

TEST(Jit, InsideAnotherIsThePlainFunction) {
  int traced = 0;
  auto inner = jit([&](Tensor x) {
    ++traced;
    return x * 2;
  });
  auto outer = jit([&](Tensor x) { return inner(inner(x)); });
  EXPECT_EQ(outer(Tensor(1)).item<int>(), 4);
  EXPECT_EQ(traced, 2);
  EXPECT_EQ(outer.program(Tensor(1)).equations(), 3u) << "the number and two products";
}

TEST(Jit, DonatedArguments) {
  RecordProperty("covers", "CALL-17");
  auto step = jit([](Tensor state, Tensor x) { return state + x; }, {.donate = {0}});
  Tensor state = zeros(type<float>({10'000})) + 0.0f;
  for (int i = 0; i < 5; ++i) state = step(state, ones(type<float>({10'000})));
  EXPECT_EQ(state.to_vector<float>()[9'999], 5);
  auto both = jit(
      [](std::pair<Tensor, Tensor> p, Tensor x) { return std::pair(p.first * x, p.second + x); },
      {.donate = {0}});
  Tensor a = tensor<float>({1}) + 0.0f, b = tensor<float>({2}) + 0.0f, x = tensor<float>({3});
  const auto [c, d] = both(std::pair(a, b), x);
  EXPECT_EQ(c.item<float>() + d.item<float>(), 8);
  expect_error<TypeError>([&] { a.item<float>(); }, {"donated"});
  expect_error<TypeError>([&] { b.item<float>(); }, {"donated"});
  EXPECT_EQ(x.item<float>(), 3);
  for (int wrong : {-1, 2})
    expect_error<TypeError>(
        [&] { jit([](Tensor u, Tensor v) { return u + v; }, {.donate = {wrong}})(x, x); },
        {"donate", std::to_string(wrong), "2"});
}

TEST(Jit, DonatedArgumentsInEveryMode) {
  auto add = [](Tensor v) { return v + call(type<float>(), [] { return 1.0f; }); };
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(static_cast<int>(mode));
    auto f = jit(add, {.mode = mode, .donate = {0}});
    const Tensor x = tensor<float>({1, 2}), y = tensor<float>({3, 4});
    EXPECT_EQ(f(x).to_vector<float>(), (std::vector<float>{2, 3}));
    expect_error<TypeError>([&] { x.to_vector<float>(); }, {"donated", "f32[2]"});
    expect_error<TypeError>([&] { f(x); }, {"donated", "f32[2]"});
    EXPECT_EQ(f.start(y).result().to_vector<float>(), (std::vector<float>{4, 5}));
    expect_error<TypeError>([&] { y.to_vector<float>(); }, {"donated", "f32[2]"});
    for (const int one : {0, 1}) {
      auto sum = jit([](Tensor a, Tensor b) { return a + b; }, {.mode = mode, .donate = {one}});
      const Tensor z = tensor<float>({5, 6});
      expect_error<TypeError>([&] { sum(z, z); }, {"donated", "given it twice", "f32[2]"});
      EXPECT_EQ(z.to_vector<float>()[1], 6) << "nothing ran";
    }
  }
  const Tensor number(2.0f);
  jit([](Tensor a) { return a + 1.0f; }, {.donate = {0}})(number);
  expect_error<TypeError>([&] { jit([=](Tensor a) { return a * number; })(Tensor(1.0f)); },
                          {"donated", "f32[]"});
}

struct Weights {
  Tensor w, b;
};

TEST(Jit, ResultsThatAreDonatedArgumentsLive) {
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(static_cast<int>(mode));
    auto f = jit(
        [](Weights s, Tensor g) {
          s.w = s.w - g;
          return s;
        },
        {.mode = mode, .donate = {0}});
    Weights s{tensor<float>({5, 6}), tensor<float>({7, 8})};  // in the host's memory
    for (int i = 0; i < 3; ++i) {
      const Weights before = s;
      s = f(s, 1.0f);
      expect_error<TypeError>([&] { before.b.to_vector<float>(); }, {"donated"});
    }
    EXPECT_EQ(s.w.to_vector<float>(), (Floats{2, 3}));
    EXPECT_EQ(s.b.to_vector<float>(), (Floats{7, 8}));
    auto lives = [&](auto same) {
      auto g = jit(same, {.mode = mode, .donate = {0}});
      for (const bool computed : {false, true}) {
        Tensor x = tensor<float>({1, 2, 3});
        if (computed) x = x + 0.0f;
        const Tensor y = g(x), z = g(y);  // the result may be donated in its turn
        EXPECT_EQ(z.to_vector<float>(), (Floats{1, 2, 3}));
        for (const Tensor& gone : {x, y})
          expect_error<TypeError>([&] { gone.to_vector<float>(); }, {"donated"});
      }
    };
    lives([](Tensor x) { return reshape(x, {3}); });
    lives([](Tensor x) { return convert<float>(x); });
    lives([](Tensor x) { return x[{0, 3}]; });
    lives([](Tensor x) { return stop_gradient(x); });
    lives([](Tensor x) { return hook("x", x); });
    lives([](Tensor x) { return tap(x, [](View<const float>) {}); });
    lives([](Tensor x) {
      const Tensor yes = call(type<bool>(), [] { return true; });
      return cond(
          yes, [](Tensor v) { return v; }, [](Tensor v) { return v * 2.0f; }, x);
    });
    lives([](Tensor x) {
      return while_loop([](Tensor n, Tensor) { return n < 0; },
                        [](Tensor n, Tensor v) {
                          return std::pair{n + 1, v * 2.0f};
                        },
                        std::pair{Tensor(0), x})
          .second;
    });
    const auto twice = jit([](Tensor x) { return std::pair{x, x}; }, {.mode = mode, .donate = {0}});
    const auto [one, other] = twice(tensor<float>({4, 5}) + 0.0f);
    EXPECT_EQ(one.to_vector<float>(), other.to_vector<float>());
  }
}

TEST(Jit, WhatAFunctionCapturesIsNotDonatedToIt) {
  const Type type = postern::type<float>({100'000});  // too large to be written into the program
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(static_cast<int>(mode));
    const Tensor x = ones(type) + 0.0f;
    auto f = jit([x](Tensor y) { return sum(x + y); }, {.mode = mode, .donate = {0}});
    expect_error<TypeError>([&] { f(x); }, {"donated", "given it twice", "f32[100000]"});
    EXPECT_EQ(x.to_vector<float>()[5], 1) << "nothing ran";
    EXPECT_EQ(f(ones(type)).item<float>(), 200'000);
    EXPECT_EQ(f(ones(type)).item<float>(), 200'000);
  }
}

TEST(Jit, ManyArgumentsAreAllCounted) {
  auto sum = jit([](auto... x) { return (x + ...); }, {.donate = {16}});
  const Tensor one(1.0f), last = tensor<float>({2});
  EXPECT_EQ(sum(one, one, one, one, one, one, one, one, one, one, one, one, one, one, one, one,
                last, one, one)
                .item<float>(),
            20);
  expect_error<TypeError>([&] { last.item<float>(); }, {"donated"});
}

TEST(Jit, BorrowedMemoryIsNotWrittenByADonation) {
  const std::int64_t n = 10'000;
  const std::shared_ptr<float> memory(
      static_cast<float*>(std::aligned_alloc(64, std::size_t(n) * 4)), std::free);
  std::fill_n(memory.get(), n, 1.0f);
  const Tensor x = Tensor::borrow(type<float>({n}), memory.get(), {});
  EXPECT_EQ(jit([](Tensor v) { return v + 1.0f; }, {.donate = {0}})(x).to_vector<float>()[5], 2);
  EXPECT_EQ(std::count(memory.get(), memory.get() + n, 1.0f), n);
}

TEST(Jit, BorrowedMemoryIsReleasedOnce) {
  alignas(64) static float memory[4096] = {1, 2};
  for (const float* at : {memory, memory + 1}) {  // aligned, and not
    std::atomic<int> released = 0;
    {
      Tensor x = Tensor::borrow(type<float>({4000}), at, [&] { ++released; });
      EXPECT_EQ(jit([](Tensor v) { return v * 2.0f; })(x).to_vector<float>()[0], 2 * at[0]);
      EXPECT_EQ(released, 0);
      EXPECT_EQ(x.to_vector<float>()[0], at[0]);
    }
    EXPECT_TRUE(test::wait_until([&] { return released == 1; }));
  }
}

TEST(Jit, Modes) {
  auto f = [](Tensor x) {
    return sum(x * x) + call(
                            type<float>(), [](View<const float> v) { return v[0]; }, x);
  };
  const Tensor x = tensor<float>({1, 2, 3});
  EXPECT_EQ(jit(f)(x).item<float>(), 15);
  EXPECT_EQ(jit(f, {.mode = Mode::evaluate})(x).item<float>(), 15);
  EXPECT_EQ(f(x).item<float>(), 15);
}

TEST(Jit, CompiledProgramsTellOfThemselves) {
  auto f = jit([](Tensor x) { return sum(sin(x)); }, {.name = "wave"});
  const Tensor x = ones(type<float>({100}));
  EXPECT_TRUE(has(f.lower(x).stablehlo(), "@wave"));
  EXPECT_TRUE(has(f.program(x).text(), "wave("));
  EXPECT_FALSE(f.compile(x).optimized().empty());
  EXPECT_EQ(f.lower(x).outputs(), std::vector{type<float>()});
  EXPECT_GE(f.compile(x).temporary_bytes(), -1);
}

TEST(Jit, ProgramsWithoutCallsHaveNothingExtra) {
  RecordProperty("covers", "IR-07");
  auto parameters = [](const auto& lowered) {
    const std::string& text = lowered.stablehlo();
    const std::string head = text.substr(
        text.find("@main("), text.find("->", text.find("@main(")) - text.find("@main("));
    return std::count(head.begin(), head.end(), '%');
  };
  auto plain = jit([](Tensor x) { return x + 1; }).lower(Tensor(1));
  EXPECT_EQ(parameters(plain), 1);
  EXPECT_FALSE(has(plain.stablehlo(), "custom_call"));
  EXPECT_EQ(parameters(jit([](Tensor x) {
                         return call(
                             x.type(), [](int v) { return v; }, x);
                       }).lower(Tensor(1))),
            1);
}

TEST(Jit, UnusedArgumentsAreNoTrouble) {
  auto f = jit([](Tensor, Tensor y, Tensor) { return y; });
  EXPECT_EQ(f(Tensor(1), Tensor(2), ones(type<float>({3}))).item<int>(), 2);
  auto g = jit([](Tensor x) {
    call(type<int>(), [] { return 4; });
    return x;
  });
  EXPECT_EQ(g(Tensor(1)).item<int>(), 1);
}

TEST(Jit, ResultsUsedBeforeTheyAreReady) {
  auto heavy = jit([](Tensor x) { return sin(x) * cos(x) + x; });
  Tensor x = ones(type<float>({1 << 18}));
  for (int i = 0; i < 20; ++i) x = heavy(x) * 0.5f;
  EXPECT_TRUE(std::isfinite(x.to_vector<float>().back()));
}

}  // namespace
}  // namespace postern
