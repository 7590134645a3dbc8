// shard_map and pmap: collectives, derivatives, batches, calls and taps of each device.
#include "devices_test.h"

#include <array>
#include <cmath>

namespace postern::test {
namespace {

using DevicesShardMap = EightDevices;

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
