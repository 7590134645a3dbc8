// Long programs for several devices are lowered in parts, like those for one.
#include <algorithm>
#include <mutex>

#include "devices_test.h"

namespace postern::test {
namespace {

using Lines = std::vector<std::string>;

constexpr int long_steps = 105, devices_used = 4;  // a step has two effects: two parts and a rest

std::size_t parts_in(const std::string& text) {
  std::size_t count = 0;
  for (std::size_t at = 0; (at = text.find("func.call @postern_part_", at)) != std::string::npos;) {
    ++at;
    ++count;
  }
  return count;
}

class DevicesLong : public EightDevices {
 protected:
  /// A tap and a call. What the devices have is added up, and where a device is comes into it too.
  Tensor step(const Tensor& i, const Tensor& first, Tensor x, Effect effect) {
    x = x * 3 + psum(x, "d") + axis_index("d");
    tap({.name = "seen", .ordered = effect == Effect::ordered}, first * i,
        [this](const TapInfo& info, View<const int> v) { add(info, 0, v.data()[0]); });
    return call(
        {.name = "made", .effect = effect}, x.type(),
        [this](const CallInfo& info, int n, View<const int> in, View<int> out) {
          add(info, n, in.data()[0]);
          if (n == fails_at_ && info.device == 2) throw std::runtime_error("no further");
          for (std::int64_t k = 0; k < in.size(); ++k) out.data()[k] = in.data()[k] + 1;
        },
        i, x);
  }
  auto unrolled(Effect effect) {
    return [this, effect](Tensor x) {
      const Tensor first = x;
      for (int i = 0; i < long_steps; ++i) x = step(Tensor(i), first, x, effect);
      return x;
    };
  }
  /// The same in a loop, which is short and so not cut.
  auto rolled(Effect effect) {
    return [this, effect](Tensor x) {
      return fori_loop(
          0, long_steps, [&](Tensor i, Tensor v) { return step(i, x, v, effect); }, x);
    };
  }
  auto compiled(auto f) {
    return jit(shard_map(std::move(f), mesh_, {.in = {P("d")}, .out = {P("d")}}));
  }
  std::vector<int> ran(const auto& f) {
    std::vector<int> out = f(x_).template to_vector<int>();
    barrier();
    return out;
  }
  /// By device, in the order in which its functions were entered.
  std::map<int, Lines> take() {
    const std::scoped_lock lock(guard_);
    return std::exchange(lines_, {});
  }

  const Mesh mesh_{{{"d", devices_used}}};
  const Tensor x_ = iota<int>(8) + 1;
  std::atomic<int> fails_at_ = -1;

 private:
  void add(const CallInfo& info, int step, int value) {
    std::string part;
    for (const IndexRange& r : info.part) part += fmt::format("[{}, {})", r.begin, r.end);
    const std::scoped_lock lock(guard_);
    lines_[info.device].push_back(
        fmt::format("{} {}: {} at {} of {}", info.name, step, value, info.coordinates[0], part));
  }

  std::mutex guard_;
  std::map<int, Lines> lines_;
};

TEST_F(DevicesLong, AreCutAndMeanTheSame) {
  const auto cut = compiled(unrolled(Effect::ordered));
  const auto whole = compiled(rolled(Effect::ordered));
  EXPECT_EQ(parts_in(cut.lower(x_).stablehlo()), 3u);
  EXPECT_EQ(parts_in(whole.lower(x_).stablehlo()), 0u);
  const std::vector<int> want = ran(whole);
  const auto seen = take();
  ASSERT_EQ(seen.size(), std::size_t{devices_used});
  ASSERT_EQ(seen.at(3).size(), 2u * long_steps);
  EXPECT_EQ(seen.at(3)[2], "seen 0: 7 at 3 of [6, 8)") << "in the second step";
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ran(cut), want);
    EXPECT_EQ(take(), seen);
  }
}

TEST_F(DevicesLong, HaveUnorderedEffects) {
  const auto cut = compiled(unrolled(Effect::unordered));
  EXPECT_EQ(parts_in(cut.lower(x_).stablehlo()), 3u);
  const auto sorted = [this] {
    auto seen = take();
    for (auto& [device, lines] : seen) std::ranges::sort(lines);
    return seen;
  };
  const std::vector<int> want = ran(compiled(rolled(Effect::unordered)));
  const auto seen = sorted();
  EXPECT_EQ(ran(cut), want);
  EXPECT_EQ(sorted(), seen);
}

TEST_F(DevicesLong, GiveNothingToEachOther) {
  std::atomic<int> fired = 0;
  const auto f = compiled([&](Tensor x) {
    for (int i = 0; i < 2 * long_steps; ++i) tap(x + i, [&](AnyView) { ++fired; });
    return x;
  });
  EXPECT_EQ(parts_in(f.lower(x_).stablehlo()), 3u);
  ran(f);
  EXPECT_EQ(fired, devices_used * 2 * long_steps);
}

TEST_F(DevicesLong, StandInLoopsAndBranches) {
  const auto twice = [](auto body) {
    return [body](Tensor x) {
      x = fori_loop(
          0, 2, [&](Tensor, Tensor v) { return body(v); }, x);
      return cond(
          psum(Tensor(1), "d") > 0, body, [](Tensor v) { return v; }, x);
    };
  };
  const auto cut = compiled(twice(unrolled(Effect::ordered)));
  EXPECT_EQ(parts_in(cut.lower(x_).stablehlo()), 2u * 3);
  const std::vector<int> want = ran(compiled(twice(rolled(Effect::ordered))));
  const auto seen = take();
  EXPECT_EQ(ran(cut), want);
  EXPECT_EQ(take(), seen);
}

TEST_F(DevicesLong, FailInAnyPartAndRunAgain) {
  const auto cut = compiled(unrolled(Effect::ordered));
  const std::vector<int> want = ran(cut);
  for (const int at : {0, 49, 50, long_steps - 1}) {
    fails_at_ = at;
    take();
    expect_error<CallbackError>([&] { ran(cut); }, {"made", "device 2", "no further"});
    EXPECT_EQ(take().at(2).size(), 2u * static_cast<std::size_t>(at) + 2);
    fails_at_ = -1;
    EXPECT_EQ(ran(cut), want);
  }
}

TEST_F(DevicesLong, HaveDerivatives) {
  std::atomic<int> fired = 0;
  const auto loss = [&](Tensor x) {
    for (int i = 0; i < 2 * long_steps; ++i)
      x = tap({.derivatives = true}, x * 1.001f, [&](AnyView) { ++fired; });
    return psum(sum(x * x), "d");
  };
  const auto f = jit(grad(shard_map(loss, mesh_, {.in = {P("d")}})));
  const Floats slopes = f(convert<float>(x_)).to_vector<float>();
  barrier();
  for (std::size_t i = 0; i < slopes.size(); ++i)
    EXPECT_NEAR(slopes[i] / static_cast<float>(i + 1), 2 * std::pow(1.001, 4 * long_steps), 1e-3);
  EXPECT_EQ(fired, devices_used * 2 * 2 * long_steps) << "values, and cotangents on the way back";
}

TEST_F(DevicesLong, AreCutWhereXlaPartitionsThem) {
  constexpr int calls = 205;  // two parts and a rest: XLA writes a branch and a collective for each
  std::vector<int> seen;      // on the first device alone
  const auto sum_up = [&](const Tensor& i, const Tensor& x) {
    const Tensor told = call(
        {.effect = Effect::ordered}, type<int>(),
        [&](int n, int total) {
          seen.push_back(total);
          return n + total;
        },
        i, sum(x));
    return x * 3 + told;
  };
  const auto cut = jit([&](Tensor x) {
    for (int i = 0; i < calls; ++i) x = sum_up(Tensor(i), x);
    return x;
  });
  const auto whole = jit([&](Tensor x) { return fori_loop(0, calls, sum_up, x); });
  const Tensor spread = device_put(x_, Sharding(mesh_, P("d")));
  EXPECT_EQ(parts_in(cut.lower(spread).stablehlo()), 3u);
  const std::vector<int> want = whole(spread).to_vector<int>();
  const auto in_order = std::exchange(seen, {});
  const Tensor y = cut(spread);
  EXPECT_EQ(y.to_vector<int>(), want);
  EXPECT_EQ(seen, in_order);
  const auto sharding = sharding_of(y);
  ASSERT_TRUE(sharding);
  EXPECT_EQ(to_string(sharding->spec()), to_string(P("d")))
      << "what goes through parts stays spread";
}

}  // namespace
}  // namespace postern::test
