// Effects of while loops in reverse: recorded, batched, started ahead, and when the way back ends
// early.
#include <fmt/format.h>
#include <postern/checkpoint.h>
#include <postern/record.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "support.h"

namespace postern {
namespace {

using test::all_modes, test::expect_error, test::has, test::wait_until;
using Floats = std::vector<float>;
using Strings = std::vector<std::string>;

/// v, which a function has seen that also sees the way back.
Tensor watched(const Tensor& v, const std::function<void()>& there,
               const std::function<void()>& back) {
  return call_with_vjp(
      {.name = "watch"}, v.type(),
      [there](float x) {
        there();
        return x;
      },
      [back](float, float, float ct, View<float> out) {
        back();
        out[0] = ct;
      },
      v);
}

/// A world that gives its next number for each step: (1 + 1) * 2 = 4, (4 + 2) * 2 = 12, 30, 68,
/// 146.
struct World {
  int time = 0, entered = 0, shuts_at = 0;

  Tensor grown(const Tensor& x) {
    const auto ask = [this](const Tensor& v) {
      return call_with_vjp(
          {.name = "ask"}, v.type(),
          [this](float at) {
            ++entered;
            if (time + 1 == shuts_at) throw std::runtime_error("the world is shut");
            return at + static_cast<float>(++time);
          },
          [](float, float, float ct, View<float> out) { out[0] = ct; }, v);
    };
    return while_loop([](Tensor v) { return v < 100.0f; }, [&](Tensor v) { return ask(v) * 2.0f; },
                      x);
  }
};

TEST(WhileEffects, RecordingsHaveTheCallsAndNoTapes) {
  RecordProperty("covers", "CTRL-16");
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/recording";
  World world;
  const auto f = jit(value_and_grad([&](Tensor x) { return world.grown(x); }));
  const auto gives = [&](float value, float slope) {
    const auto [v, d] = f(1.0f);
    EXPECT_EQ(v.item<float>(), value);
    EXPECT_EQ(d.item<float>(), slope);
  };
  {
    const Taping recording = record(file);
    gives(146, 32);
    gives(100, 8);  // 14, 42, 100
  }
  EXPECT_EQ(world.entered, 8);
  std::size_t asked = 0;
  for (const RecordedFiring& firing : read_recording(file)) {
    EXPECT_NE(firing.name, "while_loop");
    asked += firing.name == "ask" && firing.values.size() == 1;
  }
  EXPECT_GE(asked, 8u);
  {
    const Taping replaying = replay(file);
    gives(146, 32);
    gives(100, 8);
  }
  EXPECT_EQ(world.entered, 8) << "the replay entered no function";
}

TEST(WhileEffects, AResumedRecordingFillsTheTapesAgain) {
  RecordProperty("covers", "CTRL-16");
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/recording", kept = folder.path() + "/kept";
  World world;
  const auto f = jit(value_and_grad([&](Tensor x) { return world.grown(x); }));
  {
    const Taping recording = record(file, {.resumable = true});
    world.shuts_at = 3;
    EXPECT_THROW(f(1.0f).first.item<float>(), CallbackError);
  }
  EXPECT_EQ(world.entered, 3);
  world.shuts_at = 0;
  const Taping recording = record(file, {.resumable = true});
  EXPECT_FALSE(resume<Tensor>(kept, recording));
  const auto [value, slope] = f(1.0f);
  EXPECT_EQ(value.item<float>(), 146);
  EXPECT_EQ(slope.item<float>(), 32);
  EXPECT_EQ(world.entered, 3 + 3) << "two steps were given";
}

/// Whether the process has a file of that folder open or in its memory, named or not.
bool has_open(const std::string& folder) {
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    if (has(std::filesystem::read_symlink(entry.path(), gone).string(), folder)) return true;
  std::ifstream maps("/proc/self/maps");
  std::stringstream text;
  text << maps.rdbuf();
  return has(text.str(), folder);
}

enum class End { fails, stops, is_cancelled };

TEST(WhileEffects, ARunThatEndsOnItsWayBackLeavesNoFile) {
  RecordProperty("covers", "CTRL-15 CTRL-16");
  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/tape";
  for (const Mode mode : all_modes)
    for (const End end : {End::fails, End::stops, End::is_cancelled}) {
      SCOPED_TRACE(fmt::format("mode {}, end {}", static_cast<int>(mode), static_cast<int>(end)));
      std::atomic<int> there = 0, back = 0;
      std::atomic<bool> ends = true, was_open = false;
      const auto wave = [&](const Tensor& v) {
        return sin(call_with_vjp(
            {.name = "watch"}, v.type(),
            [&](float x) {
              ++there;
              return x;
            },
            [&](const CallInfo& info, float, float, float ct, View<float> out) {
              out[0] = ct;
              if (++back != 20 || !ends) return;
              was_open = has_open(folder.path());
              if (end == End::fails) throw std::runtime_error("no way back");
              if (end == End::stops) info.end_run();
              if (end == End::is_cancelled) wait_until([&] { return info.stop.stop_requested(); });
            },
            v));
      };
      const auto f =
          jit(grad([&](Tensor x) {
                const auto more = [](Tensor i, Tensor) { return i < 50; };
                const auto step = [&](Tensor i, Tensor v) { return std::pair{i + 1, wave(v)}; };
                const WhileOptions options{.memory = 16, .file = file};
                return while_loop(more, step, std::pair{Tensor(0), x}, options).second;
              }),
              {.mode = mode});
      {
        auto run = f.start(Tensor(1.0f));
        if (end == End::is_cancelled) {
          EXPECT_TRUE(wait_until([&] { return back == 20; }));
          run.cancel();
        }
        if (end == End::fails)
          expect_error<CallbackError>([&] { run.wait(); }, {"watch", "no way back"},
                                      ErrorCode::threw);
        if (end == End::stops) {
          EXPECT_EQ(run.wait(), RunStatus::stopped);
        }
        if (end == End::is_cancelled)
          expect_error<CallbackError>([&] { run.wait(); }, {"cancelled"}, ErrorCode::cancelled);
      }
      barrier();
      EXPECT_TRUE(was_open) << "there was a file to be left";
      EXPECT_EQ(back, 20);
      EXPECT_TRUE(wait_until([&] { return !has_open(folder.path()); }));
      EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
      ends = false;
      there = back = 0;
      double want = 1, v = 1;
      for (int i = 0; i < 50; ++i) {
        want *= std::cos(v);
        v = std::sin(v);
      }
      EXPECT_NEAR(f(1.0f).item<float>(), want, 1e-5 * want) << "the next run works";
      EXPECT_EQ(there, 50);
      EXPECT_EQ(back, 50);
    }
}

TEST(WhileEffects, EachElementOfABatchHasItsOwnCallsAndNoMore) {
  RecordProperty("covers", "CTRL-14 CTRL-16 AD-18");
  // From 1 down to a tenth, by the rate in each step: in 4 steps, in 2, in one.
  const Tensor rates = tensor<float>({0.5f, 0.25f, 0.05f});
  const Floats want{4 * 0.125f, 2 * 0.25f, 1};
  for (const Mode mode : all_modes)
    for (const WhileOptions& options : {WhileOptions(), WhileOptions{.keep_every = 2}}) {
      SCOPED_TRACE(
          fmt::format("mode {}, keep_every {}", static_cast<int>(mode), options.keep_every));
      std::atomic<int> there = 0, back = 0, tapped = 0;
      const auto decay = [&](Tensor rate) {
        const auto body = [&](Tensor v) {
          const Tensor seen = watched(
              v, [&] { ++there; }, [&] { ++back; });
          return tap(seen * rate, [&](const TapInfo& info, std::span<const AnyView> leaves) {
            for (std::int64_t i = 0; i < leaves[0].size(); ++i)
              tapped += info.mask.empty() || info.mask[static_cast<std::size_t>(i)];
          });
        };
        return while_loop([](Tensor v) { return v > 0.1f; }, body, Tensor(1.0f), options);
      };
      const Floats got = jit(vmap(grad(decay)), {.mode = mode})(rates).to_vector<float>();
      for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
      barrier();
      EXPECT_EQ(there.load(), 4 + 2 + 1);
      EXPECT_EQ(tapped.load(), 4 + 2 + 1);
      EXPECT_EQ(back.load(), 4 + 2 + 1);
    }
}

TEST(WhileEffects, TapsShowTheirCotangentsOnTheWayBack) {
  RecordProperty("covers", "CTRL-16");
  for (const Mode mode : all_modes) {
    Strings seen;
    const auto powers = [&](Tensor x) {
      const auto show = [&](const TapInfo& info, std::span<const AnyView> v) {
        const std::string by = to_string(info.transforms);
        seen.push_back(fmt::format("{}{:g}", by.empty() ? "" : by + " ", v[0].as<float>()[0]));
      };
      return while_loop([](Tensor v) { return v < 100.0f; },
                        [&](Tensor v) { return tap({.derivatives = true}, v * v, show); }, x);
    };
    // 3, 9, 81, 6561; back 1, 2 * 81, 2 * 9 * 162.
    EXPECT_EQ(jit(grad(powers), {.mode = mode})(3.0f).item<float>(), 8 * 2187);
    barrier();
    EXPECT_EQ(seen, (Strings{"9", "81", "6561", "jvp,transpose 1", "jvp,transpose 162",
                             "jvp,transpose 2916"}))
        << static_cast<int>(mode);
  }
}

TEST(WhileEffects, APendingWithARuleIsCarriedAndTakenBack) {
  RecordProperty("covers", "CTRL-16 OVERLAP-10");
  using Carry = std::tuple<Tensor, Tensor, Pending<Tensor>>;
  for (const Mode mode : all_modes) {
    std::atomic<int> forward = 0, backward = 0;
    const HostVjp by_two = [&](float x, float, float ct, View<float> dx) {
      ++backward;
      dx[0] = 2 * x * ct;
    };
    const auto square = [&](const Tensor& x) {
      return start_call_with_vjp(
          {.name = "sq"}, x.type(),
          [&](float v) {
            ++forward;
            return v * v;
          },
          by_two, x);
    };
    const auto powers = [&](Tensor x) {
      const auto more = [](Tensor n, Tensor, Pending<Tensor>) { return n < 3; };
      const auto step = [&](Tensor n, Tensor sum, Pending<Tensor> p) {
        const Tensor y = wait(p);
        return Carry{n + 1, sum + y, square(y)};
      };
      return std::get<1>(while_loop(more, step, Carry{Tensor(0), Tensor(0.0f), square(x)}));
    };
    EXPECT_EQ(jit(powers, {.mode = mode})(2.0f).item<float>(), 4 + 16 + 256);
    barrier();
    EXPECT_EQ(forward.exchange(0), 1 + 3) << "the last, for which nobody waits, runs too";
    EXPECT_EQ(jit(grad(powers), {.mode = mode})(2.0f).item<float>(), 4 + 32 + 8 * 128)
        << "of x^2 + x^4 + x^8";
    barrier();
    EXPECT_EQ(forward.exchange(0), 1 + 3);
    EXPECT_EQ(backward.load(), 3);
    EXPECT_EQ(jit(vmap(grad(powers)), {.mode = mode})(tensor<float>({1, 2})).to_vector<float>(),
              (Floats{14, 1060}));
    barrier();
  }
}

}  // namespace
}  // namespace postern
