// shard_map and pmap: collectives, derivatives, batches, calls and taps of each device, and runs
// that fail.
#include "devices_test.h"

#include <array>
#include <cmath>
#include <random>

namespace postern::test {
namespace {

using DevicesShardMap = EightDevices;

const P rows("d"), none;

TEST_F(DevicesShardMap, Collectives) {
  for (const int n : {1, 2, 4, 8}) {
    SCOPED_TRACE(n);
    const Mesh mesh({{"d", n}});
    const Tensor x = counting({n, 3}), square = counting({n, n});
    std::vector<std::pair<int, int>> next;
    for (int i = 0; i + 1 < n; ++i) next.emplace_back(i, i + 1);
    // In one program, since a compilation costs more than what is in it.
    const std::vector<Tensor> got = jit([&](Tensor v, Tensor w) {
      auto run = [&](auto f, P out = rows) {
        return shard_map(f, mesh, {.in = {rows}, .out = {out}})(v);
      };
      return std::vector{
          run([](Tensor u) { return psum(u, "d"); }, none),
          run([](Tensor u) { return pmean(u, "d"); }, none),
          run([](Tensor u) { return pmax(u, "d"); }, none),
          run([](Tensor u) { return pmin(u, "d"); }, none),
          run([](Tensor u) { return all_gather(u, "d", 0, true); }, none),
          run([](Tensor u) { return all_gather(squeeze(u, {0}), "d", 1); }, none),
          run([n](Tensor u) {
            return reduce_scatter(broadcast_to(u, {n, 3}), "d", 0, true);
          }),
          run([](Tensor u) { return u + convert(axis_index("d"), DType::f32) * 100.0f; }),
          run([&](Tensor u) { return ppermute(u, "d", next); }),
          run([](Tensor u) { return u * static_cast<float>(axis_size("d")); }),
          shard_map([](Tensor u) { return all_to_all(u, "d", 1, 0); }, mesh,
                    {.in = {rows}, .out = {P(std::nullopt, "d")}})(w)};
    })(x, square);
    const ReduceOptions down{.axes = Dims{0}, .keep_dims = true};
    const std::vector<Tensor> want{sum(x, down),
                                   mean(x, down),
                                   max(x, down),
                                   min(x, down),
                                   x,
                                   transpose(x),
                                   broadcast_to(sum(x, down), {n, 3}),
                                   x + reshape(iota<float>(n), {n, 1}) * 100.0f,
                                   where(x < 3.0f, 0.0f, x - 3.0f),
                                   x * static_cast<float>(n),
                                   square};
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(to_string(got[i].type()), to_string(want[i].type())) << "collective " << i;
      EXPECT_EQ(got[i].to_vector<float>(), want[i].to_vector<float>()) << "collective " << i;
    }
  }
}

TEST_F(DevicesShardMap, SeveralMeshAxesAndContainers) {
  const Mesh mesh({{"x", 2}, {"y", 4}});
  const Tensor a = counting({4, 8});
  auto f = [](Tensor v, std::vector<Tensor> more) {
    return std::tuple{psum(v, "x"), psum(v, {"x", "y"}),
                      more[0] + convert(axis_index({"x", "y"}), DType::f32), axis_index("y")};
  };
  const auto [by_x, all, index, last] = jit(shard_map(
      [&](Tensor v, std::vector<Tensor> m) {
        auto [p, q, r, s] = f(v, m);
        return std::tuple{p, q, r, reshape(s, {1, 1})};
      },
      mesh,
      {.in = {P("x", "y"), {P()}},
       .out = {P(std::nullopt, "y"), P(), P(AxisNames{"x", "y"}), P("x", "y")}}))(
      a, std::vector{Tensor(counting({1}))});
  expect_near(by_x, slice_axis(a, 0, 0, 2) + slice_axis(a, 0, 2, 4));
  const Tensor half = slice_axis(a, 0, 0, 2) + slice_axis(a, 0, 2, 4);
  expect_near(all, slice_axis(half, 1, 0, 2) + slice_axis(half, 1, 2, 4) +
                       slice_axis(half, 1, 4, 6) + slice_axis(half, 1, 6, 8));
  expect_near(index, iota<float>(8));
  EXPECT_EQ(last.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  // Devices in another order, and not the first ones.
  const Mesh other({{"d", 4}}, {6, 2, 7, 3});
  const Tensor y =
      shard_map([](Tensor v) { return v + convert(axis_index("d"), DType::f32) * 10.0f; }, other,
                {.in = {rows}, .out = {rows}})(iota<float>(4));
  EXPECT_EQ(y.to_vector<float>(), (Floats{0, 11, 22, 33}));
  EXPECT_EQ(shards_of(y)[1].device, 2);
}

/// A function of the whole that says what the one of parts must compute.
struct Pair {
  std::function<Tensor(Tensor)> parts, whole;
  P out;
};

std::vector<Pair> pairs(int n) {
  auto total = [](Tensor x) { return sum(x, {.axes = Dims{0}, .keep_dims = true}); };
  auto weighted = [n](Tensor x) {
    return concatenate(std::vector(static_cast<std::size_t>(n), x), 1) *
           sin(counting({1, 3 * n}) + 1.0f);
  };
  return {
      {[](Tensor x) { return sin(x) * 2.0f; }, [](Tensor x) { return sin(x) * 2.0f; }, rows},
      {[](Tensor x) { return psum(x * x, "d"); }, [=](Tensor x) { return total(x * x); }, none},
      {[](Tensor x) { return x * pmean(x, "d"); },
       [=](Tensor x) { return x * total(x) / static_cast<float>(x.dims()[0]); }, rows},
      {[](Tensor x) { return all_gather(sin(x), "d", 0, true) * 3.0f; },
       [](Tensor x) { return sin(x) * 3.0f; }, none},
      {[](Tensor x) { return x * pmax(x, "d"); },
       [](Tensor x) { return x * max(x, {.axes = Dims{0}, .keep_dims = true}); }, rows},
      {[](Tensor x) { return x * pmin(x, "d"); },
       [](Tensor x) { return x * min(x, {.axes = Dims{0}, .keep_dims = true}); }, rows},
      {[=](Tensor x) { return all_to_all(weighted(x), "d", 1, 0); }, weighted,
       P(std::nullopt, "d")},
      {[n](Tensor x) {
         return reduce_scatter(matmul(ones(type<float>({n, 1})), x * x), "d", 0, true);
       },
       [=](Tensor x) { return broadcast_to(total(x * x), x.dims()); }, rows},
      {[n](Tensor x) {
         std::vector<std::pair<int, int>> ring;
         for (int i = 0; i < n; ++i) ring.emplace_back(i, (i + 1) % n);
         return ppermute(x * x, "d", ring);
       },
       [](Tensor x) { return roll(x * x, 1, 0); }, rows},
      {[](Tensor x) {
         return scan(
                    [](Tensor c, Tensor i) {
                      return std::pair{c + psum(c * i, "d"), c};
                    },
                    x, iota<float>(3))
             .first;
       },
       [=](Tensor x) {
         return scan(
                    [=](Tensor c, Tensor i) {
                      return std::pair{c + total(c * i), c};
                    },
                    x, iota<float>(3))
             .first;
       },
       rows},
      {[](Tensor x) { return checkpoint([](Tensor v) { return sin(psum(sin(v), "d")); })(x); },
       [=](Tensor x) { return sin(total(sin(x))); }, none},
  };
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::array sizes{2};  // compiling takes ten times as long
#else
constexpr std::array sizes{1, 2, 8};
#endif

TEST_F(DevicesShardMap, ValuesDerivativesAndBatchesAreThoseOfTheWhole) {
  // In one program for each function, since six take six times as long to compile.
  const auto all = [](auto f) {
    return [f](Tensor x, Tensor dx) {
      const auto loss = [&](Tensor a) { return sum(f(a) * cos(f(a))); };
      const auto slope = [&](Tensor a) { return sum(sin(grad(loss)(a))); };
      const auto [y, dy] = jvp(f, std::tuple{x}, std::tuple{dx});
      const Tensor batch = stack({x, dx, x * dx}, 1);
      return std::vector{y,
                         dy,
                         grad(loss)(x),
                         grad(slope)(x),
                         vmap(f, {.in_axes = 1, .out_axes = 1})(batch),
                         vmap(grad(loss), {.in_axes = 1})(batch)};
    };
  };
  constexpr std::array tolerances{1e-5f, 1e-4f, 1e-4f, 1e-3f, 1e-4f, 1e-4f};
  for (const int n : sizes) {
    const Mesh mesh({{"d", n}});
    const Tensor x = sin(counting({n, 3}) + 0.3f), dx = cos(counting({n, 3}));
    int number = 0;
    for (const Pair& p : pairs(n)) {
      SCOPED_TRACE(fmt::format("{} devices, function {}", n, number++));
      const auto f = shard_map(p.parts, mesh, {.in = {rows}, .out = {p.out}});
      const std::vector<Tensor> want = jit(all(p.whole))(x, dx), got = jit(all(f))(x, dx);
      expect_near(f(x), want[0]);
      expect_near(jit(f)(device_put(x, Sharding(mesh, rows))), want[0]);
      ASSERT_EQ(got.size(), tolerances.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        SCOPED_TRACE(i);
        expect_near(got[i], want[i], tolerances[i]);
      }
    }
  }
}

TEST_F(DevicesShardMap, WhatAFunctionCapturesEveryDeviceSees) {
  const Mesh mesh({{"d", 4}});
  const Tensor x = counting({4, 2}), w = counting({2, 2});
  const auto f = jit([&](Tensor a, Tensor b) {
    return shard_map([&](Tensor v) { return matmul(v, b) + w; }, mesh,
                     {.in = {rows}, .out = {rows}})(expand_dims(a, 1));
  });
  const Tensor want = expand_dims(matmul(x, w), 1) + w;
  expect_near(f(x, w), want);
  const auto loss = [&](Tensor b) { return sum(sin(f(x, b))); };
  expect_near(grad(loss)(w),
              grad([&](Tensor b) { return sum(sin(expand_dims(matmul(x, b), 1) + w)); })(w));
}

TEST_F(DevicesShardMap, Pmap) {
  RecordProperty("covers", "DEV-01 DEV-09");
  const auto f = pmap([](Tensor x) {
    return call(
        {.effect = Effect::unordered}, x.type(),
        [](const CallInfo& info, float v) { return 3 * v + static_cast<float>(info.device) * 0; },
        x * 2.0f);
  });
  EXPECT_EQ(f(iota<float>(2)).to_vector<float>(), (Floats{0, 6}));
  const Tensor x = tensor<float>({0, 1, 2, 10, 11, 12}, {2, 3});
  const auto g = [](Tensor v) {
    return call(
        {.vmap = VmapMethod::sequential}, v.type(), [](float a) { return 2 * a; }, v);
  };
  const auto doubled = [&](Tensor v) {
    return custom_jvp(g, [&](auto p, auto t) {
      return std::pair{g(std::get<0>(p)), std::get<0>(t) * 2.0f};
    })(v);
  };
  EXPECT_EQ(jit(pmap(vmap(doubled)))(x).to_vector<float>(), (Floats{0, 2, 4, 20, 22, 24}));
  EXPECT_EQ(jit(vmap(pmap(doubled), {.in_axes = 1, .out_axes = 1}))(x).to_vector<float>(),
            (Floats{0, 2, 4, 20, 22, 24}));
  const auto dy =
      jvp(jit(pmap(vmap(doubled))), std::tuple{x}, std::tuple{ones(type<float>({2, 3})) * 0.1f})
          .second;
  EXPECT_NEAR(dy.to_vector<float>()[4], 0.2f, 1e-6f);
  EXPECT_EQ(pmap([](Tensor v) { return v / psum(v, "devices"); })(tensor<float>({1, 3}))
                .to_vector<float>(),
            (Floats{0.25f, 0.75f}));
  expect_error<TypeError>([&] { f(Tensor(1.0f)); }, {"pmap", "first axis"});
  expect_error<TypeError>([&] { f(iota<float>(9)); }, {"device 8"});
}

TEST_F(DevicesShardMap, EachDeviceCallsAndShowsItsOwn) {
  RecordProperty("covers", "DEV-06 DEV-08 ORDER-07");
  const Mesh mesh({{"x", 2}, {"y", 2}}, {1, 3, 0, 2});
  std::mutex guard;
  std::map<int, std::string> seen;
  std::map<int, std::vector<std::int64_t>> places;
  auto note = [&](const char* what) {
    return [&, what](const TapInfo& info, View<const float> v) {
      std::scoped_lock lock(guard);
      seen[info.device] += what + std::to_string(static_cast<int>(v[0]));
      places[info.device].assign(info.coordinates.begin(), info.coordinates.end());
    };
  };
  for (const TapMode mode : {TapMode::sync, TapMode::async}) {
    seen.clear();
    const auto f = jit(shard_map(
        [&](Tensor v) {
          v = tap({.mode = mode}, v * 1.0f, note("a"));
          v = call(
              {.effect = Effect::ordered}, v.type(),
              [](View<const float> in, View<float> out) { out[0] = in[0] + 10; }, v);
          v = fori_loop(
              0, 3, [&](Tensor, Tensor c) { return tap({.mode = mode}, c + 1.0f, note("b")); }, v);
          return psum(v, {"x", "y"});
        },
        mesh, {.in = {P(AxisNames{"x", "y"})}, .out = {P()}}));
    for (int i = 0; i < 10; ++i) EXPECT_EQ(f(iota<float>(4)).item<float>(), 6 + 40 + 12);
    barrier();
    ASSERT_EQ(seen.size(), 4u);
    for (int position = 0; position < 4; ++position) {
      std::string want;
      for (int i = 0; i < 10; ++i)
        want += fmt::format("a{}b{}b{}b{}", position, position + 11, position + 12, position + 13);
      const int device = mesh.devices()[static_cast<std::size_t>(position)];
      EXPECT_EQ(seen[device], want) << "device " << device;
      EXPECT_EQ(places[device], (std::vector<std::int64_t>{position / 2, position % 2}));
    }
  }
}

TEST_F(DevicesShardMap, ASlowDeviceHoldsUpNoOther) {
  RecordProperty("covers", "DEV-12");
  // Device 0's function returns when the others have finished their ten.
  std::atomic<int> others{0};
  std::atomic<bool> in_time{false};
  const Mesh mesh({{"d", 4}});
  const auto f = jit(shard_map(
      [&](Tensor v) {
        return fori_loop(
            0, 10,
            [&](Tensor i, Tensor c) {
              return tap({}, c + convert(i, DType::f32) * 0.0f,
                         [&](const TapInfo& info, View<const float>) {
                           if (info.device != 0)
                             ++others;
                           else if (!in_time)
                             in_time = wait_until([&] { return others == 30; });
                         });
            },
            v);
      },
      mesh, {.in = {rows}, .out = {rows}}));
  f(iota<float>(4)).block_until_ready();
  EXPECT_TRUE(in_time);
}

TEST_F(DevicesShardMap, BlocksRunOnParts) {
  const Mesh mesh({{"d", 4}});
  const Tensor a =
      matmul(counting({8, 3, 3}) * 0.01f, transpose(counting({8, 3, 3}) * 0.01f, {0, 2, 1})) +
      eye<float>(3);
  const auto f = jit(
      shard_map([](Tensor v) { return linalg::cholesky(v); }, mesh, {.in = {rows}, .out = {rows}}));
  expect_near(f(a), linalg::cholesky(a), 1e-4f);
  EXPECT_EQ(shards_of(f(a))[3].device, 3);
}

TEST_F(DevicesShardMap, WhatIsRefused) {
  const Mesh mesh({{"d", 4}});
  const Tensor x = iota<float>(8);
  expect_error<TypeError>([&] { psum(x, "d"); },
                          {"psum", "no mesh axis 'd'", "shard_map", "devices_test_shard_map.cc"});
  auto map = [&](auto f, ShardMapOptions o = {.in = {rows}, .out = {rows}}) {
    return [=] { shard_map(f, mesh, o)(iota<float>(8)); };
  };
  expect_error<TypeError>(map([](Tensor v) { return psum(v, "e"); }), {"mesh(d=4)", "no axis 'e'"});
  expect_error<TypeError>(map([](Tensor v) { return reduce_scatter(v, "d"); }),
                          {"f32[2]", "4 devices", "tiled"});
  expect_error<TypeError>(map([](Tensor v) { return reduce_scatter(v, "d", 0, true); }),
                          {"f32[2]", "divisible", "4 devices"});
  expect_error<TypeError>(map([](Tensor v) {
                            return ppermute(v, "d", {{0, 4}});
                          }),
                          {"(0, 4)", "4 devices"});
  expect_error<TypeError>(map([](Tensor v) {
                            return ppermute(v, "d", {{0, 1}, {2, 1}});
                          }),
                          {"(2, 1)", "twice"});
  expect_error<TypeError>(map([](Tensor v) { return sum(v); }), {"P(d)", "names 1 axes", "f32[]"});
  expect_error<TypeError>(map([](Tensor v) { return v; }, {.in = {P("e")}, .out = {rows}}),
                          {"no axis 'e'"});
  expect_error<TypeError>(map([](Tensor v) { return v; }, {.in = {rows, rows}, .out = {rows}}),
                          {"shard_map: in", "2 specs"});
  expect_error<TypeError>(
      [&] {
        shard_map([](Tensor v) { return v; }, mesh, {.in = {rows}, .out = {rows}})(iota<float>(6));
      },
      {"f32[6]", "4 parts"});
  expect_error<TypeError>(map([&](Tensor v) {
                            return shard_map([](Tensor w) { return w; }, mesh,
                                             {.in = {rows}, .out = {rows}})(v);
                          }),
                          {"inside shard_map"});
  expect_error<TypeError>(map([&](Tensor v) {
                            return call(
                                {.device = 1}, v.type(), [](View<const float>, View<float>) {}, v);
                          }),
                          {"option", "device", "no meaning"});
  expect_error<TypeError>(map([&](Tensor v) { return device_put(v, Sharding(mesh, P())); }),
                          {"device_put", "shard_map"});
  expect_error<TypeError>(
      [&] {
        shard_map([](Tensor v) { return v; }, Mesh({{"d", 16}}),
                  {.in = {rows}, .out = {rows}})(iota<float>(16));
      },
      {"device 15", "there are 8"});
}

// --- failures
// -------------------------------------------------------------------------------------------------

TEST_F(DevicesShardMap, AFailureOnOneDeviceEndsAll) {
  RecordProperty("covers", "DEV-11");
  for (const int n : {2, 4, 8}) {
    const Mesh mesh({{"d", n}});
    std::set<int> bad;
    const auto f = jit(shard_map(
        [&](Tensor v) {
          v = call(
              {.name = "part"}, v.type(),
              [&](const CallInfo& info, View<const float> in, View<float> out) {
                if (bad.count(info.device)) throw std::runtime_error("no luck");
                out[0] = in[0];
              },
              v);
          return psum(all_gather(v, "d", 0, true), "d");
        },
        mesh, {.in = {rows}, .out = {none}}));
    for (int round = 0; round < 10; ++round) {
      bad = {n - 1};
      const auto e = error_of<CallbackError>([&] { f(iota<float>(n)).block_until_ready(); });
      ASSERT_TRUE(e);
      EXPECT_EQ(e->device(), n - 1);
      EXPECT_TRUE(has(e->what(), "no luck") && has(e->what(), fmt::format("device {}", n - 1)))
          << e->what();
      bad.clear();
      EXPECT_EQ(f(iota<float>(n)).to_vector<float>().back(), static_cast<float>(n * (n - 1)));
    }
    bad = {0, 1};
    const auto e = error_of<CallbackError>([&] { f(iota<float>(n)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->device(), 0);
    EXPECT_EQ(e->count(), 2u);
  }
}

TEST_F(DevicesShardMap, TwoThatFailAtOnceAreOneError) {
  RecordProperty("covers", "DEV-11");
  std::atomic<int> arrived{0};
  const auto f = jit(shard_map(
      [&](Tensor v) {
        v = call(
            {.name = "part"}, v.type(),
            [&](const CallInfo& info, View<const float>, View<float>) {
              if (info.device < 1) return;
              ++arrived;
              wait_until([&] { return arrived >= 2; });
              throw std::runtime_error(fmt::format("bad {}", info.device));
            },
            v);
        return psum(v, "d");
      },
      Mesh({{"d", 3}}), {.in = {rows}, .out = {none}}));
  const auto e = error_of<CallbackError>([&] { f(iota<float>(3)).block_until_ready(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->device(), 1) << "the lowest";
  EXPECT_EQ(e->count(), 2u);
  ASSERT_EQ(e->others().size(), 1u);
  EXPECT_TRUE(has(e->others()[0], "bad 2")) << e->others()[0];
}

/// All of an error that a caller can see.
std::string told(const CallbackError& e) {
  return fmt::format("{} | {} | {} | {}", e.what(), e.device(), e.count(),
                     fmt::join(e.others(), " | "));
}

TEST_F(DevicesShardMap, TheSameFailureReadsTheSameEachTime) {
  RecordProperty("covers", "DEV-11");
  constexpr int steps = 5;
  for (const int n : {2, 4, 8}) {
    SCOPED_TRACE(n);
    std::atomic<int> bad_step{0}, odd{0};
    // In a loop without collectives the devices are at different steps.
    const auto part = [&](std::chrono::milliseconds limit, bool meet) {
      return jit(shard_map(
          [&, n, limit, meet](Tensor v) {
            return fori_loop(
                0, steps,
                [&](Tensor i, Tensor c) {
                  c = call(
                      {.name = "step", .effect = Effect::ordered, .timeout = limit}, c.type(),
                      [&](const CallInfo& info, View<const float> in, int here) -> Floats {
                        if (here >= bad_step && info.device % 2 >= odd)
                          throw std::runtime_error(fmt::format("step {}", here));
                        return {in[0] + 1};
                      },
                      c, i);
                  return meet ? psum(c, "d") / static_cast<float>(n) : c;
                },
                v);
          },
          Mesh({{"d", n}}), {.in = {rows}, .out = {rows}}));
    };
    const auto alone = part(0ms, false), meeting = part(0ms, true), limited = part(10s, false);
    for (const auto& f : {alone, meeting, limited}) {
      std::set<std::string> texts;
      for (int i = 0; i < 100; ++i) {
        bad_step = i % 2 ? 3 : 0;
        odd = i % 4 < 2;
        const auto e = error_of<CallbackError>([&] { f(iota<float>(n)).block_until_ready(); });
        ASSERT_TRUE(e);
        EXPECT_EQ(e->count(), static_cast<std::size_t>(odd ? n / 2 : n)) << told(*e);
        EXPECT_EQ(e->device(), odd ? 1 : 0) << told(*e);
        texts.insert(told(*e));
      }
      EXPECT_EQ(texts.size(), 4u) << fmt::format("{}", fmt::join(texts, "\n"));
    }
  }
}

TEST_F(DevicesShardMap, AFailureWaitsForNoDeviceThatTakesAnotherWay) {
  RecordProperty("covers", "DEV-11");
  const auto f = jit(shard_map(
      [&](Tensor v) {
        return psum(
            cond(
                axis_index("d") == 1,
                [](Tensor x) {
                  return call(
                      {.name = "alone"}, x.type(),
                      [](View<const float>, View<float>) { throw std::runtime_error("no"); }, x);
                },
                [](Tensor x) { return x; }, v),
            "d");
      },
      Mesh({{"d", 4}}), {.in = {rows}, .out = {none}}));
  const auto start = std::chrono::steady_clock::now();
  const auto e = error_of<CallbackError>([&] { f(iota<float>(4)).block_until_ready(); });
  ASSERT_TRUE(e);
  EXPECT_EQ(e->device(), 1);
  EXPECT_EQ(e->count(), 1u);
  EXPECT_LT(seconds_since(start), 20);
}

TEST_F(DevicesShardMap, LoopsThatWaitForTheHostEnd) {
  for (const bool meets : {false, true}) {
    int steps = 0;
    const auto f = jit(shard_map(
        [&](Tensor v) {
          return while_loop([&](Tensor c) { return sum(meets ? pmax(c, "d") : c) < 100.0f; },
                            [&](Tensor c) {
                              Tensor next = call(
                                  {.name = "step"}, c.type(),
                                  [&](const CallInfo& info, View<const float> in, View<float> out) {
                                    if (info.device == 1 && ++steps == 5)
                                      throw std::runtime_error("stuck");
                                    out[0] = in[0] + 0.001f;  // too slow to end by itself
                                  },
                                  c);
                              return meets ? pmax(next, "d") : next;
                            },
                            v);
        },
        Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}}));
    const auto e = error_of<CallbackError>([&] { f(iota<float>(4)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->device(), 1);
    EXPECT_TRUE(has(e->what(), "stuck"));
  }
}

TEST_F(DevicesShardMap, LongLoopsAreLeftWhenADeviceFails) {
  for (const auto& [meets, effect] : {std::pair{false, Effect::pure},
                                      {true, Effect::pure},
                                      {false, Effect::unordered},
                                      {true, Effect::ordered}}) {
    std::atomic<std::int64_t> calls{0};
    const auto f = jit(shard_map(
        [&](Tensor v) {
          return fori_loop(
              0, std::int64_t{1} << 40,
              [&](Tensor, Tensor c) {
                c = call(
                    {.name = "step", .effect = effect}, c.type(),
                    [&](const CallInfo& info, View<const float> in, View<float> out) {
                      if (++calls > 100 && info.device == 2) throw std::runtime_error("enough");
                      out[0] = in[0] + 1;
                    },
                    c);
                return meets ? pmax(c, "d") : c;
              },
              v);
        },
        Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}}));
    const auto e = error_of<CallbackError>([&] { f(iota<float>(4)).block_until_ready(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->device(), 2);
  }
}

/// Programs whose way depends on what a function of the process answers. Each device asks; device 1
/// fails where it is told to.
class DevicesWays : public EightDevices {
 protected:
  std::atomic<int> bad_at{-1};
  std::array<std::atomic<int>, 4> asked{};
  const Mesh mesh{{{"d", 4}}};

  /// What the function gives, float of the operand's type, unless it is device 1 and time to fail;
  /// there it waits until others are ahead.
  Tensor ask(Tensor v, float add) {
    return call(
        {.name = "ask", .effect = Effect::unordered}, v.type(),
        [this, add](const CallInfo& info, View<const float> in, View<float> out) {
          if (asked[static_cast<std::size_t>(info.device)]++ == bad_at && info.device == 1) {
            std::this_thread::sleep_for(20ms);
            throw std::runtime_error("no answer");
          }
          out[0] = in[0] + add;
        },
        v);
  }

  template <class F>
  void fails_and_goes_well(F part, const Floats& want) {
    const auto f = jit(shard_map(part, mesh, {.in = {rows}, .out = {rows}}));
    const Tensor x = full(type<float>({4}), 1.0f);
    for (const int at : {-1, 0, -1}) {
      for (auto& a : asked) a = 0;
      bad_at = at;
      if (at < 0) {
        EXPECT_EQ(f(x).template to_vector<float>(), want);
        continue;
      }
      const auto start = std::chrono::steady_clock::now();
      const auto e = error_of<CallbackError>([&] { f(x).block_until_ready(); });
      EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
      ASSERT_TRUE(e);
      EXPECT_EQ(e->device(), 1);
      EXPECT_TRUE(has(e->what(), "no answer")) << e->what();
    }
    barrier();
  }
};

TEST_F(DevicesWays, ALoopsConditionFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        return while_loop([&](Tensor c) { return pmin(sum(ask(c, 0)), "d") < 100.0f; },
                          [](Tensor c) { return psum(c, "d"); }, v);
      },
      Floats(4, 256));
}

TEST_F(DevicesWays, AStepsSecondCallFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        return while_loop([&](Tensor c) { return pmin(sum(c), "d") < 100.0f; },
                          [&](Tensor c) {
                            c = call(
                                c.type(),
                                [](View<const float> in, View<float> out) { out[0] = in[0]; },
                                psum(c, "d"));
                            return ask(c, 1);
                          },
                          v);
      },
      Floats(4, 341));
}

TEST_F(DevicesWays, ABranchesIndexFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        return cond(
            pmin(sum(ask(v, 0)), "d") > 0.5f, [](Tensor c) { return psum(c, "d"); },
            [](Tensor c) { return c; }, v);
      },
      Floats(4, 4));
}

TEST_F(DevicesWays, ALoopsBoundFails) {
  fails_and_goes_well(
      [&](Tensor v) {
        const Tensor steps = pmax(convert(sum(ask(v, 2)), DType::s32), "d");
        return fori_loop(
            0, steps, [](Tensor, Tensor c) { return psum(c, "d"); }, v);
      },
      Floats(4, 64));
}

TEST_F(DevicesWays, ZerosKeepALoopThatCallsNobody) {
  auto part = [&](Tensor v) {
    return while_loop([](Tensor c) { return sum(c) < 100.0f; }, [](Tensor c) { return c * 2.0f; },
                      ask(v, 0));
  };
  fails_and_goes_well(part, Floats(4, 128));
  // The same in a program that XLA cuts, where the function sees the whole once.
  bool fails = false;
  const auto f = jit([&](Tensor v) {
    v = call(
        v.type(),
        [&](View<const float> in, View<float> out) {
          if (fails) throw std::runtime_error("no answer");
          std::ranges::copy(in, out.begin());
        },
        v);
    return while_loop([](Tensor c) { return max(c) < 100.0f; }, [](Tensor c) { return c * 2.0f; },
                      v);
  });
  const Tensor x = device_put(full(type<float>({8}), 1.0f), Sharding(mesh, rows));
  for (const bool now : {false, true, false}) {
    fails = now;
    if (now)
      expect_error<CallbackError>([&] { f(x).block_until_ready(); }, {"no answer"});
    else
      EXPECT_EQ(f(x).to_vector<float>(), Floats(8, 128));
  }
}

TEST_F(DevicesShardMap, GroupsThatMeetGoTheirOwnWays) {
  // Devices meet along "a"; how many steps they take depends on where they are along "b".
  const Mesh mesh({{"a", 2}, {"b", 2}});
  std::atomic<int> calls{0};
  const auto f = jit(shard_map(
      [&](Tensor v) {
        const Tensor steps = axis_index("b") * 3 + 1;
        return fori_loop(
            0, steps,
            [&](Tensor, Tensor c) {
              c = call(
                  {.effect = Effect::unordered}, c.type(),
                  [&](View<const float> in, View<float> out) {
                    ++calls;
                    out[0] = in[0];
                  },
                  c);
              return psum(c, "a");
            },
            v);
      },
      mesh, {.in = {P(AxisNames{"a", "b"})}, .out = {P(AxisNames{"a", "b"})}}));
  EXPECT_EQ(f(full(type<float>({4}), 1.0f)).to_vector<float>(), (Floats{2, 16, 2, 16}));
  EXPECT_EQ(calls, 2 * 1 + 2 * 4);
}

int count_of(std::string_view text, std::string_view word) {
  int n = 0;
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + word.size()))
    ++n;
  return n;
}

TEST_F(DevicesShardMap, SmallLoopsThatCallAreWrittenForEachDevice) {
  struct Case {
    const char* what;
    Effect effect;
    std::int64_t steps;
    bool meets;
    int sines;        // that make the body large
    int calls, asks;  // custom calls in the text
  };
  for (const Case& c :
       {Case{"a loop", Effect::unordered, 9, false, 0, 4, 0},
        Case{"in order", Effect::ordered, 9, false, 0, 4, 0},
        Case{"XLA may take a pure call out of it", Effect::pure, 9, false, 0, 4, 4},
        Case{"devices meet in it", Effect::unordered, 9, true, 0, 1, 0},
        Case{"no loop", Effect::unordered, 0, false, 0, 1, 0},
        Case{"it would take long to compile", Effect::unordered, 9, false, 200, 1, 0}}) {
    auto part = [&](Tensor v) {
      auto step = [&](Tensor a) {
        for (int i = 0; i < c.sines; ++i) a = sin(a);
        a = call(
            {.effect = c.effect}, a.type(),
            [](const CallInfo& info, View<const float> in, View<float> out) {
              out[0] = in[0] + float(info.device);
            },
            a);
        return c.meets ? psum(a, "d") : a;
      };
      return c.steps ? fori_loop(
                           0, c.steps, [&](Tensor, Tensor a) { return step(a); }, v)
                     : step(v);
    };
    const auto f = jit(shard_map(part, Mesh({{"d", 4}}), {.in = {rows}, .out = {rows}}));
    const std::string text = f.lower(zeros(type<float>({4}))).stablehlo();
    EXPECT_EQ(count_of(text, "\"postern_call\""), c.calls) << c.what;
    EXPECT_EQ(count_of(text, "\"postern_goes_on\""), c.asks) << c.what;
    const auto y = f(zeros(type<float>({4}))).to_vector<float>();
    const auto steps = static_cast<float>(std::max<std::int64_t>(c.steps, 1));
    EXPECT_TRUE(c.sines > 0 || c.meets || y[3] == 3 * steps) << c.what;
  }
}

TEST_F(DevicesShardMap, LimitsNonsenseAndCancelling) {
  const Mesh mesh({{"d", 4}});
  std::atomic<bool> go{false};
  auto with = [&](auto fn, std::chrono::nanoseconds timeout) {
    return jit(shard_map(
        [&, fn, timeout](Tensor v) {
          return psum(call({.name = "part", .timeout = timeout}, v.type(), fn, v), "d");
        },
        mesh, {.in = {rows}, .out = {none}}));
  };
  const auto late = error_of<TimeoutError>([&] {
    with(
        [&](const CallInfo& info, View<const float>, View<float>) {
          if (info.device == 2) wait_until([&] { return go.load(); });
        },
        50ms)(iota<float>(4))
        .block_until_ready();
  });
  ASSERT_TRUE(late);
  EXPECT_EQ(late->device(), 2);
  go = true;
  const auto wrong = error_of<CallbackError>([&] {
    with(
        [](const CallInfo& info, View<const float>) {
          return info.device == 3 ? Floats{1, 2} : Floats{1};
        },
        0ns)(iota<float>(4))
        .block_until_ready();
  });
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->code(), ErrorCode::bad_result);
  EXPECT_EQ(wrong->device(), 3);
  std::atomic<int> inside{0};
  const auto f = with(
      [&](const CallInfo& info, View<const float>, View<float>) {
        ++inside;
        wait_until([&] { return info.stop.stop_requested(); });
      },
      0ns);
  auto run = f.start(iota<float>(4));
  ASSERT_TRUE(wait_until([&] { return inside > 0; }));
  run.cancel();
  expect_error<CallbackError>([&] { run.result(); }, {"cancelled"}, ErrorCode::cancelled);
  barrier();
}

TEST_F(DevicesShardMap, AThousandRunsWithFailures) {
  RecordProperty("covers", "DEV-11");
  enum Kind { exception, number, shape, together, late };
  constexpr int steps = 6;
  std::array<std::atomic<int>, 8> step{};
  std::atomic<int> bad_device{-1}, bad_step{-1}, kind{0};
  const auto part = [&](int n, std::chrono::milliseconds limit) {
    return jit(shard_map(
        [&, n, limit](Tensor v) {
          return fori_loop(
              0, steps,
              [&](Tensor, Tensor c) {
                c = call(
                    {.name = "step", .effect = Effect::ordered, .timeout = limit}, c.type(),
                    [&](const CallInfo& info, View<const float> in) -> Floats {
                      const int here = step[static_cast<std::size_t>(info.device)]++;
                      const bool bad =
                          info.device == bad_device ||
                          (kind == together && bad_device >= 0 && info.device == bad_device + 1);
                      if (!bad || here != bad_step) return {in[0] + 1};
                      if (kind == number) throw 7;
                      if (kind == shape) return {1, 2, 3};
                      if (kind == late) wait_until([&] { return info.stop.stop_requested(); });
                      throw std::runtime_error("bad step");
                    },
                    c);
                return psum(c, "d") / static_cast<float>(n);
              },
              v);
        },
        Mesh({{"d", n}}), {.in = {rows}, .out = {none}}));
  };
  std::mt19937 random(3);
  for (const auto& [n, runs] : {std::pair{4, 1000}, {2, 200}, {8, 200}}) {
    SCOPED_TRACE(n);
    const auto f = part(n, 0ms), limited = part(n, 500ms);
    for (int i = 0; i < runs; ++i) {
      for (auto& s : step) s = 0;
      const bool fails = random() % 4 != 0;
      kind = i % 50 == 0 ? late : static_cast<int>(random() % late);
      const int first =
          static_cast<int>(random() % static_cast<unsigned>(kind == together ? n - 1 : n));
      bad_device = fails ? first : -1;
      bad_step = static_cast<int>(random() % steps);
      if (!fails) {
        ASSERT_EQ(f(iota<float>(n)).item<float>(), static_cast<float>(n - 1) / 2 + steps);
        continue;
      }
      if (kind == late) {
        const auto e = error_of<TimeoutError>([&] { limited(iota<float>(n)).block_until_ready(); });
        ASSERT_TRUE(e && e->device() == first) << "run " << i;
        continue;
      }
      const auto e = error_of<CallbackError>([&] { f(iota<float>(n)).block_until_ready(); });
      ASSERT_TRUE(e) << "run " << i;
      ASSERT_EQ(e->device(), first) << e->what();
      ASSERT_EQ(e->code(), kind == shape ? ErrorCode::bad_result : ErrorCode::threw);
      ASSERT_EQ(e->count(), e->others().size() + 1);
      ASSERT_EQ(e->count(), kind == together ? 2u : 1u) << e->what();
    }
  }
}

TEST_F(DevicesShardMap, EveryDevicesFunctionRunsPrograms) {
  RecordProperty("covers", "REENTRY-07");
  const Mesh mesh({{"d", 4}});
  const auto heavy = jit([](Tensor x) { return sum(sin(x) * cos(x)); });
  const auto sharded = jit(shard_map([](Tensor v) { return psum(sum(v * 2.0f), "d"); }, mesh,
                                     {.in = {rows}, .out = {none}}));
  const Tensor large = counting({1 << 16}) * 1e-4f;
  const float want = heavy(large).item<float>();
  const auto f = jit(shard_map(
      [&](Tensor v) {
        v = call(
            v.type(),
            [&](View<const float> in, View<float> out) {
              out[0] = in[0] +
                       (heavy(Tensor::copy_of(View<const float>(in)) + large).block_until_ready(),
                        heavy(large).item<float>()) +
                       sharded(iota<float>(8)).item<float>();
            },
            v);
        return psum(v, "d");
      },
      mesh, {.in = {rows}, .out = {none}}));
  for (int i = 0; i < 20; ++i)
    EXPECT_NEAR(f(iota<float>(4)).item<float>(), 6 + 4 * (want + 56),
                1e-2f * std::abs(want) + 1e-2f);
}

TEST_F(DevicesShardMap, WhileLoopsInReverse) {
  RecordProperty("covers", "CTRL-16");
  const Mesh mesh({{"d", 2}}, {0, 1});
  auto parts = shard_map(
      [](Tensor v) {
        return while_loop([](Tensor u) { return sum(u) < 100.0f; },
                          [](Tensor u) { return u * 2.0f; }, v);
      },
      mesh, {.in = {P("d")}, .out = {P("d")}});
  auto total = [&](Tensor v) { return sum(parts(v)); };
  EXPECT_EQ(jit(grad(total))(tensor<float>({3, 60})).to_vector<float>(), (Floats{64, 2}));
  // Loops in a loop, in which devices meet; and beside a function that may fail.
  const auto nested = [](auto sums_all) {
    return [sums_all](Tensor v) {
      auto halve = [sums_all](Tensor u) {
        return while_loop([sums_all](Tensor a) { return sums_all(sum(a * a)) > 1.0f; },
                          [sums_all](Tensor a) { return 0.5f * a + 0.125f * sums_all(a); }, u);
      };
      auto step = [&](Tensor i, Tensor u) { return std::pair{i + 1, 2.0f * halve(u)}; };
      return while_loop([](Tensor i, Tensor) { return i < 3; }, step, std::pair{Tensor(0), v})
          .second;
    };
  };
  const auto on_both = nested([](Tensor a) { return psum(a, "d"); });
  const auto on_one = nested([](Tensor a) { return sum(a); });
  const Tensor x = tensor<float>({3, -1}),
               slope = jit(grad([&](Tensor v) { return sum(on_one(v)); }))(x);
  for (const bool calls : {false, true}) {
    auto part = [&](Tensor v) {
      const Tensor y = on_both(v);
      return calls ? tap(y, [](AnyView) {}) : y;
    };
    auto sums = [&](Tensor v) {
      return sum(shard_map(part, mesh, {.in = {P("d")}, .out = {P("d")}})(v));
    };
    expect_near(jit(grad(sums))(x), slope);
  }
  // What is gathered for a tape is a step's share of a block.
  auto cut = [](Tensor v) {
    return sum(while_loop([](Tensor u) { return sum(u) < 100.0f; },
                          [](Tensor u) { return 1.5f * u + sin(u); }, v));
  };
  const Tensor spread = device_put(iota<float>(8), Sharding(mesh, P("d")));
  expect_near(jit(grad(cut), {.gather_limit = 1024})(spread), jit(grad(cut))(iota<float>(8)));
}

TEST_F(DevicesShardMap, LoopsInReverseRememberWhatEachDeviceHad) {
  const Mesh mesh({{"d", 2}});
  const auto steps = [](bool calls) {  // what differs comes in inside of the loop
    return [calls](Tensor v) {
      const auto next = [calls](std::pair<Tensor, Tensor> c) {
        Tensor k = convert<float>(axis_index("d")) + 1.0f;
        if (calls)
          k = call(
              type<float>({}), [](float in) { return in; }, k);
        return std::pair{c.first * c.first * k, c.second + 1};
      };
      return while_loop([](std::pair<Tensor, Tensor> c) { return c.second < 2; }, next,
                        std::pair{v, Tensor(0)})
          .first;
    };
  };
  const auto outer = [](auto loss) {
    return [loss](Tensor w) {
      return grad([loss](Tensor a) {
        return fori_loop(
            0, 2, [loss](Tensor, Tensor c) { return loss(c) * 0.1f; }, a);
      })(w);
    };
  };
  const auto batch = [one = steps(false)](Tensor v) {
    return sum(vmap([one, v](Tensor) { return one(v); }, {.axis_name = "d"})(iota<float>(2)));
  };
  const float want = jit(outer(batch))(Tensor(1.1f)).item<float>();
  for (const Mode mode : {Mode::compiled, Mode::staged, Mode::evaluate}) {
    for (const bool calls : {false, true}) {
      const auto parts = [mesh, one = steps(calls)](Tensor v) {
        const auto row = [one](Tensor part) { return expand_dims(one(part), 0); };
        return sum(shard_map(row, mesh, {.in = {P()}, .out = {P("d")}})(v));
      };
      const Tensor got = jit(outer(parts), {.mode = mode})(Tensor(1.1f));
      EXPECT_NEAR(got.item<float>(), want, 1e-4f * want) << static_cast<int>(mode) << calls;
    }
  }
}

TEST_F(DevicesShardMap, ConstantsMayBeInsideAndOutside) {  // XLA makes one of two that are equal
  const Mesh mesh({{"d", 2}});
  const auto inside = [&](auto f) { return shard_map(f, mesh, {.in = {P()}, .out = {P()}}); };
  const auto twice = [&](Tensor v) {
    return inside([](Tensor part) { return part * 2.0f; })(v) * 2.0f;
  };
  EXPECT_EQ(jit(twice)(Tensor(1.5f)).item<float>(), 6.0f);
  EXPECT_EQ(jit(grad(twice))(Tensor(1.5f)).item<float>(), 4.0f);
  for (const int bound : {2, 3}) {
    const auto calls = inside([&](Tensor v) {
      using State = std::pair<Tensor, Tensor>;
      const auto next = [](State c) {
        return State{call(
                         type<float>({}), [](float x) { return x + 1.0f; }, c.first),
                     c.second + 1};
      };
      const auto more = [&](State c) { return c.second < bound; };
      return psum(while_loop(more, next, State{v, Tensor(0)}).first, "d");
    });
    const auto steps = [&](Tensor w) {
      return std::get<0>(scan(
          [&](Tensor c, Tensor x) {
            return std::pair{calls(c) + x, c};
          },
          w, iota<float>(2)));
    };
    const float k = 2.0f * static_cast<float>(bound);
    EXPECT_EQ(jit(steps)(Tensor(1.0f)).item<float>(), 2.0f * (2.0f + k) + k + 1.0f);
  }
}

}  // namespace
}  // namespace postern::test
