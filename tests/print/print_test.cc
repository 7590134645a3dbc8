// Printing: formats, summaries, whole lines.
#include <unistd.h>

#include <limits>
#include <sstream>
#include <thread>

#include "support.h"

namespace postern {
namespace {

using namespace literals;
using test::expect_error, test::has;

struct Named {
  Tensor a, b;
};

/// What `body`, traced with `x` or run at once, printed.
template <class Body>
std::string printed(Body body, const Tensor& x, Mode mode = Mode::automatic) {
  std::ostringstream out;
  auto f = jit(
      [&](Tensor v) {
        body(out, v);
        return v;
      },
      {.mode = mode});
  f(x).block_until_ready();
  return out.str();
}
template <class... Values>
std::string line(const PrintFormat& format, const Values&... values) {
  std::ostringstream out;
  print({.stream = &out}, format, values...);
  return out.str();
}
std::string shown(PrintOptions options, const Tensor& value) {
  std::ostringstream out;
  options.stream = &out;
  print_value(options, value);
  return out.str();
}

TEST(Print, PlaceholdersByPositionNumberAndName) {
  RecordProperty("covers", "PRINT-01");
  auto body = [](std::ostream& out, Tensor x) {
    print({.stream = &out}, "x: {}", x);
    jit([&](Tensor y) {
      print({.stream = &out}, "y: {y} {y:.2f}", "y"_a = y);
      return y;
    })(x);
    print({.stream = &out}, "{1} {0} {{}}", x, x * 2.0f);
  };
  const std::string want = "x: 2\ny: 2 2.00\n4 2 {}\n";
  EXPECT_EQ(printed(body, Tensor(2.0f)), want);
  EXPECT_EQ(printed(body, Tensor(2.0f), Mode::evaluate), want);
  std::ostringstream out;
  body(out, Tensor(2.0f));
  EXPECT_EQ(out.str(), want);
  EXPECT_EQ(line("step {step} loss {loss:.3f}", "loss"_a = Tensor(0.25f), "step"_a = 7),
            "step 7 loss 0.250\n");
}

TEST(Print, KnownValuesAreMixedWithTracedOnes) {
  RecordProperty("covers", "PRINT-08");
  auto body = [](std::ostream& out, Tensor x) {
    print({.stream = &out}, "arr {} dtype {} type {} {} {:>5} {:.1f} {}", x, x.dtype(), x.type(),
          "text", 42, 2.0, true);
  };
  EXPECT_EQ(printed(body, tensor<std::int32_t>({1, 2, 3})),
            "arr [1 2 3] dtype s32 type s32[3] text    42 2.0 true\n");
}

TEST(Print, EveryDtype) {
  EXPECT_EQ(line("{} {}", Tensor(true), Tensor(false)), "true false\n");
  EXPECT_EQ(line("{} {}", Tensor(std::uint64_t{18446744073709551615u}),
                 Tensor(std::int64_t{-9007199254740993})),
            "18446744073709551615 -9007199254740993\n");
  EXPECT_EQ(line("{} {}", Tensor(0.1f), Tensor(0.1)), "0.1 0.1\n");
  EXPECT_EQ(
      line("{} {:.1f}", Tensor(std::complex<float>(1, -2)), Tensor(std::complex<double>(1, 2))),
      "1-2i 1.0+2.0i\n");
  EXPECT_EQ(line("{:#x} {:5d}|", Tensor(255), Tensor(3)), "0xff     3|\n");
  for (DType d : {DType::f16, DType::bf16, DType::f8e5m2, DType::f8e4m3fn, DType::f8e4m3,
                  DType::f8e3m4, DType::f8e5m2fnuz, DType::f8e4m3fnuz, DType::f8e4m3b11fnuz,
                  DType::s2, DType::s4, DType::s8, DType::u16}) {
    std::string text = is_float(d) ? "[ 0.  1. -1.]\n" : "[ 0  1 -1]\n";
    if (is_unsigned(d)) text = "[0 1 0]\n";
    EXPECT_EQ(line("{}", convert(tensor<float>({0, 1, -1.0f * !is_unsigned(d)}), d)), text)
        << to_string(d);
  }
  EXPECT_EQ(line("{}", convert(Tensor(1.5f), DType::f4e2m1fn)), "1.5\n");
}

TEST(Print, ContainersAreNested) {
  RecordProperty("covers", "PRINT-04");
  const Tensor x(3.0f);
  EXPECT_EQ(line("{} {}", std::tuple{x * 2.0f, x * 3.0f}, Named{x * 2.0f, x * 3.0f}),
            "(6, 9) {a=6, b=9}\n");
  EXPECT_EQ(line("{} {}", std::vector{x, x}, std::map<std::string, Tensor>{{"k", x}}),
            "[3, 3] {k=3}\n");
  EXPECT_EQ(line("{:.1f} {}", std::pair{x, std::vector{x}}, std::tuple<>()), "(3.0, [3.0]) ( )\n");
  EXPECT_EQ(line("{} {}", std::optional<Tensor>(), std::optional(x)), "none 3\n");
  EXPECT_EQ(shown({}, zeros(type<float>({2, 0}))), "f32[2,0]\n[]\n");
  EXPECT_EQ(line("{}", zeros(type<float>({2, 0}))), "[] f32[2,0]\n");
}

TEST(Print, ArraysAsNumPyWritesThem) {
  RecordProperty("covers", "PRINT-06");
  auto same_under_jit = [](const PrintOptions& options, const Tensor& value,
                           const std::string& want) {
    EXPECT_EQ(shown(options, value), want);
    EXPECT_EQ(printed(
                  [&](std::ostream& out, Tensor x) {
                    PrintOptions o = options;
                    o.stream = &out;
                    print_value(o, x);
                  },
                  value),
              want);
  };
  same_under_jit({.precision = 2, .suppress = true}, tensor<float>({1.2345, 2.3456, 1e-7}),
                 "f32[3] [1.23 2.35 0.  ]\n");
  same_under_jit({.precision = 2}, tensor<float>({1.5, 1e-7}), "f32[2] [1.5e+00 1.0e-07]\n");
  same_under_jit({.threshold = 10}, iota<std::int32_t>(10000),
                 "s32[10000] [   0    1    2 ... 9997 9998 9999]\n");
  same_under_jit({.threshold = 10, .edge_items = 1}, reshape(iota<std::int32_t>(25), {5, 5}),
                 "s32[5,5]\n[[ 0 ...  4]\n ...\n [20 ... 24]]\n");
  same_under_jit({}, reshape(iota<float>(8), {2, 2, 2}),
                 "f32[2,2,2]\n[[[0. 1.]\n  [2. 3.]]\n\n [[4. 5.]\n  [6. 7.]]]\n");
  EXPECT_EQ(line("{:6.2f}", tensor<float>({1, -2})), "[  1.00  -2.00]\n");
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  const std::pair<std::vector<float>, const char*> cases[] = {
      {{1.5, 2}, "[1.5 2. ]\n"},
      {{-1e-7f, 1}, "[-1.e-07  1.e+00]\n"},
      {{1e10f, 1}, "[1.e+10 1.e+00]\n"},
      {{nan, 1}, "[nan  1.]\n"},
      {{inf, -1.25}, "[  inf -1.25]\n"},
      {{1000, 0.5}, "[1.e+03 5.e-01]\n"},
      {{0.1f, 123.25, nan}, "[1.0000e-01 1.2325e+02        nan]\n"},
      {{1e-7f, inf}, "[1.e-07    inf]\n"},
      {{0, -0.0f}, "[ 0. -0.]\n"},
      {{nan, -inf}, "[ nan -inf]\n"},
  };
  for (const auto& [values, want] : cases)
    EXPECT_EQ(line("{}", tensor<float>(values, {std::ssize(values)})), want);
  EXPECT_EQ(line("{}", tensor<double>({1e100, 1e-5})), "[1.e+100 1.e-005]\n");
  EXPECT_EQ(line("{}", tensor<double>({0.0011116332052239922, 5.8405831102524797})),
            "[1.11163321e-03 5.84058311e+00]\n");
  EXPECT_EQ(line("{}", convert(tensor<float>({17.875, -nan, 0.1f}), DType::f16)),
            "[17.88   nan  0.1 ]\n");
  EXPECT_EQ(line("{}", Tensor(-nan)), "nan\n");
  const std::complex<float> z[] = {{1, 2}, {-1.5, -0.25}, {nan, 1}};
  EXPECT_EQ(line("{}", Tensor(type<std::complex<float>>({3}), z)),
            "[ 1. +2.i   -1.5-0.25i  nan+1.i  ]\n");
}

// What str(np.array(values)) gives, of NumPy 1.24.
TEST(Print, FloatsHaveTheDigitsThatNumPyShows) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const struct {
    bool single;
    std::vector<double> values;
    const char* want;
  } cases[] = {
      {false, {0.3333333333333333, 0.6666666666666666}, "[0.33333333 0.66666667]"},
      {false, {0.30000000000000004, 1.0}, "[0.3 1. ]"},
      {false,
       {3.141592653589793, 2.718281828459045, 0.001},
       "[3.14159265e+00 2.71828183e+00 1.00000000e-03]"},
      {false, {0.0003333333333333333, 0.3333333333333333}, "[0.00033333 0.33333333]"},
      {false, {1e-09, 1.0}, "[1.e-09 1.e+00]"},
      {false, {123456.789012345, 0.5}, "[1.23456789e+05 5.00000000e-01]"},
      {false, {1e+16, 1.5}, "[1.0e+16 1.5e+00]"},
      {false, {2.5e-17, 0.3333333333333333}, "[2.50000000e-17 3.33333333e-01]"},
      {false, {1.2345678912e-05, 3.0}, "[1.23456789e-05 3.00000000e+00]"},
      {false, {99999999.12345679, 1.0}, "[9.99999991e+07 1.00000000e+00]"},
      {false, {1234567.123456789}, "[1234567.12345679]"},
      {false, {0.123456785, 0.123456795}, "[0.12345678 0.12345679]"},
      {false, {0.5000000005, 1.0}, "[0.5 1. ]"},
      {false, {0.999999999, 2.0}, "[1. 2.]"},
      {false, {1e+300, 1.4285714285714285e-301}, "[1.00000000e+300 1.42857143e-301]"},
      {false, {5e-324, 1.0}, "[5.e-324 1.e+000]"},
      {false, {-0.3333333333333333, nan, inf}, "[-0.33333333         nan         inf]"},
      {false, {9.999999999e-05, 1.0}, "[1.e-04 1.e+00]"},
      {false, {1.0000000001, 1.0000000002}, "[1. 1.]"},
      {false,
       {169.0525703800356, -465.9373705408328, 328.201636785844},
       "[ 169.05257038 -465.93737054  328.20163679]"},
      {false,
       {0.004075162829965079, -8.903858579313628e-10, -17.547243063454207},
       "[ 4.07516283e-03 -8.90385858e-10 -1.75472431e+01]"},
      {false,
       {-625428.9739667596, -0.017154826119572114, 50.529937419675164},
       "[-6.25428974e+05 -1.71548261e-02  5.05299374e+01]"},
      {false,
       {-0.6391157520721679, 1.6110383665957793, -0.505414951448022},
       "[-0.63911575  1.61103837 -0.50541495]"},
      {false,
       {1.5699012181753336, 1.908161494402132, -1.044341403814254},
       "[ 1.56990122  1.90816149 -1.0443414 ]"},
      {false,
       {-2.544354226402436, 0.6847460421762367, 0.2146568696569017},
       "[-2.54435423  0.68474604  0.21465687]"},
      {false,
       {1.846245360681133, 0.1664013220942593, 0.07166548983393661},
       "[1.84624536 0.16640132 0.07166549]"},
      {false,
       {-0.34571734275628363, 0.14150940185264746, 0.8067772270924194},
       "[-0.34571734  0.1415094   0.80677723]"},
      {false,
       {-1.6654659714242563, 1.2257043770627878, -0.09934088448462614},
       "[-1.66546597  1.22570438 -0.09934088]"},
      {true, {0.3333333333333333, 0.6666666666666666}, "[0.33333334 0.6666667 ]"},
      {true, {16777216.0, 0.1}, "[1.6777216e+07 1.0000000e-01]"},
      {true, {3.3333333333333334e-08, 0.3333333333333333}, "[3.3333333e-08 3.3333334e-01]"},
      {true, {3141.592653589793, 2.718281828459045}, "[3.1415928e+03 2.7182817e+00]"},
      {true, {0.000123456789, 0.01}, "[0.00012346 0.01      ]"},
      {true,
       {-396.030443568636, -76.38114154051398, 16.713855990091204},
       "[-396.03046   -76.38114    16.713856]"},
      {true,
       {-25.572879796389987, 0.2116856763406362, 20.079378937501087},
       "[-25.57288      0.21168567  20.079378  ]"},
      {true,
       {0.11025439743645561, 0.059549639433327986, -0.09807439558626134},
       "[ 0.1102544   0.05954964 -0.0980744 ]"},
      {true,
       {-102.19625203540082, 0.03319742154884982, 0.007350265843773598},
       "[-1.0219625e+02  3.3197422e-02  7.3502660e-03]"},
      {true,
       {-638.7600522879602, -131.88699634460926, -0.013561272735066078},
       "[-6.3876007e+02 -1.3188699e+02 -1.3561273e-02]"},
      {true,
       {-5.797066744729195, 0.004346277207770569, 0.5178439827556991},
       "[-5.7970667e+00  4.3462771e-03  5.1784396e-01]"},
  };
  for (const auto& [single, values, want] : cases) {
    const Tensor x = tensor<double>(values);
    EXPECT_EQ(to_string(single ? convert<float>(x) : x), want);
  }
  EXPECT_EQ(to_string(Tensor(1.0 / 3)), "0.3333333333333333");  // of rank 0: all
  EXPECT_EQ(to_string(tensor<double>({1.0 / 3}), {.precision = 17}), "[0.3333333333333333]");
}

TEST(PrintDeathTest, AStreamMayPrintWhileItIsPrintedTo) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // what deadlocks is ended by its alarm
  struct Telling : std::stringbuf {
    std::ostringstream* other = nullptr;
    int sync() override {
      print({.stream = other}, "{} told", Tensor(1.0f));
      return 0;
    }
  };
  EXPECT_EXIT(
      {
        alarm(120);
        std::ostringstream other;
        Telling buffer;
        buffer.other = &other;
        std::ostream stream(&buffer);
        print({.stream = &stream}, "{}", Tensor(2.0f));
        std::_Exit(buffer.str() == "2\n" && other.str() == "1 told\n" ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(PrintDeathTest, AStreamMayWaitForAProgramThatPrintsToIt) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  struct Waiting : std::stringbuf {
    std::ostream* self = nullptr;
    std::ostringstream* other = nullptr;
    bool told = false;
    int sync() override {
      if (std::exchange(told, true)) return 0;
      const auto begin = std::chrono::steady_clock::now();
      std::thread([&] {
        for (int i = 0; i < 100; ++i) {  // of which the first waits for us, and no other
          print({.stream = self}, "{}", Tensor(i));
          print({.stream = other}, "{}", Tensor(i));
        }
      }).join();
      late = std::chrono::steady_clock::now() - begin > std::chrono::seconds(60);
      return 0;
    }
    bool late = false;
  };
  EXPECT_EXIT(
      {
        alarm(200);
        std::ostringstream other;
        Waiting buffer;
        std::ostream stream(&buffer);
        buffer.self = &stream;
        buffer.other = &other;
        print({.stream = &stream}, "first");
        print({.stream = &stream}, "last");
        std::string all;
        for (int i = 0; i < 100; ++i) all += std::to_string(i) + "\n";
        std::_Exit(buffer.str() == "first\n" + all + "last\n" && other.str() == all && !buffer.late
                       ? 0
                       : 1);
      },
      testing::ExitedWithCode(0), "");
}

TEST(Print, AStreamThatTakesNoMoreIsTold) {
  std::ostringstream full;
  const auto f = jit([&](Tensor x) {
    print({.stream = &full}, "{}", x);
    return x;
  });
  for (int again = 0; again < 2; ++again) {
    full.setstate(std::ios::badbit);
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) f(Tensor(1.0f)).block_until_ready();
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(has(told, "a stream takes no more text") && has(told, "print_test.cc:")) << told;
    EXPECT_EQ(told.find("takes no more"), told.rfind("takes no more")) << "once: " << told;
    full.clear();
    f(Tensor(2.0f)).block_until_ready();
  }
  EXPECT_EQ(full.str(), "2\n2\n");
}

TEST(Print, AValueIsPassedOn) {
  RecordProperty("covers", "PRINT-02 PRINT-03");
  std::ostringstream out;
  auto f = jit([&](Tensor a, Tensor b) {
    return print_value({.stream = &out, .map = [](Tensor v) { return v * 2.0f; }}, a + b);
  });
  EXPECT_EQ(f(Tensor(1.0f), Tensor(2.0f)).item<float>(), 3);
  EXPECT_EQ(std::exchange(out, std::ostringstream()).str(), "f32[] 6\n");
  EXPECT_EQ(print_value({.stream = &out,
                         .show_device = true,
                         .header = {{"what", "here"}, {"b", "1"}, {"a", "2"}}},
                        10)
                .item<std::int32_t>(),
            10);
  EXPECT_EQ(std::exchange(out, std::ostringstream()).str(),
            "a: 2, b: 1, device: 0, what: here\ns32[] 10\n");
  jit(vmap([&](Tensor x) { return print_value({.stream = &out, .label = "v"}, x); }))(
      tensor<float>({1, 2}))
      .block_until_ready();
  EXPECT_EQ(out.str(), "transforms: batch(0)\nv: f32[2] [1. 2.]\n");
}

TEST(Print, MistakesAreFoundWhileTracing) {
  RecordProperty("covers", "PRINT-07");
  const Tensor x(1.0f);
  auto wrong = [&](auto act, std::initializer_list<std::string_view> parts) {
    std::ostringstream out;
    expect_error<TypeError>(
        [&] {
          jit([&](Tensor v) {
            act(out, v);
            return v;
          })(x);
        },
        parts);
    expect_error<TypeError>([&] { act(out, x); }, {"print_test.cc:"});
    EXPECT_EQ(out.str(), "");
  };
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{} and {}", v); },
        {"placeholder '{}'", "1 value is given", "print_test.cc:"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{y}", "x"_a = v); },
        {"placeholder '{y}'", "names are [x]"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{2}", v, v); },
        {"placeholder '{2}'", "2 values are given"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{0} {}", v); },
        {"mixes counting with numbers"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{}", v, v); },
        {"no placeholder for value 1"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{}", "x"_a = v); },
        {"nothing is given for the placeholder '{}'", "those with a name, [x]"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "text", "x"_a = v); },
        {"no placeholder for value 'x'"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{:d}", v); },
        {"'{:d}' does not fit", "f32[]"});
  for (const char* wide : {"{:2147483647}", "{:.1000f}", "{:<1000}"})
    wrong([&](auto& out, Tensor v) { print({.stream = &out}, wide, v); }, {wide, "at most 999"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{:.2f}", v, "x"); }, {"value 1"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{", v); }, {"without '}'"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "}", v); }, {"without '{'"});
  wrong([](auto& out, Tensor v) { print({.stream = &out}, "{:{}}", v, 3); },
        {"placeholder inside"});
  wrong([](auto& out, Tensor v) { print({.stream = &out, .precision = -7}, "{}", v); },
        {"precision", "-7"});
}

TEST(Print, WholeLinesFromManyThreads) {
  RecordProperty("covers", "PRINT-05");
  std::ostringstream out;
  auto f = jit([&](Tensor who, Tensor x) {
    return fori_loop(
        0, 200,
        [&](Tensor i, Tensor v) {
          print({.stream = &out}, "thread {} step {} end", who, i);
          return v;
        },
        x);
  });
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] { f(Tensor(t), Tensor(0.0f)).item<float>(); });
  threads.clear();
  std::istringstream in(out.str());
  std::vector<int> next(8, 0);
  int lines = 0;
  for (std::string l; std::getline(in, l); ++lines) {
    int t = -1, step = -1, end = 0;
    ASSERT_EQ(std::sscanf(l.c_str(), "thread %d step %d end%n", &t, &step, &end), 2) << l;
    EXPECT_EQ(static_cast<std::size_t>(end), l.size()) << l;
    EXPECT_EQ(step, next.at(static_cast<std::size_t>(t))++) << "in order within a thread";
  }
  EXPECT_EQ(lines, 1600);
}

TEST(Print, GoesToALogWithItsPlace) {
  RecordProperty("covers", "PRINT-10");
  std::vector<PrintRecord> records;
  auto f = jit([&](Tensor x) {
    print({.log = [&](const PrintRecord& r) { records.push_back(r); }}, "x={}", x);
    return x;
  });
  const std::uint32_t line = __LINE__ - 3;
  f(Tensor(4.0f)).item<float>();
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].text, "x=4");
  EXPECT_EQ(to_string(records[0].place), "print_test.cc:" + std::to_string(line));
  EXPECT_EQ(records[0].device, 0);
}

TEST(Print, SurvivesTransformations) {
  std::ostringstream out;
  auto take = [&] { return std::exchange(out, std::ostringstream()).str(); };
  auto f = [&](Tensor x) {
    print({.stream = &out, .label = "f"}, "{}", x);
    return x * x;
  };
  jit(grad(f))(Tensor(2.0f)).item<float>();
  EXPECT_EQ(take(), "f: 2\n") << "once, with the value";
  jit(vmap(f))(tensor<float>({1, 2})).block_until_ready();
  EXPECT_EQ(take(), "f: [1. 2.]\n");
  jit([&](Tensor x) {
    return scan(
               [&](Tensor c, Tensor v) {
                 return std::pair{f(c) + v, v};
               },
               x, tensor<float>({1, 2, 3}))
        .first;
  })(Tensor(0.0f))
      .item<float>();
  EXPECT_EQ(take(), "f: 0\nf: 1\nf: 3\n");
  auto lines = [&] {
    const std::string text = take();
    return std::count(text.begin(), text.end(), '\n');
  };
  jit(grad([&](Tensor x) {
    return scan(
               [&](Tensor c, Tensor v) {
                 return std::pair{f(c) + v, v};
               },
               x, tensor<float>({1, 2, 3}))
        .first;
  }))(Tensor(0.0f))
      .item<float>();
  EXPECT_EQ(lines(), 3) << "once for each step, forward";
  jit(vmap(grad(f)))(tensor<float>({1, 2})).block_until_ready();
  EXPECT_EQ(take(), "f: [1. 2.]\n");
  jvp(f, std::tuple{Tensor(2.0f)}, std::tuple{Tensor(1.0f)});
  EXPECT_EQ(take(), "f: 2\n");
  jit(checkpoint(f))(Tensor(3.0f)).item<float>();
  EXPECT_EQ(take(), "f: 3\n");
  jit(grad(checkpoint(f)))(Tensor(3.0f)).item<float>();
  const std::string again = take();
  EXPECT_TRUE(again == "f: 3\n" || again == "f: 3\nf: 3\n") << again;
}

}  // namespace
}  // namespace postern
