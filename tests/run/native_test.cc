// Programs as functions of the caller's memory.
#include <gtest/gtest.h>
#include <postern/c.h>
#include <postern/postern.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "support.h"

namespace pn = postern;

namespace {

/// Memory from the heap that is aligned to 64 bytes, or off by some.
template <class T>
class Memory {
 public:
  explicit Memory(std::size_t count, std::size_t off = 0) : all_(count + 64 / sizeof(T) + off) {
    void* at = all_.data();
    std::size_t room = all_.size() * sizeof(T);
    begin_ = static_cast<T*>(std::align(64, (count + off) * sizeof(T), at, room)) + off;
  }
  T* data() { return begin_; }
  T& operator[](std::size_t i) { return begin_[i]; }

 private:
  std::vector<T> all_;
  T* begin_;
};

TEST(Native, GivesWhatTheProgramGives) {
  auto energy = [](pn::Tensor x) { return 0.5 * pn::sum(x * x * x); };
  const pn::Native f = pn::native(pn::value_and_grad(energy), pn::type<double>({3}));
  EXPECT_EQ(pn::to_string(f.inputs()), "(f64[3])");
  EXPECT_EQ(pn::to_string(f.outputs()), "(f64[], f64[3])");
  for (const double scale : {1.0, 2.0, -3.0}) {
    const double x[] = {1 * scale, 2 * scale, 3 * scale};
    double value = 0;
    std::array<double, 3> slope = {};
    const void* in[] = {x};
    void* out[] = {&value, slope.data()};
    f(in, out);
    EXPECT_DOUBLE_EQ(value, 18 * std::pow(scale, 3));
    EXPECT_DOUBLE_EQ(slope[2], 13.5 * scale * scale);
  }
}

/// Small and large, aligned or not, the same memory again with other numbers, other memory.
TEST(Native, ReadsArgumentsWhereverTheyAre) {
  for (const std::int64_t n : {1, 7, 1024, 40'000}) {
    const auto count = static_cast<std::size_t>(n);
    const pn::Native f = pn::native(
        [](pn::Tensor x, pn::Tensor y) {
          return std::pair{2 * x + y, pn::sum(x)};
        },
        pn::type<float>({n}), pn::type<float>({n}));
    for (const std::size_t off : {0, 1, 3}) {
      Memory<float> x(count, off), y(count, off), z(count, off);
      float sum = 0;
      for (int turn = 0; turn < 4; ++turn) {
        for (std::size_t i = 0; i < count; ++i) {
          x[i] = static_cast<float>(turn + 1);
          y[i] = static_cast<float>(i % 5);
        }
        const void* const in[] = {turn == 2 ? y.data() : x.data(), y.data()};
        void* const out[] = {z.data(), &sum};
        f(in, out);
        const float factor = turn == 2 ? 3 : 1, plus = turn == 2 ? 0 : 2 * float(turn + 1);
        for (std::size_t i = 0; i < count; ++i)
          ASSERT_EQ(z[i], factor * y[i] + plus) << n << " " << off << " " << turn << " " << i;
      }
    }
  }
}

/// Each dtype there and back, to the bit.
TEST(Native, TakesEveryDtype) {
  for (int d = 0; d < pn::dtype_count; ++d) {
    const auto dtype = static_cast<pn::DType>(d);
    if (dtype == pn::DType::token || pn::byte_width(dtype) == 0) continue;
    for (const std::int64_t n : {0, 5, 9000}) {
      const pn::Type type = pn::make_type(dtype, {n});
      pn::Native f = pn::native([](pn::Tensor x) { return pn::stack({x, x}); }, type);
      Memory<unsigned char> in(type.byte_size() + 1), out(2 * type.byte_size() + 1);
      const bool small = dtype == pn::DType::s2 || dtype == pn::DType::u2 ||
                         dtype == pn::DType::pred || dtype == pn::DType::f4e2m1fn ||
                         dtype == pn::DType::s4 || dtype == pn::DType::u4;
      for (std::size_t i = 0; i < type.byte_size(); ++i)
        in[i] = static_cast<unsigned char>(small ? i % 2 : i % 47);
      const void* const from[] = {in.data()};
      void* const to[] = {out.data()};
      f(from, to);
      for (std::size_t i = 0; i < 2 * type.byte_size(); ++i)
        ASSERT_EQ(out[i], in[i % type.byte_size()]) << pn::to_string(type) << " " << i;
    }
  }
}

TEST(Native, TakesAnyByteButZeroForTrue) {
  const pn::Native f =
      pn::native([](pn::Tensor x) { return pn::sum(pn::convert<int>(x)); }, pn::type<bool>({6000}));
  Memory<unsigned char> x(6000);
  for (std::size_t i = 0; i < 6000; ++i) x[i] = static_cast<unsigned char>(i % 3);
  int sum = 0;
  const void* const in[] = {x.data()};
  void* const out[] = {&sum};
  f(in, out);
  EXPECT_EQ(sum, 4000);
}

/// Over memory that is aligned or not, or an argument's.
TEST(Native, WritesResultsAlsoWhereArgumentsAre) {
  constexpr std::int64_t n = 20'000;
  const pn::Native f = pn::native(
      [](pn::Tensor x, pn::Tensor y) {
        return std::tuple{y, x, pn::sum(x), x + y, pn::convert<double>(x), x};
      },
      pn::type<float>({n}), pn::type<float>({n}));
  for (const std::size_t off : {0, 1}) {
    Memory<float> x(n, off), y(n, off), a(n, off), b(n), c(n, off), e(n);
    Memory<double> d(n, off);
    for (int turn = 0; turn < 3; ++turn) {
      for (int i = 0; i < n; ++i) {
        x[std::size_t(i)] = float(i % 7);
        y[std::size_t(i)] = float(turn);
      }
      float sum = 0;
      const void* const in[] = {x.data(), y.data()};
      // Once the results go where the arguments are.
      void* const out[] = {turn == 2 ? x.data() : a.data(), b.data(), &sum,
                           turn == 2 ? y.data() : c.data(), d.data(), e.data()};
      f(in, out);
      for (int i = 0; i < n; ++i) {
        const float was = float(i % 7);
        ASSERT_EQ(static_cast<float*>(out[0])[i], float(turn)) << off << " " << turn << " " << i;
        ASSERT_EQ(b[std::size_t(i)], was);
        ASSERT_EQ(static_cast<float*>(out[3])[i], was + float(turn));
        ASSERT_EQ(d[std::size_t(i)], double(was));
        ASSERT_EQ(e[std::size_t(i)], was);
      }
      EXPECT_EQ(sum, 59997);
    }
  }
}

// What a program may write over is a run's own; here arguments are the caller's, or kept.
TEST(Native, WritesOverNoArgumentThatIsDonated) {
  for (const std::size_t count : {100, 20'000}) {
    const auto type = pn::type<float>({static_cast<std::int64_t>(count)});
    const auto plus_one = pn::jit([](pn::Tensor x) { return x + 1.0f; }, {.donate = {0}});
    const pn::Native f = pn::native(plus_one.lower(pn::abstract(type)));
    Memory<float> x(count), y(count);
    for (int turn = 0; turn < 4; ++turn) {
      std::fill_n(x.data(), count, static_cast<float>(turn));
      const void* in[] = {x.data()};
      void* out[] = {y.data()};
      f(in, out);
      EXPECT_EQ(x[count - 1], static_cast<float>(turn));
      EXPECT_EQ(y[0], static_cast<float>(turn + 1));
      EXPECT_EQ(y[count - 1], static_cast<float>(turn + 1));
    }
  }
}

TEST(Native, BindsWhatItCaptures) {
  const pn::Tensor weights = pn::full(pn::type<float>({300, 4}), 0.5f);
  const pn::Native f =
      pn::native([&](pn::Tensor x) { return pn::dot(x, weights); }, pn::type<float>({300}));
  ASSERT_EQ(f.inputs().size(), 1U);
  std::vector<float> x(300, 1), y(4);
  const void* const in[] = {x.data()};
  void* const out[] = {y.data()};
  f(in, out);
  EXPECT_EQ(y, std::vector<float>(4, 150));
}

TEST(Native, RefusesWhatPointsNowhere) {
  const pn::Native f = pn::native(
      [](pn::Tensor x, pn::Tensor y) {
        return std::pair{x, y + 1};
      },
      pn::type<float>({0}), pn::type<int>());
  int y = 4, z = 0;
  const void* in[] = {nullptr, &y};  // the first has no elements
  void* out[] = {nullptr, &z};
  f(in, out);
  EXPECT_EQ(z, 5);
  in[1] = nullptr;
  pn::test::expect_error<pn::TypeError>([&] { f(in, out); }, {"argument 1", "s32[]", "nowhere"});
  in[1] = &y;
  out[1] = nullptr;
  pn::test::expect_error<pn::TypeError>([&] { f(in, out); }, {"result 1", "s32[]", "nowhere"});
  out[1] = &z;
  y = 6;
  f(in, out);
  EXPECT_EQ(z, 7);
}

TEST(Native, ThreadsCallItAtOnce) {
  const pn::Native f =
      pn::native([](pn::Tensor x) { return pn::cumsum(x, 0); }, pn::type<double>({1000}));
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 24; ++t)  // more than sets of buffers that are kept
    threads.emplace_back([&, t] {
      Memory<double> x(1000), y(1000);
      for (int turn = 0; turn < 50; ++turn) {
        for (std::size_t i = 0; i < 1000; ++i) x[i] = t + turn;
        const void* const in[] = {x.data()};
        void* const out[] = {y.data()};
        f(in, out);
        if (y[999] != 1000.0 * (t + turn)) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

/// A program with host functions is a run like any other: they are entered, and what they throw
/// arrives.
TEST(Native, CallsHostFunctions) {
  if (pn::test::skipped_in_stages("it is one program")) return;
  std::atomic<int> calls = 0;
  const pn::Native f = pn::native(
      [&](pn::Tensor x) {
        return pn::call(
            x.type(),
            [&](pn::View<const float> in, pn::View<float> out) {
              ++calls;
              if (in[0] < 0) throw std::range_error("below zero");
              out[0] = std::sqrt(in[0]);
            },
            x);
      },
      pn::type<float>({1}));
  float x = 9, y = 0;
  const void* const in[] = {&x};
  void* const out[] = {&y};
  f(in, out);
  EXPECT_EQ(y, 3);
  x = -1;
  EXPECT_THROW(f(in, out), pn::CallbackError);
  const auto [function, self] = f.entry();
  EXPECT_EQ(function(self, in, out), PN_THREW);
  EXPECT_NE(std::string(pn_last_error()).find("below zero"), std::string::npos);
  x = 4;
  EXPECT_EQ(function(self, in, out), PN_OK);
  EXPECT_EQ(y, 2);
  EXPECT_EQ(calls, 4);
}

/// From inside of a host function, whose run has the device's lane.
TEST(Native, IsCalledByAHostFunction) {
  const pn::Native inner = pn::native([](pn::Tensor x) { return x * x; }, pn::type<float>({4}));
  auto outer = pn::jit([&](pn::Tensor x) {
    return pn::call(
        x.type(),
        [&](pn::View<const float> in, pn::View<float> out) {
          const void* const from[] = {in.data()};
          void* const to[] = {out.data()};
          for (int i = 0; i < 3; ++i) inner(from, to);
        },
        x);
  });
  EXPECT_EQ(outer(pn::tensor<float>({1, 2, 3, 4})).to_vector<float>(),
            (std::vector<float>{1, 4, 9, 16}));
}

const char* const scaled = R"(
func.func @main(%x: tensor<3xf64>, %w: tensor<3xf64>, %n: tensor<i32>)
    -> (tensor<f64>, tensor<i32>) {
  %c = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = stablehlo.multiply %x, %w : tensor<3xf64>
  %1 = stablehlo.multiply %0, %x : tensor<3xf64>
  %2 = stablehlo.reduce(%1 init: %c) applies stablehlo.add across dimensions = [0]
      : (tensor<3xf64>, tensor<f64>) -> tensor<f64>
  return %2, %n : tensor<f64>, tensor<i32>
})";

TEST(Native, TakesLoadedPrograms) {
  const pn::Loaded program = pn::load_text(scaled);
  program.compile();
  const pn::Native f = pn::native(program);
  const double x[] = {1, 2, 3}, w[] = {1, 0.5, 2};
  const int n = 7;
  double y = 0;
  int m = 0;
  const void* const in[] = {x, w, &n};
  void* const out[] = {&y, &m};
  f(in, out);
  EXPECT_EQ(y, 21);
  EXPECT_EQ(m, 7);
  pn::test::expect_error<pn::TypeError>(
      [&] { static_cast<void>(pn::native(program, {pn::type<double>({3})})); },
      {"takes 3 arguments"});
}

TEST(Native, TakesProgramsOfOpenSizesAtOne) {
  const pn::Loaded program = pn::load_text(R"(
func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
  %0 = stablehlo.add %x, %x : tensor<?xf32>
  return %0 : tensor<?xf32>
})");
  program.compile();  // nothing yet
  const pn::Native f = pn::native(program, {pn::type<float>({2})});
  const float x[] = {1, 2};
  float y[2];
  const void* const in[] = {x};
  void* const out[] = {y};
  f(in, out);
  EXPECT_EQ(y[1], 4);
  EXPECT_THROW(pn::native(program), pn::TypeError);
}

/// What C has.
class NativeInC : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pn_load_text(scaled, std::strlen(scaled), &program_), PN_OK) << pn_last_error();
  }
  void TearDown() override {
    pn_native_free(function_);
    pn_program_free(program_);
  }
  int make(pn_native_options options) {
    options.size = sizeof options;
    return pn_native_of(program_, &options, &function_);
  }
  int call(std::vector<const void*> in, std::vector<void*> out) {
    return pn_native_call(function_, in.data(), out.data());
  }
  pn_program* program_ = nullptr;
  pn_native* function_ = nullptr;
  double x_[3] = {1, 2, 3}, w_[3] = {1, 0.5, 2};
  int n_ = 7, m_ = 0;
  double y_ = 0;
};

TEST_F(NativeInC, Value) {
  ASSERT_EQ(pn_native_of(program_, nullptr, &function_), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_native_inputs(function_), 3U);
  EXPECT_STREQ(pn_native_input(function_, 1), "f64[3]");
  EXPECT_STREQ(pn_native_output(function_, 1), "s32[]");
  EXPECT_EQ(pn_native_output(function_, 2), nullptr);
  EXPECT_EQ(call({x_, w_, &n_}, {&y_, &m_}), PN_OK) << pn_last_error();
  EXPECT_EQ(y_, 21);
  EXPECT_EQ(m_, 7);
}

TEST_F(NativeInC, ValueAndGradientByWhatIsFree) {
  pn_tensor* w = nullptr;
  const std::int64_t dims[] = {3};
  const pn_array array = {PN_F64, 1, dims, w_, sizeof w_};
  ASSERT_EQ(pn_tensor_copy(&array, &w), PN_OK);
  const pn_tensor* const bound[] = {nullptr, w, nullptr};
  pn_native_options options = {};
  options.derivative = PN_VALUE_AND_GRADIENT;
  options.bound = bound;
  ASSERT_EQ(make(options), PN_OK) << pn_last_error();
  pn_tensor_free(w);
  EXPECT_EQ(pn_native_inputs(function_), 2U);
  EXPECT_EQ(pn_native_outputs(function_), 3U);
  double slope[3];
  EXPECT_EQ(call({x_, &n_}, {&y_, &m_, slope}), PN_OK) << pn_last_error();
  EXPECT_EQ(y_, 21);
  EXPECT_EQ(slope[2], 12);
}

TEST_F(NativeInC, Tangents) {
  pn_native_options options = {};
  options.derivative = PN_JVP;
  ASSERT_EQ(make(options), PN_OK) << pn_last_error();
  EXPECT_EQ(pn_native_inputs(function_), 5U);
  EXPECT_EQ(pn_native_outputs(function_), 3U);
  const double dx[3] = {0, 0, 1}, dw[3] = {1, 0, 0};
  double dy = 0;
  EXPECT_EQ(call({x_, w_, &n_, dx, dw}, {&y_, &m_, &dy}), PN_OK) << pn_last_error();
  EXPECT_EQ(dy, 13);
}

TEST_F(NativeInC, SaysWhatIsWrong) {
  pn_native_options options = {};
  options.derivative = 3;
  EXPECT_EQ(make(options), PN_INVALID_ARGUMENT);
  EXPECT_STREQ(pn_last_error(), "pn_native_of: there is no derivative 3");
  EXPECT_EQ(pn_native_of(nullptr, nullptr, &function_), PN_INVALID_ARGUMENT);
  EXPECT_EQ(pn_native_call(nullptr, nullptr, nullptr), PN_INVALID_ARGUMENT);
  const char* const types[] = {"f64[3]", "f64[4]", "s32[]"};
  options = {};
  options.types = types;
  EXPECT_EQ(make(options), PN_INVALID_ARGUMENT);
  EXPECT_NE(std::string(pn_last_error()).find("f64[4]"), std::string::npos) << pn_last_error();
  ASSERT_EQ(pn_native_of(program_, nullptr, &function_), PN_OK);
  EXPECT_EQ(pn_native_call(function_, nullptr, nullptr), PN_INVALID_ARGUMENT);
}

}  // namespace
