// All operations of all dtypes in all ways to run them (tests/programs/sweep.cc), in processes that
// may die. POSTERN_SWEEP in the environment: all of them; else some of each kind.
#include <gtest/gtest.h>
#include <postern/control.h>
#include <postern/linalg.h>
#include <postern/postern.h>
#include <postern/random.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

/// Where the ways differ and stay so, by what a line of the sweep begins with and has in it.
struct Difference {
  const char* begins;
  const char* contains;
  const char* reason;
};
constexpr Difference differences[] = {
    {"bad to_", "f4e2m1fn in a loop: element 1",
     "XLA folds an infinity that f4e2m1fn does not have"},
};

bool on_purpose(const std::string& line) {
  return std::ranges::any_of(differences, [&](const Difference& d) {
    return line.rfind(d.begins, 0) == 0 && line.find(d.contains) != std::string::npos;
  });
}

struct Swept {
  int cases = 0;
  std::string bad;
};

/// The cases from `first` up to `limit` in steps. After one that ends the process, or hangs,
/// another process goes on behind it.
Swept sweep(int first, int limit, int step) {
  Swept all;
  while (first < limit) {
    const auto ended = test::run_program(
        "sweep", {std::to_string(first), std::to_string(limit), std::to_string(step)}, {},
        std::chrono::seconds(580));
    std::istringstream lines(ended.out);
    std::string last;
    bool done = false;
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("case ", 0) == 0) {
        last = line;
        ++all.cases;
      }
      if (line.rfind("bad ", 0) == 0 && !on_purpose(line)) all.bad += line + "\n";
      done = done || line == "done";
    }
    if (done) break;
    all.bad += "ended with " + std::to_string(ended.code) + " in " + last + ": " +
               ended.err.substr(0, 300) + "\n";
    if (last.empty()) break;
    first = std::stoi(last.substr(5)) + step;
  }
  return all;
}

TEST(Sweep, EveryWayOfRunningGivesTheSameNumbers) {
  const bool everything = std::getenv("POSTERN_SWEEP") != nullptr;
  const int cases = std::stoi(test::run_program("sweep").out);
  const int step = everything ? 1 : 61, part = everything ? 100 : cases;
  int tried = 0;
  for (int first = 0; first < cases; first += part) {  // so many at most in one process
    const Swept swept = sweep(first, std::min(first + part, cases), step);
    tried += swept.cases;
    EXPECT_EQ(swept.bad, "");
  }
  EXPECT_GE(tried, cases / step);
}

// What XLA ended the process over, or folded to other numbers.
TEST(Sweep, WhatXlaFoldsWronglyIsRight) {
  for (const char* name :
       {"divide", "remainder", "divide_by_difference", "rest_by_zero", "maximum", "clip",
        "concatenate", "count_leading_zeros", "to_64", "max_axis", "cubed", "inverse", "sum_axis",
        "exp", "expm1", "logistic", "logsumexp", "transpose", "permutation"}) {
    const std::string range = test::run_program("sweep", {name}).out;
    std::istringstream numbers(range);
    int first = 0, limit = 0;
    numbers >> first >> limit;
    ASSERT_GT(limit, first) << name;
    EXPECT_EQ(sweep(first, limit, static_cast<int>(test::stride(3))).bad, "") << name;
  }
}

/// f(x, y) at once, compiled, and of constants.
template <class T>
void expect_values(Tensor (*f)(const Operand&, const Operand&), const std::vector<T>& x,
                   const std::vector<T>& y, const std::vector<T>& want) {
  const Tensor a = tensor<T>(x), b = tensor<T>(y);
  EXPECT_EQ(f(a, b).template to_vector<T>(), want) << "at once";
  EXPECT_EQ(jit([&](Tensor u, Tensor v) { return f(u, v); })(a, b).template to_vector<T>(), want)
      << "compiled";
  EXPECT_EQ(jit([&] { return f(a, b); })().template to_vector<T>(), want) << "of constants";
}

TEST(Sweep, PowersOfIntegersAreExact) {
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
  expect_values<std::int32_t>(pow, {0, 2, 3, 2, -2, 1, -1, -1, 0, 0, 3, -3},
                              {64, 64, 64, -1, 31, -3, -3, -4, -1, 0, 100, least},
                              {0, 0, 2038349057, 0, least, 1, -1, 1, 0, 1, -818408495, 0});
  expect_values<std::int64_t>(pow, {3, 3, -7}, {39, 70, 22},
                              {4052555153018976267, 2293070008301402073, 3909821048582988049});
  expect_values<std::uint8_t>(pow, {3, 2, 255}, {5, 8, 255}, {243, 0, 255});
  const Tensor x = tensor<std::int32_t>({0, -2, 3});
  EXPECT_EQ(pow(x, 5).to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, -32, 243}));
  EXPECT_EQ(jit([](Tensor t) { return pow(t, 64); })(x).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{0, 0, 2038349057}));
  EXPECT_EQ(jit([](Tensor t) { return pow(t, 0); })(x).to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{1, 1, 1}));
}

TEST(Sweep, DivisionsOfIntegersByZero) {
  constexpr std::int32_t least = std::numeric_limits<std::int32_t>::min();
  expect_values<std::int32_t>(divide, {5, -5, 0, least}, {0, 0, 0, -1}, {-1, -1, -1, least});
  expect_values<std::int32_t>(remainder, {5, -5, 0, least}, {0, 0, 0, -1}, {5, -5, 0, 0});
  expect_values<std::uint8_t>(divide, {5, 0}, {0, 0}, {255, 255});
  expect_values<std::uint8_t>(remainder, {5, 0}, {0, 0}, {5, 0});
}

TEST(Sweep, NumbersThatADtypeDoesNotHave) {
  const Tensor x = tensor<std::uint8_t>({1, 2});
  const auto refused = [&](auto f, const char* number) {
    test::expect_error<TypeError>([&] { f(x); }, {"u8", number});
    test::expect_error<TypeError>([&] { jit(f)(x); }, {"u8", number});
  };
  refused([](Tensor t) { return t + 300; }, "300");
  refused([](Tensor t) { return t + (-1); }, "-1");
  refused([](Tensor t) { return t < 256; }, "256");
  EXPECT_EQ((x - 1).to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{0, 1}));
  const auto filled = [&](auto number) {
    const auto at_once = full(x.type(), number).template to_vector<std::uint8_t>();
    EXPECT_EQ(
        jit([&](Tensor t) { return full(t.type(), number); })(x).template to_vector<std::uint8_t>(),
        at_once);
    return at_once[0];
  };
  EXPECT_EQ(filled(300), 44);
  EXPECT_EQ(filled(-1), 255);
  EXPECT_EQ(filled(2.7), 2);
  EXPECT_EQ(filled(300.0), 255);
  EXPECT_EQ(filled(-2.7), 0);
  EXPECT_EQ(filled(std::nan("")), 0);

  // Of these XLA forgets in some programs, and not in others, that the number is rounded to
  // another.
  const auto none = [](DType dtype, double number, const char* text) {
    const Type type{dtype, {2}};
    test::expect_error<TypeError>([&] { full(type, number); }, {to_string(dtype).data(), text});
    test::expect_error<TypeError>([&] { jit([&] { return full(type, number); })(); },
                                  {to_string(dtype).data(), text});
  };
  none(DType::f8e8m0fnu, -1, "-1");
  none(DType::f8e8m0fnu, 0, "0");
  none(DType::f4e2m1fn, std::nan(""), "the number");
  none(DType::f4e2m1fn, INFINITY, "the number");
}

// What LLVM folded to 0 where the loop's steps are known.
TEST(Sweep, AnExponentialOfNanInALoopIsNan) {
  const auto in_a_loop = [](const auto& f, const Tensor& like) {
    const Tensor y = jit([&] {
      return fori_loop(
          0, 2, [&](Tensor, Tensor) { return f(); }, zeros_like(like));
    })();
    return convert(y, DType::f32).to_vector<float>().at(0);
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor captured = tensor<float>({nan, 1, -1}), number(nan);
  const Tensor few = convert(captured, DType::f8e5m2);
  EXPECT_TRUE(std::isnan(in_a_loop([&] { return exp(captured); }, captured)));
  EXPECT_TRUE(std::isnan(in_a_loop([&] { return exp(few); }, few)));
  EXPECT_TRUE(std::isnan(in_a_loop([&] { return exp(-captured) * 2.0f; }, captured)));
  EXPECT_TRUE(std::isnan(in_a_loop([&] { return exp(number); }, number)));
  EXPECT_TRUE(std::isnan(in_a_loop([&] { return logistic(2.0f - number); }, number)));
  EXPECT_TRUE(std::isnan(in_a_loop([&] { return exp(full(captured.type(), nan)); }, captured)));
}

// jax.random.randint(jax.random.PRNGKey(7), (8,), low, high, dtype)
TEST(Sweep, RandomIntegersOfFewBitsAreJaxs) {
  const auto drawn = [](DType dtype, int low, int high) {
    return convert(random::integers(random::key(7), {dtype, {8}}, low, high), DType::s32)
        .to_vector<std::int32_t>();
  };
  using Numbers = std::vector<std::int32_t>;
  EXPECT_EQ(drawn(DType::s8, -5, 100), (Numbers{44, 12, 85, 17, 52, 36, 59, 69}));
  EXPECT_EQ(drawn(DType::u8, 0, 256), (Numbers{31, 102, 124, 237, 222, 102, 108, 146}));
  EXPECT_EQ(drawn(DType::s16, -1000, 30000),
            (Numbers{6799, 26622, 17100, 29637, 622, 28286, 11684, 19954}));
  EXPECT_EQ(drawn(DType::u16, 0, 65536),
            (Numbers{36639, 19814, 20860, 16365, 53470, 62310, 16748, 18834}));
  EXPECT_EQ(drawn(DType::s8, -128, 128), (Numbers{-97, -26, -4, 109, 94, -26, -20, 18}));
}

TEST(Sweep, AMatrixThatIsNotDefiniteHasAFactorOfNanAndZeros) {
  for (const std::int64_t n : {2, 20}) {
    const Tensor a = ones({DType::f64, {n, n}}) - 2 * eye<double>(n);
    const auto l = linalg::cholesky(a).to_vector<double>();
    for (std::size_t i = 0; i < l.size(); ++i)
      EXPECT_EQ(std::isnan(l[i]),
                i % static_cast<std::size_t>(n) <= i / static_cast<std::size_t>(n));
  }
}

TEST(Sweep, TheIndexOfASwitchIsClampedInItsOwnDtype) {
  std::vector<std::function<Tensor(Tensor)>> branches;
  for (int i = 0; i < 130; ++i) branches.emplace_back([i](Tensor x) { return x + i; });
  const auto chosen = [&](const Tensor& index) {
    const auto f = [&](Tensor i) { return switch_(i, branches, Tensor(0)); };
    const int at_once = f(index).item<int>();
    EXPECT_EQ(jit(f)(index).item<int>(), at_once);
    EXPECT_EQ(jit([&] { return f(index); })().item<int>(), at_once);
    return at_once;
  };
  EXPECT_EQ(chosen(Tensor((std::int64_t{1} << 33) + 1)), 129);
  EXPECT_EQ(chosen(Tensor(-(std::int64_t{1} << 33))), 0);
  EXPECT_EQ(chosen(Tensor(std::uint32_t{0xffffffff})), 129);
  EXPECT_EQ(chosen(Tensor(std::uint64_t{1} << 63)), 129);
  EXPECT_EQ(chosen(Tensor(std::int8_t{100})), 100);
  EXPECT_EQ(chosen(Tensor(std::int8_t{-1})), 0);
}

TEST(Sweep, IntegersAreWholeAsTheyAre) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  for (const auto f : {floor, ceil, round})
    EXPECT_EQ(f(tensor<std::int64_t>({big, -3})).to_vector<std::int64_t>(),
              (std::vector<std::int64_t>{big, -3}));
}

}  // namespace
}  // namespace postern
