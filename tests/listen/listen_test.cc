// The standard listeners, the timeline, and the report.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <numeric>
#include <sstream>

#include <fmt/chrono.h>

#include "host/executor.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using test::error_of, test::has;

std::string contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
const float nan = std::nanf(""), inf = INFINITY;

TEST(Listen, SummaryOfEveryDtype) {
  auto summary = [](const Tensor& t) {
    listen::Summary s;
    tap(t, [&](AnyView v) { s = listen::summarize(v); });
    return s;
  };
  std::vector<float> many(10'007);
  double sum = 0;
  for (std::size_t i = 0; i < many.size(); ++i) sum += many[i] = std::sin(static_cast<float>(i));
  many[5000] = nan;
  many[5001] = -inf;
  many[9999] = inf;
  many[7] = -4;
  many[10'006] = 3;
  sum = 0;
  for (const float x : many) sum += std::isfinite(x) ? x : 0;
  const listen::Summary s = summary(tensor<float>(many));
  EXPECT_EQ(s.count, 10'007);
  EXPECT_EQ(s.nan, 1);
  EXPECT_EQ(s.inf, 2);
  EXPECT_EQ(s.min, -4);
  EXPECT_EQ(s.max, 3);
  EXPECT_NEAR(s.mean, sum / 10'004, 1e-6);
  for (DType d :
       {DType::f64, DType::f16, DType::bf16, DType::s8, DType::s64, DType::f8e5m2, DType::s4}) {
    const listen::Summary t = summary(convert(tensor<float>({-2, 1, 4}), d));
    EXPECT_EQ(t.min, -2) << to_string(d);
    EXPECT_EQ(t.max, 4) << to_string(d);
    EXPECT_EQ(t.mean, 1) << to_string(d);
  }
  EXPECT_EQ(summary(tensor<std::complex<float>>({{3, 4}, {0, 1}})).max, 5);
  const listen::Summary none = summary(tensor<float>({nan}));
  EXPECT_TRUE(std::isnan(none.min) && none.nan == 1);
  EXPECT_EQ(summary(zeros(type<float>({0}))).count, 0);
}

// Large ones are read by several threads, those of XLA's pool inside a compiled program.
TEST(Listen, SummaryOfALargeArray) {
  constexpr std::int64_t size = 300'000;  // just so many that it is worth it
  const Tensor x = sin(iota<float>(size));
  listen::Summary alone, inside;
  bool has_helpers = false;
  tap(x, [&](AnyView v) { alone = listen::summarize(v); });
  EXPECT_EQ(alone.count, size);
  EXPECT_EQ(alone.nan + alone.inf, 0);
  EXPECT_NEAR(alone.max, 1, 1e-6);
  EXPECT_NEAR(alone.mean, 0, 1e-5);
  const auto f = jit([&](Tensor t) {
    // TapInfo asked for: as standard listeners do.
    return tap(t * 1.0f, [&](const TapInfo&, AnyView v) {
      inside = listen::summarize(v);
      has_helpers = host::Helpers::near();
    });
  });
  for (int i = 0; i < 20; ++i) {
    f(x).block_until_ready();
    EXPECT_EQ(inside.count, size);
    EXPECT_EQ(inside.min, alone.min);
    EXPECT_EQ(inside.max, alone.max);
    EXPECT_EQ(inside.mean, alone.mean);  // parts are added in order
  }
  const bool on_xlas_thread = plugin_info().calls_back && !std::getenv("POSTERN_TEST_STAND_IN");
  EXPECT_EQ(has_helpers, on_xlas_thread);
  const Tensor bad = dynamic_update_slice(x, tensor<float>({nan, inf, -inf}), {Tensor(size - 7)});
  tap(bad, [&](AnyView v) { alone = listen::summarize(v); });
  f(bad).block_until_ready();
  for (const listen::Summary* s : {&alone, &inside}) {
    EXPECT_EQ(s->nan, 1);
    EXPECT_EQ(s->inf, 2);
  }
}

TEST(Listen, RmsAndNormOfEverySize) {
  const auto expect_rms = [](const Tensor& t, double truth, double count) {
    listen::Summary s;
    tap(t, [&](AnyView v) { s = listen::summarize(v); });
    EXPECT_NEAR(s.rms / truth, 1, 1e-6) << truth;
    EXPECT_NEAR(s.norm() / (truth * std::sqrt(count)), 1, 1e-6) << truth;
  };
  for (const std::int64_t n : {1, 7, 64, 1000, 300'000})
    for (const double x : {3.0, -2e-30, 3e-20, 1e25, 3e38})
      expect_rms(full(type<float>({n}), x), std::abs(x), static_cast<double>(n));
  expect_rms(full(type<double>({1000}), 1e-200), 1e-200, 1000);
  expect_rms(full(type<double>({1000}), -1e200), 1e200, 1000);
  expect_rms(tensor<std::int32_t>({3, -4, 0, 0}), 2.5, 4);
  expect_rms(tensor<std::complex<float>>({{3, 4}, {0, 5}}), 5, 2);
  std::vector<float> some(5000, 2.0f);
  some[77] = nan;
  some[4999] = inf;
  expect_rms(tensor<float>(some), 2, 4998);
  listen::Summary s;
  tap(zeros(type<float>({3})), [&](AnyView v) { s = listen::summarize(v); });
  EXPECT_EQ(s.norm(), 0);
  tap(tensor<float>({nan}), [&](AnyView v) { s = listen::summarize(v); });
  EXPECT_TRUE(std::isnan(s.rms));
  const auto stats = listen::stats();
  for (const auto& v : {tensor<float>({3, 4}), tensor<float>({0, 0})}) tap({.name = "x"}, v, stats);
  EXPECT_NEAR(stats.series().at(0).all.rms, 2.5, 1e-9);
  EXPECT_NEAR(stats.series().at(0).all.norm(), 5, 1e-9);
}

TEST(Listen, SumsBeyondTheElementsType) {
  listen::Summary s;
  tap(full(type<float>({1000}), 3e38f), [&](AnyView v) { s = listen::summarize(v); });
  EXPECT_NEAR(s.mean / 3e38, 1, 1e-6);
  EXPECT_EQ(s.inf, 0);
}

TEST(Listen, OfABatchOnlyWhatIsAlive) {
  const auto stats = listen::stats();
  const auto histogram = listen::histogram({.bins = 2});
  const auto finite = listen::first_non_finite();
  auto f = jit(vmap([&](Tensor x) {
    return cond(
        x > 0.0f,
        [&](Tensor v) {
          v = broadcast_to(log(v), {2});
          tap({.name = "log"}, v, stats);
          tap({.name = "log"}, v, histogram);
          tap({.name = "log"}, v, finite);
          return sum(v);
        },
        [](Tensor v) { return v; }, x);
  }));
  f(tensor<float>({1, -1, 1, 0}))
      .block_until_ready();  // the logarithms of the others are not finite, but never seen
  const listen::Summary all = stats.series().at(0).all;
  EXPECT_EQ(all.count, 4);
  EXPECT_EQ(all.nan + all.inf, 0);
  EXPECT_EQ(all.max, 0);
  const auto counts = histogram.counts().at(0);
  EXPECT_EQ(counts.bins[0] + counts.bins[1], 4u);
  EXPECT_EQ(counts.nan + counts.inf, 0u);
}

TEST(Listen, StatsOfALoop) {
  const auto stats = listen::stats();
  auto f = jit([&](Tensor x) {
    return fori_loop(
        0, 5000,
        [&](Tensor i, Tensor v) {
          tap({.name = "step"}, std::pair{i, v}, stats);
          return v + 1.0f;
        },
        x);
  });
  f(tensor<float>({0, 10})).block_until_ready();
  const std::vector<listen::Series> series = stats.series();
  ASSERT_EQ(series.size(), 2u);
  EXPECT_EQ(series[1].name + series[1].path, "step[1]");
  EXPECT_EQ(series[1].firings, 5000u);
  EXPECT_EQ(series[1].last.min, 4999);
  EXPECT_EQ(series[1].all.min, 0);
  EXPECT_EQ(series[1].all.max, 5009);
  EXPECT_EQ(series[1].all.count, 10'000);
  EXPECT_LE(series[1].points.size(), 2048u);
  EXPECT_GE(series[1].points.size(), 1000u);
  for (const auto& p : series[1].points) EXPECT_EQ(p.summary.min, static_cast<double>(p.firing));
  EXPECT_TRUE(has(stats.table(), "step[1]")) << stats.table();
}

TEST(Listen, TheFirstValueThatIsNotFinite) {
  auto f = jit([](Tensor x) {
    const auto watch = listen::first_non_finite();
    return fori_loop(
        0, 20,
        [=](Tensor, Tensor v) {
          v = tap({.name = "v"}, std::map<std::string, Tensor>{{"a", v}, {"w", reshape(v, {2, 2})}},
                  watch)["a"];
          return v * 1e5f;
        },
        x);
  });
  const auto e = error_of<CallbackError>([&] {
    f(tensor<float>({0, 0, 0, 1})).block_until_ready();
  });
  ASSERT_TRUE(e);
  EXPECT_TRUE(has(e->what(), "tap 'v' at listen_test.cc:")) << e->what();
  EXPECT_TRUE(has(e->what(), "v.a at [3] is inf in firing 8 of its run")) << e->what();
  EXPECT_EQ(f(tensor<float>({0, 0, 0, 0})).to_vector<float>()[3], 0);
}

TEST(Listen, RecordsWhatNumPyReads) {
  const test::TemporaryFolder folder;
  const std::string npy = folder.path() + "/x.npy", npz = folder.path() + "/all.npz";
  const auto one = listen::record(npy);
  {
    const auto all = listen::record(npz);
    for (int i = 0; i < 3; ++i) {
      tap({.name = "x"}, tensor<float>({1, 2}) * float(i), one);
      tap({.name = "s"},
          std::map<std::string, Tensor>{{"i", Tensor(i)},
                                        {"h", convert(Tensor(1.5f), DType::bf16)}},
          all);
    }
    EXPECT_EQ(all.recorded(), 6u);
  }
  const std::string array = contents(npy), zip = contents(npz);
  EXPECT_EQ(array.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  EXPECT_TRUE(has(array, "'descr': '<f4', 'fortran_order': False, 'shape': (3, 2,)")) << array;
  float last[6];
  std::memcpy(last, array.data() + array.size() - sizeof last, sizeof last);
  EXPECT_EQ((std::vector<float>(last, last + 6)), (std::vector<float>{0, 0, 1, 2, 2, 4}));
  EXPECT_TRUE(has(zip, "s.i.npy") && has(zip, "s.h.npy") && has(zip, "'<i4'") && has(zip, "'<f4'"));
  const std::string peers = std::string(POSTERN_TEST_DATA) + "/../../.deps/jax/bin/python";
  for (const std::string& python : {std::string("python3"), peers}) {
    if (std::system(("'" + python + "' -c 'import numpy' 2>/dev/null").c_str()) != 0) continue;
    const std::string script =
        "import numpy,sys; z=numpy.load(sys.argv[1]); assert z['s.i'].tolist()==[0,1,2] and "
        "z['s.h'].tolist()==[1.5]*3; "
        "assert numpy.load(sys.argv[2]).tolist()==[[0,0],[1,2],[2,4]]";
    EXPECT_EQ(std::system(("'" + python + "' -c \"" + script + "\" " + npz + " " + npy).c_str()),
              0);
    return;
  }
  GTEST_SKIP() << "NumPy is not installed";
}

TEST(Listen, RecordsAreBounded) {
  const test::TemporaryFolder folder;
  const auto few = listen::record(folder.path() + "/few.npy", {.max_bytes = 20});
  for (int i = 0; i < 10; ++i) tap(Tensor(float(i)), few);
  EXPECT_EQ(few.recorded(), 5u);
  EXPECT_EQ(few.left_out(), 5u);
  few.close();
  tap(Tensor(1.0f), few);
  EXPECT_EQ(few.left_out(), 6u);
  test::expect_error<TypeError>([] { listen::record("x.txt"); }, {".npy or .npz", "x.txt"});
  test::expect_error<Error>([] { listen::record("/no/such/folder/x.npy"); },
                            {"/no/such/folder/x.npy"});
}

TEST(Listen, HistogramsGrowWithTheirValues) {
  const auto histogram = listen::histogram({.bins = 8});
  auto show = [&](const Tensor& t) { tap({.name = "h"}, t, histogram); };
  show(tensor<float>({0, 1, 2, 3, nan}));
  show(tensor<float>({100, -50, inf}));
  tap({.name = "wide"}, tensor<double>({-1e308, 1e308, 0}), histogram);
  const auto counts = histogram.counts();
  ASSERT_EQ(counts.size(), 2u);
  EXPECT_EQ(std::accumulate(counts[1].bins.begin(), counts[1].bins.end(), std::uint64_t{0}), 3u);
  EXPECT_LE(counts[0].from, -50);
  EXPECT_GE(counts[0].to, 100);
  EXPECT_EQ(counts[0].nan, 1u);
  EXPECT_EQ(counts[0].inf, 1u);
  EXPECT_EQ(std::accumulate(counts[0].bins.begin(), counts[0].bins.end(), std::uint64_t{0}), 6u);
  test::expect_error<TypeError>([] { listen::histogram({.bins = 7}); }, {"bins must be even", "7"});
}

TEST(Listen, TheOperationThatMakesWhatIsNotFinite) {
  auto f = [](Tensor x) {
    Tensor masked =
        where(x > 0.0f, x,
              full(x.type(), -INFINITY));  // an infinity that was written there is no one's mistake
    Tensor y = fori_loop(
        0, 3, [&](Tensor, Tensor v) { return log(v - 1.0f); }, x);
    return y + exp(masked);
  };
  const std::uint32_t line = __LINE__ - 3;
  const auto g = jit(trace::non_finite(f));
  for (int round = 0; round < 2; ++round) {
    const auto e = error_of<CallbackError>([&] { g(tensor<float>({100, 2})).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_TRUE(has(e->what(), "operation 'log' at listen_test.cc:" + std::to_string(line)))
        << e->what();
    EXPECT_TRUE(has(e->what(), "result at [1] of type f32[2] is nan, no operand is")) << e->what();
  }
  EXPECT_TRUE(has(error_of<CallbackError>([&] {
                    trace::non_finite([](Tensor x) { return 1.0f / x; })(Tensor(0.0f));
                  })->what(),
                  "'divide'"));
  EXPECT_EQ(jit(trace::non_finite([](Tensor x) { return sum(x * x); }))(tensor<float>({1, 2}))
                .item<float>(),
            5);
}

TEST(Listen, EachOperationIsWatchedOnceUnderEveryTransformation) {
  auto f = [](Tensor x) {
    x = scan(
            [](Tensor c, Tensor v) {
              return std::pair{checkpoint([](Tensor w) { return sin(w); })(c) * v, c};
            },
            x, tensor<float>({1, 2}))
            .first;
    return cond(
        x > 0.5f, [](Tensor v) { return sqrt(v - 0.5f); }, [](Tensor v) { return v; }, x);
  };
  auto watched_once = [](auto g, const auto& x) {
    const std::string text = jit(trace::non_finite(g)).program(x).text();
    std::size_t operations = 0, checks = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      checks += has(line, "kind=operation");
      operations += has(line, " = ") && has(line, "f32") && !has(line, "kind=operation") &&
                    !has(line, "literal");
    }
    EXPECT_GT(checks, 2u) << text;
    EXPECT_LE(checks, operations) << text;
  };
  watched_once(f, Tensor(1.0f));
  watched_once(grad(f), Tensor(1.0f));
  watched_once(vmap(f), tensor<float>({1, 2}));
  watched_once(vmap(grad(f)), tensor<float>({1, 2}));
  auto fails_in = [](auto g, const Tensor& x, const char* part) {
    test::expect_error<CallbackError>([&] { jit(trace::non_finite(g))(x).block_until_ready(); },
                                      {part, "listen_test.cc:"});
  };
  fails_in(grad([](Tensor x) { return sqrt(x); }), Tensor(0.0f), "is infinite");
  fails_in(grad([&](Tensor x) { return f(log(x)); }), Tensor(0.0f), "operation 'log'");
  fails_in(vmap(f), tensor<float>({1, INFINITY}), "operation 'sin'");
  fails_in(
      [](Tensor x) {
        return while_loop([](Tensor v) { return v > 0.0f; },
                          [](Tensor v) { return 1.0f / (v - 1.0f); }, x);
      },
      Tensor(2.0f), "operation 'divide'");
  fails_in(
      [](Tensor x) {
        return call(
            {.name = "host"}, type<float>(), [](float) { return NAN; }, x);
      },
      Tensor(0.0f), "operation 'host'");
  EXPECT_EQ(jit(trace::non_finite(vmap(grad(f))))(tensor<float>({1, 2})).dims(), (Dims{2}));
  EXPECT_EQ(grad(trace::non_finite([](Tensor x) { return x * x; }))(Tensor(3.0f)).item<float>(), 6);
}

/// A loop with a stats listener, an asynchronous histogram and a title that HTML has to escape.
void write_report(const std::string& file) {
  const auto stats = listen::stats();
  const auto histogram = listen::histogram();
  record_timeline(true);
  auto f = jit(
      [&](Tensor x) {
        return fori_loop(
            0, 50,
            [&](Tensor, Tensor v) {
              v = tap({.name = "loss<1>"}, v * 0.9f, stats);
              tap({.name = "weights", .mode = TapMode::async}, v, histogram);
              return v;
            },
            x);
      },
      {.name = "training"});
  f(tensor<float>({1, 2, 3})).block_until_ready();
  barrier();
  record_timeline(false);
  report(file, {.title = "A & B"});
}

TEST(Listen, ReportShowsCurvesHistogramsTablesAndTimes) {
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/report.html";
  write_report(file);
  const std::string page = contents(file);
  for (const char* part :
       {"<title>A &amp; B</title>", "loss&lt;1&gt;", "weights", "<polyline", "class=\"band\"",
        "<rect class=\"bin\"", "50 firings", "listen_test.cc:", "training", "compiling",
        "callbacks", "waiting", "execute", "delivery", "</html>"})
    EXPECT_TRUE(has(page, part)) << part;
  const std::string today = fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr)));
  for (const std::string& part :
       {today, std::string(" UTC, postern_"), std::string(" on "), std::string(", Postern 0."),
        std::string("Arguments: --gtest"), std::string("initial-scale=1"),
        std::string("minmax(min(100%"), std::string(">step</text>")})
    EXPECT_TRUE(has(page, part)) << part;
  for (const char* part : {"http:", "https:", "src=", "<script", "@import", "url("})
    EXPECT_FALSE(has(page, part)) << "needs nothing else: " << part;
  test::expect_error<Error>([] { report("/no/such/folder/r.html"); }, {"/no/such/folder/r.html"});
}

TEST(Listen, TheTimelineIsOneThatChromeReads) {
  const test::TemporaryFolder folder;
  write_report(folder.path() + "/report.html");
  record_timeline(true);
  const auto slow = jit([](Tensor x) {
    return call(
        {.name = "slow", .effect = Effect::unordered}, x.type(),
        [](float v) {
          std::this_thread::sleep_for(std::chrono::milliseconds(500));
          return v;
        },
        x);
  });
  slow.start(Tensor(1.0f)).wait();
  record_timeline(false);
  write_timeline(folder.path() + "/trace.json");
  const std::string trace = contents(folder.path() + "/trace.json");
  for (const char* part :
       {"\"traceEvents\"", "\"ph\":\"X\"", "\"cat\":\"compile\"", "\"cat\":\"execute\"",
        "\"cat\":\"tap\"", "\"cat\":\"delivery\"", "\"name\":\"training\"", "\"cat\":\"call\"",
        "\"name\":\"slow\"", "\"cat\":\"wait\"", "\"name\":\"barrier\"", "\"name\":\"a run\""})
    EXPECT_TRUE(has(trace, part)) << part;
  const std::string script =
      "import json,sys; events=[e for e in json.load(open(sys.argv[1]))['traceEvents'] if "
      "e['ph']=='X']; "
      "run=[e for e in events if e['name']=='training' and e['cat']=='execute'][-1]; "
      "taps=[e for e in events if e['name']=='loss<1>' and e['args']['run']==run['args']['run']]; "
      "assert len(taps)==50 and all(run['ts']<=e['ts'] and "
      "e['ts']+e['dur']<=run['ts']+run['dur']+1 for e in taps)";
  if (std::system("python3 -c '' 2>/dev/null") != 0) GTEST_SKIP() << "python3 is not installed";
  EXPECT_EQ(std::system(("python3 -c \"" + script + "\" " + folder.path() + "/trace.json").c_str()),
            0);
  test::expect_error<Error>([] { write_timeline("/no/such/folder/t.json"); },
                            {"/no/such/folder/t.json"});
}

TEST(Listen, ABrowserShowsTheReport) {
  if (std::system("command -v chromium >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "chromium is not installed";
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/report.html", shot = folder.path() + "/page.png",
                    dom = folder.path() + "/dom.html";
  write_report(file);
  const std::string browser =
      "timeout 100 chromium --headless --no-sandbox --disable-gpu --user-data-dir=" +
      folder.path() + "/profile ";
  ASSERT_EQ(std::system((browser + "--window-size=1200,900 --screenshot=" + shot + " file://" +
                         file + " >/dev/null 2>&1")
                            .c_str()),
            0);
  EXPECT_EQ(contents(shot).substr(1, 3), "PNG");
  EXPECT_GT(std::filesystem::file_size(shot), 10'000u) << "an empty page is smaller";
  ASSERT_EQ(
      std::system((browser + "--dump-dom file://" + file + " >" + dom + " 2>/dev/null").c_str()),
      0);
  const std::string page = contents(dom);
  for (const char* part : {"A &amp; B", "<h3>loss&lt;1&gt;</h3>",
                           "<polyline class=\"line\" points=\"", "<rect class=\"bin\"", "training"})
    EXPECT_TRUE(has(page, part)) << part;
}

TEST(Listen, TheEnvironmentAsksForATimeline) {
  const test::TemporaryFolder folder;
  const test::Ended end =
      test::run_program("tap_exit", {"return"}, {{"POSTERN_TIMELINE", folder.path() + "/t.json"}});
  EXPECT_EQ(end.code, 7) << end.err;
  EXPECT_TRUE(has(contents(folder.path() + "/t.json"), "\"cat\":\"delivery\""));
}

}  // namespace
}  // namespace postern
