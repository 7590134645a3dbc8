// Traced checks, and values that are kept.
#include "support.h"

namespace postern::test {
namespace {

template <class F>
std::size_t count_lowered(const F& f, const std::string& part, const Tensor& x) {
  const std::string text = f.lower(x).stablehlo();
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
    ++count;
  return count;
}

TEST(Check, FailsTheRunWithItsValuesAndTheChosenException) {
  RecordProperty("covers", "ERR-14");
  auto f = jit([](Tensor x) {
    check<std::range_error>(x > 0.0f, "x was {}", x);
    return x * 2.0f;
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
  for (int i = 0; i < 2; ++i) {
    const auto error = error_of<CallbackError>([&] { f(Tensor(-1.0f)).item<float>(); });
    EXPECT_TRUE(has(error->what(), "x was -1") &&
                has(error->what(), "call 'check' at check_test.cc:"))
        << error->what();
    EXPECT_THROW(std::rethrow_exception(error->cause()), std::range_error);
  }
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 6);
}

TEST(Check, OneElementIsEnoughAndThatThatHoldsCallsNothing) {
  auto f = jit([](Tensor x) {
    check(x < 3.0f, "too large: {v}, at most {:.1f}", 3.0, "v"_a = x);
    return sum(x);
  });
  EXPECT_EQ(f(tensor<float>({1, 2})).item<float>(), 3);
  expect_error<CallbackError>(
      [&] {
        f(tensor<float>({1, 4})).item<float>();
      },
      {"too large: [1. 4.], at most 3.0"});
  EXPECT_EQ(count_lowered(f, "custom_call", tensor<float>({1, 2})), 1u);
  EXPECT_EQ(count_lowered(f, "stablehlo.case", tensor<float>({1, 2})), 1u)
      << "the call is in a branch";
}

TEST(Check, UnderVmapTheElementIsNamed) {
  auto f = jit(vmap([](Tensor x) {
    check(x >= 0.0f, "negative: {}", x);
    return x + 1.0f;
  }));
  EXPECT_EQ(f(tensor<float>({1, 2, 3})).to_vector<float>(), (std::vector<float>{2, 3, 4}));
  expect_error<CallbackError>(
      [&] {
        f(tensor<float>({1, -2, 3})).to_vector<float>();
      },
      {"negative: -2 (element 1 of the batch)"});
}

TEST(Check, InLoopsAndUnderGrad) {
  auto loss = [](Tensor x) {
    return fori_loop(
        0, 5,
        [](Tensor i, Tensor v) {
          check(v < 100.0f, "step {}: {}", i, v);
          return v * 3.0f;
        },
        x);
  };
  EXPECT_EQ(jit(grad(loss))(Tensor(0.1f)).item<float>(), 243);
  expect_error<CallbackError>([&] { jit(grad(loss))(Tensor(5.0f)).item<float>(); },
                              {"step 3: 135"});
}

TEST(Check, AtOnceWhereNothingIsTraced) {
  check(Tensor(true), "fine");
  expect_error<CallbackError>([] { check(Tensor(2.0f) < 1.0f, "no: {}", Tensor(2.0f)); },
                              {"no: 2"});
}

TEST(Check, WhatDoesNotFitIsATypeError) {
  expect_error<TypeError>([] { check(Tensor(1.0f), "x"); },
                          {"check", "pred", "f32", "check_test.cc"});
  expect_error<TypeError>([] { check(Tensor(true), "{}"); }, {"{}"});
  expect_error<TypeError>([] { check(Tensor(true), "{:d}", Tensor(1.5f)); },
                          {"check", "{:d}", "f32"});
}

TEST(Check, KeptValuesAreComputed) {
  auto f = jit([](Tensor x) {
    keep(cos(x));
    return x + 1.0f;
  });
  EXPECT_EQ(count_lowered(f, "stablehlo.cosine", Tensor(1.0f)), 1u);
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
}

}  // namespace
}  // namespace postern::test
