// Tracing: what is written down, merged, dropped.
#include "support.h"

#include <ctime>

namespace postern {
namespace {

using test::expect_error, test::has;

template <class F, class... A>
TracedProgram traced(F f, A... arguments) {
  auto program = jit(f).program(arguments...);
  program.verify();
  return program;
}
const Type scalar = type<float>();

TEST(Trace, EqualPureEquationsBecomeOne) {
  EXPECT_EQ(traced([](Tensor x) { return (x + 1.0f) * (x + 1.0f); }, abstract(scalar)).equations(),
            3u)
      << "the literal, one sum, the product";
  EXPECT_EQ(
      traced([](Tensor x) { return sin(cos(x)) + sin(cos(x)); }, abstract(scalar)).equations(), 3u);
  EXPECT_EQ(traced([](Tensor x) { return sum(x, {.axes = Dims{0}}) + sum(x, {.axes = Dims{1}}); },
                   abstract(type<float>({2, 2})))
                .equations(),
            3u)
      << "other parameters";
}

TEST(Trace, WhatNobodyUsesIsDropped) {
  EXPECT_EQ(traced(
                [](Tensor x) {
                  exp(sin(cos(x)));
                  return x;
                },
                abstract(scalar))
                .equations(),
            0u);
  int fired = 0;
  auto f = [&](Tensor x) {
    Tensor y = sin(x);  // needed by an effect only
    call(
        {.effect = Effect::unordered}, std::tuple<>(), [&](float) { ++fired; }, y);
    call(
        x.type(), [&](float v) { return v; }, cos(x));
    return x;
  };
  EXPECT_EQ(traced(f, abstract(scalar)).equations(), 2u);
}

TEST(Trace, CallsAreNeverMerged) {
  auto same = [](Effect effect) {
    return traced(
               [=](Tensor x) {
                 auto fn = [](float v) { return v; };
                 return call({.effect = effect}, x.type(), fn, x) +
                        call({.effect = effect}, x.type(), fn, x);
               },
               abstract(scalar))
        .equations();
  };
  EXPECT_EQ(same(Effect::pure), 3u);
  EXPECT_EQ(same(Effect::unordered), 3u);
  EXPECT_EQ(same(Effect::ordered), 3u);
}

TEST(Trace, ConcreteTensorsInsideATraceAreRecorded) {
  RecordProperty("covers", "IR-02");
  int fired = 0;
  const Tensor outside = tensor<float>({1, 2});
  auto f = jit([&](Tensor x) {
    Tensor y = outside * 2.0f;  // only constants, and yet part of the program
    EXPECT_TRUE(y.is_traced());
    call(
        {.effect = Effect::ordered}, std::tuple<>(),
        [&](View<const float> v) { fired += v[1] == 4; }, y);
    return x;
  });
  for (int i = 0; i < 3; ++i) f(Tensor(1.0f)).block_until_ready();
  EXPECT_EQ(fired, 3);
}

TEST(Trace, TypesWithoutValues) {
  auto f = jit([](Tensor x) {
    EXPECT_TRUE(x.is_traced());
    EXPECT_EQ(to_string(x.type()), "f32[2,3]");
    EXPECT_EQ(x.rank(), 2);
    EXPECT_EQ(x.size(), 6);
    return matmul(x, transpose(x));
  });
  const auto program = f.program(abstract(type<float>({2, 3})));
  EXPECT_EQ(program.inputs(), std::vector{type<float>({2, 3})});
  EXPECT_EQ(program.outputs(), std::vector{type<float>({2, 2})});
  EXPECT_FALSE(Tensor(1.0f).is_traced());
}

TEST(Trace, NestedTracesOfOneThread) {
  // A program made while another is traced has nothing of it.
  Tensor result;
  auto f = jit([&](Tensor x) {
    auto inner = jit([](Tensor y) { return y + 1.0f; });
    EXPECT_EQ(inner.program(abstract(scalar)).equations(), 2u);
    return x * 2.0f;
  });
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 6);
  EXPECT_EQ(f.program(Tensor(3.0f)).equations(), 2u);
}

TEST(Trace, ManyThreadsTraceAtOnce) {
  std::atomic<int> right = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int n = 1; n < 12; ++n) {
          auto f = jit([n](Tensor x) {
            for (int i = 0; i < n; ++i) x = sin(x) + float(i);
            return x;
          });
          right +=
              f.program(abstract(type<float>({t + 1}))).outputs().front() == type<float>({t + 1});
        }
      });
  }
  EXPECT_EQ(right, 4 * 11);
}

TEST(Trace, LongProgramsTakeTimeInProportion) {
  const auto processor_seconds = [] {  // other processes may be busy
    timespec spent{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent);
    return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
  };
  auto seconds = [&](int n) {
    const double start = processor_seconds();
    auto f = jit([n](Tensor x) {
      for (int i = 0; i < n; ++i) x = i % 2 ? sin(x) : x * x;
      return x;
    });
    const auto lowered = f.lower(abstract(type<float>({4})));
    EXPECT_EQ(lowered.program().equations(), std::size_t(n));
    return processor_seconds() - start;
  };
  seconds(100);
  const double small = std::min(seconds(1000), seconds(1000)),
               large = std::min(seconds(10'000), seconds(10'000));
  EXPECT_LT(large, 60 * small + 0.05)
      << small << " s for 1000 operations, " << large << " s for 10000";
  EXPECT_LT(large, 5);
}

TEST(Trace, ManyCallsInOneProgram) {
  int entered = 0;
  auto f = jit([&](Tensor x) {
    for (int i = 0; i < 300; ++i)
      x = call(
          x.type(),
          [&](int v) {
            ++entered;
            return v + 1;
          },
          x);
    return x;
  });
  EXPECT_EQ(f(Tensor(0)).item<int>(), 300);
  EXPECT_EQ(entered, 300);
}

/// What becomes of the number as a constant, of a program and outside of one, and as an operand.
template <class Number>
void expect_rounded(DType dtype, Number number, float wanted) {
  const Type t = make_type(dtype, {});
  const auto is = [&](const Tensor& x) {
    const Tensor real_part = is_complex(dtype) ? real(x) : convert<float>(x);
    EXPECT_EQ(real_part.item<float>(), wanted) << number << " as " << to_string(t);
  };
  is(full(t, number));
  is(jit([&](Tensor x) { return full(t, number) + x; })(zeros(t)));
  is(zeros(t) + number);
  is(jit([&](Tensor x) { return x + number; })(zeros(t)));
}

TEST(Trace, IntegersAreRoundedOnce) {
  // Just beside the middle of two numbers of the dtype, by less than a double can tell.
  constexpr std::int64_t one = std::int64_t{1} << 60, above = one + (std::int64_t{1} << 36) + 1;
  constexpr std::int64_t below = one + 3 * (std::int64_t{1} << 36) - 1;
  constexpr std::uint64_t natural = (std::uint64_t{1} << 63) + (std::uint64_t{1} << 39) + 1;
  for (const DType dtype : {DType::f32, DType::c64}) {
    expect_rounded(dtype, above, 0x1.000002p60f);
    expect_rounded(dtype, below, 0x1.000002p60f);
    expect_rounded(dtype, -above, -0x1.000002p60f);
    expect_rounded(dtype, -below, -0x1.000002p60f);
    expect_rounded(dtype, above - 1, 0x1p60f);  // the middle itself, to even
    expect_rounded(dtype, natural, 0x1.000002p63f);
    expect_rounded(dtype, ~std::uint64_t{0}, 0x1p64f);
  }
  expect_rounded(DType::bf16, one + (std::int64_t{1} << 52) + 1, 0x1.02p60f);
  expect_rounded(DType::bf16, one + (std::int64_t{1} << 52), 0x1p60f);
  EXPECT_EQ(full(type<double>(), (std::int64_t{1} << 53) + 3).item<double>(), 0x1.0000000000002p53);
}

}  // namespace
}  // namespace postern
