// Residual stores of while loops: their limits, handles, ways to keep less, files and full disks.
#include "host/residual_store.h"

#include <fmt/format.h>
#include <postern/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "full_disk.h"
#include "support.h"

namespace postern {
namespace {

namespace host = internal::host;
using test::all_modes, test::expect_error;
using Floats = std::vector<float>;
using Ints = std::vector<int>;

TEST(WhileTapes, ALimitIsThatOfKeptCarriesAndASegmentTogether) {
  RecordProperty("covers", "CTRL-15");
  // 100 steps of 256 bytes each: with every tenth carry kept 2.5 KiB for these, as much for the ten
  // steps of a segment, and little for its number and whether to go on.
  const auto slope = [](int every, std::size_t memory) {
    return jit(grad([=](Tensor x) {
      const auto more = [](Tensor n, Tensor) { return n < 100; };
      const auto step = [](Tensor n, Tensor v) { return std::pair{n + 1, sin(v)}; };
      const WhileOptions options{.keep_every = every, .memory = memory};
      return sum(while_loop(more, step, std::pair{Tensor(0), x}, options).second);
    }));
  };
  const Tensor x = ones(type<float>({64}));
  const Floats want = slope(10, 0)(x).to_vector<float>();
  EXPECT_EQ(slope(10, 8000)(x).to_vector<float>(), want);
  // Seven steps of a segment fit, and five of the kept carries beside what goes with them.
  expect_error<CallbackError>([&] { slope(10, 4000)(x).to_vector<float>(); },
                              {"call 'while_loop' at", "outgrown", "after 7 steps of a segment",
                               "of 2000 bytes (half of 4000:", "keep_every"},
                              ErrorCode::resource_exhausted);
  expect_error<CallbackError>([&] { slope(5, 4000)(x).to_vector<float>(); },
                              {"outgrown", "after 25 steps", "of 2000 bytes (half of 4000:"},
                              ErrorCode::resource_exhausted);
}

TEST(WhileTapes, ATicketIsOfItsOwnRunHoweverManyCome) {
  RecordProperty("covers", "CTRL-15");
  host::ResidualStores first;
  const auto budget = first.new_budget({});
  const auto one = [&] { return std::make_unique<host::ResidualStore>(4, budget); };
  const double handle = first.add(one()), other = first.add(one());
  EXPECT_NE(first.find(handle), nullptr);
  EXPECT_NE(first.find(handle), first.find(other));
  EXPECT_EQ(first.find(handle + other), nullptr) << "a sum of handles is none";
  for (int i = 1; i < 1 << 20; ++i) host::ResidualStores();
  host::ResidualStores later;
  later.add(one());
  EXPECT_EQ(later.find(handle), nullptr);
  first.remove(handle);
  EXPECT_EQ(first.find(handle), nullptr);
  EXPECT_NE(first.add(one()), handle) << "a kept handle must not name the next tape";
}

/// A step with derivatives of all orders, and its first two.
Tensor step_by_sine(const Tensor& v) { return v + 0.1f * sin(v); }
struct Slopes {
  double value, first, second;
};
Slopes slopes_after(int steps, double x) {
  Slopes s{x, 1, 0};
  for (; steps > 0; --steps) {
    const double d = 1 + 0.1 * std::cos(s.value), dd = -0.1 * std::sin(s.value);
    s = {s.value + 0.1 * std::sin(s.value), d * s.first, dd * s.first * s.first + d * s.second};
  }
  return s;
}

/// So many steps: the loop knows the number while it runs.
Tensor sines_of(const Tensor& n, const Tensor& x, const WhileOptions& options) {
  const auto more = [n](Tensor i, Tensor) { return i < n; };
  const auto step = [](Tensor i, Tensor v) { return std::pair{i + 1, step_by_sine(v)}; };
  return while_loop(more, step, std::pair{Tensor(0), x}, options).second;
}
/// The same in rounds of three steps, a loop of loops.
Tensor sines_in_rounds(const Tensor& rounds, const Tensor& x, const WhileOptions& options) {
  const auto more = [rounds](Tensor i, Tensor) { return i < rounds; };
  const auto round = [options](Tensor i, Tensor v) {
    return std::pair{i + 1, sines_of(Tensor(3), v, options)};
  };
  return while_loop(more, round, std::pair{Tensor(0), x}, options).second;
}

/// All ways to keep less, the file in that folder.
std::vector<WhileOptions> all_options(const std::string& folder) {
  return {{.keep_every = 2},
          {.memory = 4096},
          {.memory = 8, .file = folder + "/tape"},
          {.keep_every = 2, .memory = 4096},
          {.keep_every = 3, .memory = 8, .file = folder + "/tape"}};
}

void expect_slopes(const Floats& got, const Floats& want) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-5 * (1 + std::abs(want[i]))) << i;
}

TEST(WhileTapes, OptionsChangeNoDerivative) {
  RecordProperty("covers", "CTRL-14 CTRL-15 CTRL-16");
  const test::TemporaryFolder folder;
  const Ints counts{0, 1, 4, 7};
  const Floats xs{0.3f, 0.7f, -1.1f, 1.5f};
  Floats first, second, rounds;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    first.push_back(static_cast<float>(slopes_after(counts[i], xs[i]).first));
    second.push_back(static_cast<float>(slopes_after(counts[i], xs[i]).second));
    rounds.push_back(static_cast<float>(slopes_after(3 * counts[i], xs[i]).first));
  }
  const Tensor n = tensor(counts), x = tensor(xs);
  for (const WhileOptions& options : all_options(folder.path()))
    for (const Mode mode : all_modes) {
      if (mode != Mode::compiled && options.keep_every == 1) continue;
      SCOPED_TRACE(fmt::format("keep_every {}, memory {}, file '{}', mode {}", options.keep_every,
                               options.memory, options.file, static_cast<int>(mode)));
      const auto slope = [&](Tensor k, Tensor v) {
        return grad([&](Tensor u) { return sines_of(k, u, options); })(v);
      };
      const auto slope_of_rounds = [&](Tensor k, Tensor v) {
        return grad([&](Tensor u) { return sines_in_rounds(k, u, options); })(v);
      };
      const auto second_slope = [&](Tensor k, Tensor v) {
        return grad([&](Tensor u) { return slope(k, u); })(v);
      };
      expect_slopes(jit(slope, {.mode = mode})(7, 1.5f).to_vector<float>(), {first[3]});
      expect_slopes(jit(slope_of_rounds, {.mode = mode})(7, 1.5f).to_vector<float>(), {rounds[3]});
      expect_slopes(jit(second_slope, {.mode = mode})(7, 1.5f).to_vector<float>(), {second[3]});
      expect_slopes(jit(vmap(slope), {.mode = mode})(n, x).to_vector<float>(), first);
      expect_slopes(jit(vmap(slope_of_rounds), {.mode = mode})(n, x).to_vector<float>(), rounds);
      expect_slopes(jit(vmap(second_slope), {.mode = mode})(n, x).to_vector<float>(), second);
    }
}

TEST(WhileTapes, KeepEveryAgreesWithAScanInEachMode) {
  RecordProperty("covers", "CTRL-14 CTRL-15");
  const Tensor x = tensor<float>({0.3f, -1.2f, 2.1f});
  const auto by_while = [](Tensor v) { return sum(sines_of(Tensor(37), v, {.keep_every = 5})); };
  const auto by_scan = [](Tensor v) {
    return sum(fori_loop(
        0, 37, [](Tensor, Tensor u) { return step_by_sine(u); }, v));
  };
  for (const Mode mode : all_modes)
    EXPECT_EQ(jit(grad(by_while), {.mode = mode})(x).to_vector<float>(),
              jit(grad(by_scan), {.mode = mode})(x).to_vector<float>())
        << static_cast<int>(mode);
}

TEST(WhileTapes, SavedProgramsKeepLoopsOptionsAndOrders) {
  RecordProperty("covers", "CTRL-16");
  if (test::skipped_in_stages("of a saved program, loops in reverse are no stages")) return;
  const test::TemporaryFolder folder;
  const auto same_when_loaded = [](const auto& f, const auto&... x) {
    const Floats want = f(x...).template to_vector<float>();
    const Loaded loaded = load_text(saved_text(f.lower(x...)));
    EXPECT_EQ(loaded(x...).at(0).template to_vector<float>(), want);
  };
  const Tensor n = tensor<int>({0, 2, 5}), x = tensor<float>({0.3f, 0.7f, -1.1f});
  std::vector<WhileOptions> options = all_options(folder.path());
  options.push_back({});
  for (const WhileOptions& o : options) {
    SCOPED_TRACE(
        fmt::format("keep_every {}, memory {}, file '{}'", o.keep_every, o.memory, o.file));
    const auto slope = [&](Tensor k, Tensor v) {
      return grad([&](Tensor u) { return sines_in_rounds(k, u, o); })(v);
    };
    same_when_loaded(jit(slope), Tensor(4), Tensor(0.7f));
    same_when_loaded(jit(vmap(slope)), n, x);
    same_when_loaded(
        jit([&](Tensor k, Tensor v) { return grad([&](Tensor u) { return slope(k, u); })(v); }),
        Tensor(4), Tensor(0.7f));
  }
  // The limit is in the file.
  const auto limited =
      jit(grad([](Tensor v) { return sines_of(Tensor(1000), v, {.memory = 512}); }));
  const Loaded loaded = load_text(saved_text(limited.lower(Tensor(1.0f))));
  expect_error<CallbackError>([&] { loaded(Tensor(1.0f)).at(0).item<float>(); },
                              {"while_loop", "outgrown", "512 bytes"},
                              ErrorCode::resource_exhausted);
}

TEST(WhileTapes, ALimitThatNothingReachesIsNone) {
  RecordProperty("covers", "CTRL-15");
  const auto slope = [](const WhileOptions& options) {
    return grad([=](Tensor v) { return sines_of(Tensor(40), v, options); });
  };
  const float want = slope({})(Tensor(0.7f)).item<float>();
  for (const std::size_t memory : {SIZE_MAX, SIZE_MAX / 2 + 1, SIZE_MAX / 2})
    for (const int every : {1, 2}) {
      const auto f = slope({.keep_every = every, .memory = memory});
      EXPECT_NEAR(f(Tensor(0.7f)).item<float>() / want, 1, 1e-4) << memory;
      for (const Mode mode : all_modes)
        EXPECT_NEAR(jit(f, {.mode = mode})(0.7f).item<float>() / want, 1, 1e-4) << memory;
    }
}

TEST(WhileTapes, AFullDiskIsSaidWithTheBytes) {
  RecordProperty("covers", "CTRL-15");
  const test::TemporaryFolder folder;
  const WhileOptions options{.memory = 1024, .file = folder.path() + "/tape"};
  const auto slope = [&](Mode mode) {
    return jit(grad([&](Tensor v) {
                 const auto more = [](Tensor i, Tensor) { return i < 1500; };
                 const auto step = [](Tensor i, Tensor u) { return std::pair{i + 1, sin(u)}; };
                 return while_loop(more, step, std::pair{Tensor(0), v}, options).second;
               }),
               {.mode = mode});
  };
  for (const Mode mode : all_modes) {
    const auto f = slope(mode);
    const float want = f(1.0f).item<float>();
    // In memory 256 floats, then parts of 256 and 512 in one page.
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    {
      const test::FullDisk disk(page);
      expect_error<CallbackError>(
          [&] { f(1.0f).item<float>(); },
          {"call 'while_loop' at", "while_test_tapes.cc", "cannot be written",
           folder.path() + "/tape", "1024 steps", "1024 bytes are in memory",
           std::to_string(page) + " in the file"},
          ErrorCode::resource_exhausted);
    }
    EXPECT_EQ(f(1.0f).item<float>(), want) << "the next run works";
  }
}

TEST(WhileTapes, LoopsInLoopsShareOneFile) {
  RecordProperty("covers", "CTRL-15");
  const test::TemporaryFolder folder;
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                         std::filesystem::directory_iterator());
  };
  const auto mappings = [] {
    std::ifstream maps("/proc/self/maps");
    return std::count(std::istreambuf_iterator(maps), {}, '\n');
  };
  const auto slope = [](Mode mode, int rounds, const WhileOptions& options) {
    return jit(grad([=](Tensor x) {
                 const auto round = [=](Tensor, Tensor v) {
                   return sines_of(Tensor(40), v, options);
                 };
                 return sum(fori_loop(0, rounds, round, x));
               }),
               {.mode = mode});
  };
  const WhileOptions options{.memory = 8, .file = folder.path() + "/tape"};
  const Tensor x = tensor<float>({0.3f, 0.7f});
  for (const Mode mode : all_modes) {
    const int rounds = mode == Mode::compiled ? 100 : 40;
    const auto f = slope(mode, rounds, options);
    const Floats want = slope(mode, rounds, {})(x).to_vector<float>();
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const rlimit few{static_cast<rlim_t>(descriptors() + 30), before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
    const auto mapped = mappings();
    EXPECT_EQ(f(x).to_vector<float>(), want) << static_cast<int>(mode);
    EXPECT_LE(mappings(), mapped + 60) << static_cast<int>(mode);
    ::setrlimit(RLIMIT_NOFILE, &before);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(WhileTapes, WhatIsFreedInAFileIsGivenToTheNext) {
  RecordProperty("covers", "CTRL-15");
  const test::TemporaryFolder folder;
  host::ResidualStores stores;
  const auto budget = stores.new_budget({.memory = 1, .file = folder.path() + "/tape"});
  const auto page = static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  const test::FullDisk disk(4 * page);
  const std::vector<float> values(1000, 1.5f);
  for (int i = 0; i < 100; ++i) {
    host::ResidualStore store(4, budget);
    store.write(0, 1000, values.data());
    std::vector<float> back(1000);
    store.read(0, 1000, back.data());
    ASSERT_EQ(back, values) << i;
  }
}

TEST(WhileTapes, TwoPullbacksOfOneLoopReadItsTape) {
  RecordProperty("covers", "CTRL-15 CTRL-16");
  const auto both = [](Tensor x) {
    const auto [y, pull] = vjp([](Tensor v) { return sines_of(Tensor(300), v, {}); }, x);
    return std::pair{std::get<0>(pull(Tensor(1.0f))), std::get<0>(pull(cos(x)))};
  };
  const Tensor x(0.7f);
  const float slope = grad([](Tensor v) { return sines_of(Tensor(300), v, {}); })(x).item<float>();
  for (const Mode mode : all_modes) {
    const auto [a, b] = jit(both, {.mode = mode})(x);
    EXPECT_NEAR(a.item<float>() / slope, 1, 1e-5) << static_cast<int>(mode);
    EXPECT_NEAR(b.item<float>() / slope, std::cos(0.7), 1e-5) << static_cast<int>(mode);
  }
}

TEST(WhileTapes, ASumOfTwoPullbacksHasNoSecondDerivative) {
  RecordProperty("covers", "CTRL-16");
  const auto sum_of_two = [](Tensor x) {
    const auto [y, pull] = vjp([](Tensor v) { return sines_of(Tensor(5), v, {}); }, x);
    return std::get<0>(pull(Tensor(1.0f))) + std::get<0>(pull(x));
  };
  for (const Mode mode : all_modes)
    expect_error<CallbackError>(
        [&] { jit(grad(sum_of_two), {.mode = mode})(Tensor(0.7f)).item<float>(); },
        {"call 'while_loop' at", "residuals are not there",
         "put all of the derivative into one jit"},
        ErrorCode::failed_precondition);
}

}  // namespace
}  // namespace postern
