// Meshes, shardings, arrays over several devices, programs that XLA cuts.
#include "devices_test.h"

#include <numeric>
#include <random>

namespace postern::test {
namespace {

using Devices = EightDevices;

TEST_F(Devices, NativeFunctionsAreOfOneDevice) {
  auto half = [](Tensor part) { return part * 2; };
  const Mesh mesh({{"i", 2}}, {0, 1});
  auto f = jit(shard_map(half, mesh, {.in = {P("i")}, .out = {P("i")}}));
  expect_error<Error>([&] { static_cast<void>(native(f.lower(abstract(type<float>({4}))))); },
                      {"no memory of one caller"}, ErrorCode::unimplemented);
}

TEST_F(Devices, MeshesAndSpecsSayWhatIsWrong) {
  expect_error<TypeError>([] { Mesh({{"x", 0}}); }, {"axis 'x'", "got 0"});
  expect_error<TypeError>([] { Mesh({{"x", 2}, {"x", 2}}); }, {"axis 'x'", "twice"});
  expect_error<TypeError>([] { Mesh({{"x", 2}}, {0, 1, 2}); }, {"2 devices", "3 were given"});
  expect_error<TypeError>([] { Mesh({{"x", 2}}, {1, 1}); }, {"device 1", "twice"});
  const std::int64_t many = 1 << 16;
  expect_error<TypeError>(
      [=] {
        Mesh({{"x", many}, {"y", many}, {"z", many}, {"w", many}});
      },
      {"more than 65536 devices"});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(Mesh({{"x", many}}).size(), many);
  const auto f = pmap([](Tensor v) { return v; });
  expect_error<TypeError>([&] { f(zeros(type<float>({60000}))); }, {"needs device 59999"});
  expect_error<TypeError>(
      [&] {
        f(zeros(type<float>({many * many, 0})));
      },
      {"more than 65536 devices", "devices_test.cc"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20)) << "not squared";
  const Mesh mesh({{"x", 2}, {"y", 4}});
  EXPECT_EQ(to_string(mesh), "mesh(x=2, y=4)");
  EXPECT_EQ(to_string(Mesh({{"x", 2}}, {4, 2})), "mesh(x=2; devices 4,2)");
  EXPECT_EQ(mesh.coordinates(6), (std::vector<std::int64_t>{1, 2}));
  EXPECT_TRUE(mesh.coordinates(8).empty());
  EXPECT_EQ(to_string(P("x", std::nullopt, AxisNames{"y", "z"})), "P(x, none, (y, z))");
  expect_error<TypeError>([&] { Sharding(mesh, P("z")); }, {"mesh(x=2, y=4)", "no axis 'z'"});
  expect_error<TypeError>([&] { Sharding(mesh, P("x", "x")); }, {"'x' cuts two axes"});
  expect_error<TypeError>([&] { Sharding(mesh, P("x", "y")).part_type(type<float>({4})); },
                          {"names 2 axes", "f32[4]"});
  expect_error<TypeError>([&] { device_put(counting({6}), Sharding(mesh, P("y"))); },
                          {"f32[6]", "4 parts", "divide 6", "devices_test.cc"});
  expect_error<TypeError>(
      [] {
        device_put(Tensor(1.0f), Sharding(Mesh({{"x", 2}}, {0, 99}), P()));
      },
      {"device 99", "there are 8"});
  expect_error<TypeError>([] { device_put(Tensor(1.0f), 8); }, {"device 8", "8 of devices()"});
}

TEST_F(Devices, PartsAndDrawings) {
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const Sharding s(mesh, P(std::nullopt, AxisNames{"y", "x"}));
  EXPECT_EQ(to_string(s.part_type(type<float>({3, 8}))), "f32[3,2]");
  EXPECT_EQ(s.part({3, 8}, 2),
            (std::vector<IndexRange>{{0, 3}, {2, 4}}));  // x=1, y=0: piece 0 * 2 + 1
  expect_error<TypeError>([&] { s.part({3, 8}, 4); }, {"parts 0 to 3", "got 4"});
  expect_error<TypeError>([&] { s.part({3, 8}, -1); }, {"parts 0 to 3", "got -1"});
  expect_error<TypeError>([&] { s.part({3, 6}, 0); }, {"4 parts", "divide 6"});
  expect_error<TypeError>([&] { s.part({3}, 0); }, {"names 2 axes"});
  EXPECT_EQ(draw(Sharding(Mesh({{"d", 2}}), P("d")), {8, 8}),
            "+---+\n| 0 |\n+---+\n| 1 |\n+---+\n");
  EXPECT_EQ(draw(Sharding(mesh, P(std::nullopt, "y")), {8, 8}),
            "+-----+-----+\n| 0,2 | 1,3 |\n+-----+-----+\n");
}

TEST_F(Devices, ResultsLieAsAskedAlsoWhereXlaKnowsBetter) {
  const Mesh mesh({{"x", 8}});
  const Sharding whole(mesh, P()), cut(mesh, P("x"));
  const Tensor x = device_put(counting({8}), cut);
  const auto folded = [](Tensor v) {
    return reshape(v, {2, 4}) * 2.0f;
  };  // XLA would give each device one element
  const Tensor y = jit(folded)(x);
  expect_near(y, counting({2, 4}) * 2.0f);
  EXPECT_EQ(*sharding_of(y), whole) << "no spec on the mesh says what XLA would do";
  const Tensor z = jit(folded, {.out_shardings = {whole}})(x);
  expect_near(z, counting({2, 4}) * 2.0f);
  EXPECT_EQ(*sharding_of(z), whole);
  const auto both = jit([&](Tensor v) { return std::pair{reshape(v, {2, 4}), v + 1.0f}; })(x);
  EXPECT_EQ(*sharding_of(both.first), whole);
  EXPECT_EQ(*sharding_of(both.second), cut);
  expect_near(both.second, counting({8}) + 1.0f);
}

TEST_F(Devices, AxesOfExtentOneChangeNothingOfWhatXlaChose) {
  const auto turned = [](Tensor v) { return transpose(v, {1, 0, 2, 3, 4, 5}) * 2.0f; };
  const Tensor x = counting({4, 4, 2, 2, 2, 2});
  std::vector<MeshAxis> axes{{"a", 2}, {"b", 2}};
  const P rows_and_columns("a", "b"), columns_and_rows("b", "a");
  for (const int more : {0, 8}) {  // to try each of them takes hours
    SCOPED_TRACE(more);
    for (int i = 0; i < more; ++i) axes.push_back({fmt::format("one{}", i), 1});
    const Mesh mesh(axes);
    const Tensor y = jit(turned)(device_put(x, Sharding(mesh, rows_and_columns)));
    EXPECT_EQ(*sharding_of(y), Sharding(mesh, columns_and_rows));
    expect_near(y, turned(x));
    const Tensor folded = jit([](Tensor v) {
      return reshape(v, {2, 2}) * 2.0f;
    })(device_put(counting({4}), Sharding(mesh, P(AxisNames{"a", "b"}))));
    EXPECT_EQ(*sharding_of(folded), Sharding(mesh, P("a", "b")));
  }
}

TEST_F(Devices, WhatIsBeingComputedIsMovedWhenItIsThere) {
  RecordProperty("covers", "STAGE-08");
  const auto compute = jit([](Tensor x) {
    const Tensor last = max(
        sin(iota<float>(1 << 24) * x));  // long enough that nothing is there when the call returns
    const Tensor one = where(last > 2.0f, 3.0f, 1.0f);
    return std::tuple{one + iota<float>(1000), convert(iota<float>(5) - one, DType::s4),
                      one > iota<float>(3), broadcast_to(one, {0})};
  });
  const auto now = compute(Tensor(2.0f));
  std::apply([](const auto&... t) { (t.block_until_ready(), ...); }, now);
  const auto bytes = [](const Tensor& t) {
    std::vector<char> out(t.type().byte_size());
    t.read(out.data());
    return to_string(t.type()) + " " + std::string(out.begin(), out.end());
  };
  const auto all_bytes = [&](const auto& tensors) {
    return std::apply([&](const auto&... t) { return std::vector{bytes(t)...}; }, tensors);
  };
  for (int i = 0; i < 3; ++i) {
    auto later = compute(Tensor(2.0f));
    const auto moved = device_put(later, 3),
               everywhere = device_put(later, Sharding(Mesh({{"d", 8}}), P()));
    later = {};
    const Tensor used = jit([](Tensor x) { return x * 2.0f; })(std::get<0>(moved));
    EXPECT_EQ(used.device(), 3);
    expect_near(used, std::get<0>(now) * 2.0f);
    EXPECT_EQ(all_bytes(moved), all_bytes(now));
    EXPECT_EQ(all_bytes(everywhere), all_bytes(now));
  }
}

TEST_F(Devices, WhatMovesFromARunThatCallsNeverHoldsUpItsFunctions) {
  RecordProperty("covers", "REENTRY-01");
  const auto twice = jit([](Tensor x) { return x * 2.0f; });
  std::atomic<bool> queued = false;
  const auto f = jit([&](Tensor x) {
    return call(
        type<float>(),
        [&](float) {
          wait_until([&] { return queued.load(); }, std::chrono::milliseconds(300));
          return twice(device_put(Tensor(3.0f), 1)).item<float>();
        },
        max(sin(iota<float>(1 << 22) * x)));
  });
  const Tensor y = f(Tensor(2.0f)), moved = device_put(y, 1);
  const Tensor used = twice(moved);
  queued = true;
  EXPECT_EQ(used.item<float>(), 12);
}

/// What counting(dims) has in the range.
Floats counted_in(const Dims& dims, const std::vector<IndexRange>& range) {
  Floats out{0};
  for (std::size_t a = 0; a < dims.size(); ++a) {
    Floats longer;
    for (const float before : out)
      for (std::int64_t i = range[a].begin; i < range[a].end; ++i)
        longer.push_back(before * static_cast<float>(dims[a]) + static_cast<float>(i));
    out = std::move(longer);
  }
  return out;
}

TEST_F(Devices, ArraysComeBackAsTheyWent) {
  std::mt19937 random(7);
  const Mesh mesh({{"x", 2}, {"y", 2}, {"z", 2}}, {5, 1, 0, 4, 7, 6, 2, 3});
  const std::vector<std::string> names = {"x", "y", "z"};
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<std::vector<std::string>> parts(1 + random() % 3);
    for (const std::string& name : names)
      if (const std::size_t to = random() % (parts.size() + 1); to < parts.size())
        parts[to].insert(random() % 2 ? parts[to].begin() : parts[to].end(), name);
    Dims dims;
    for (const auto& p : parts)
      dims.push_back(static_cast<std::int64_t>((1 + random() % 3) << p.size()));
    if (random() % 2) dims.push_back(3);
    const Sharding s(mesh, P(parts));
    Floats values(static_cast<std::size_t>(make_type(DType::f32, dims).size()));
    std::iota(values.begin(), values.end(), 0.0f);
    const Tensor x = tensor<float>(values, dims), y = device_put(x, s);
    SCOPED_TRACE(to_string(s) + " " + to_string(x.type()));
    EXPECT_EQ(y.to_vector<float>(), values);
    ASSERT_TRUE(sharding_of(y));
    EXPECT_EQ(*sharding_of(y), s);
    for (const Shard& shard : shards_of(y)) {
      EXPECT_EQ(shard.data.device(), shard.device);
      EXPECT_EQ(shard.data.to_vector<float>(), counted_in(dims, shard.range));
    }
    const Sharding other(mesh, P("z"));
    if (dims[0] % 2 == 0) {
      EXPECT_EQ(device_put(y, other).to_vector<float>(), values) << "spread anew";
    }
    for (float& v : values) v += 1;
    EXPECT_EQ((y + 1.0f).to_vector<float>(), values) << "an operation at once";
  }
}

TEST_F(Devices, EveryDTypeCanBeSpread) {
  const Sharding s(Mesh({{"d", 4}}), P("d"));
  for (const DType dtype :
       {DType::pred, DType::s2, DType::u2, DType::s4, DType::u4, DType::s8, DType::s64, DType::f16,
        DType::bf16, DType::f64, DType::c64, DType::f8e5m2}) {
    const Tensor x = convert(remainder(iota<std::int32_t>(8), 2), dtype), y = device_put(x, s);
    EXPECT_EQ(convert(y, DType::f32).to_vector<float>(), convert(x, DType::f32).to_vector<float>())
        << to_string(dtype);
  }
}

TEST_F(Devices, TwoBitsComeTogether) {  // XLA would gather them past the end of its memory
  const Mesh mesh({{"d", 4}});
  const Sharding cut(mesh, P("d")), across(mesh, P(std::nullopt, "d")), whole(mesh, P());
  for (const DType dtype : {DType::s2, DType::u2}) {
    const Tensor x = convert(remainder(reshape(iota<std::int32_t>(96), {4, 24}), 2), dtype);
    const auto gives = [&](auto f, const Sharding& out, const Tensor& want) {
      const Tensor y = jit(f, {.out_shardings = {out}})(device_put(x, cut));
      EXPECT_EQ(convert(y, DType::f32).to_vector<float>(),
                convert(want, DType::f32).to_vector<float>())
          << to_string(dtype);
    };
    const auto same = [](Tensor v) { return v; };
    gives(same, whole, x);
    gives(same, across, x);
    gives([](Tensor v) { return reverse(v, {0}); }, whole, reverse(x, {0}));
    gives([](Tensor v) { return reshape(v, {96}); }, whole, x);
    gives([](Tensor v) { return convert(v, DType::s32) * 2; }, whole, convert(x, DType::s32) * 2);
    gives([&](Tensor v) { return device_put(v, whole); }, cut, x);
    gives([&](Tensor v) { return minimum(v, device_put(v, across)); }, cut, x);
    const auto shown = [](Tensor v) {
      tap(v, [](AnyView) {});
      return v;
    };
    gives(shown, cut, x);
    const P columns(std::nullopt, "d");
    gives(shard_map(same, mesh, {.in = {columns}, .out = {columns}}), whole, x);
  }
}

TEST_F(Devices, AJittedFunctionKeepsTheCut) {
  const Mesh mesh({{"x", 4}});
  const Tensor x = counting({8, 6}), w = counting({6, 5});
  const Tensor cut = device_put(x, Sharding(mesh, P("x")));
  const auto f = jit([](Tensor a, Tensor b) { return std::pair{tanh(a) * 2.0f, matmul(a, b)}; });
  const auto [y, z] = f(cut, w);
  const auto [y1, z1] = f(x, w);
  EXPECT_FALSE(sharding_of(y1)) << "the same function on one device";
  expect_near(y, y1);
  expect_near(z, z1);
  ASSERT_TRUE(sharding_of(y) && sharding_of(z));
  EXPECT_EQ(to_string(sharding_of(y)->spec()), "P(x)");
  EXPECT_EQ(to_string(sharding_of(z)->spec()), "P(x)");
  const Tensor columns = f(device_put(x, Sharding(mesh, P())),
                           device_put(counting({6, 8}), Sharding(mesh, P(std::nullopt, "x"))))
                             .second;
  EXPECT_EQ(to_string(sharding_of(columns)->spec()), "P(none, x)");
  expect_near(columns, matmul(x, counting({6, 8})));
}

TEST_F(Devices, AskedForShardings) {
  const Mesh mesh({{"x", 2}, {"y", 2}});
  const Sharding rows(mesh, P("x")), columns(mesh, P(std::nullopt, "y")), tiles(mesh, P("x", "y")),
      all(mesh, P());
  const auto f = jit(
      [](Tensor a, Tensor b) {
        return std::pair{a + b, sum(a)};
      },
      {.in_shardings = {rows, columns}, .out_shardings = {tiles, all}});
  const Tensor x = counting({4, 4});
  const auto [y, s] = f(x, x);
  EXPECT_EQ(*sharding_of(y), tiles);
  EXPECT_EQ(*sharding_of(s), all);
  expect_near(y, x + x);
  EXPECT_EQ(s.item<float>(), 120);
  const auto g = jit([&](Tensor a) { return device_put(a * 2.0f, tiles) + 1.0f; });
  EXPECT_EQ(sharding_of(g(x))->spec(), tiles.spec());
  EXPECT_TRUE(has(g.lower(x).stablehlo(), "Sharding"));
  expect_near(g(x), x * 2.0f + 1.0f);
  expect_near(grad([&](Tensor a) {
                return sum(jit([&](Tensor b) { return device_put(b * b, rows); })(a));
              })(x),
              x * 2.0f);
  expect_error<TypeError>(
      [&] {
        jit([](Tensor a) { return a; }, {.in_shardings = {rows, rows}})(x);
      },
      {"in_shardings", "2 entries", "1 arguments"});
  expect_error<TypeError>([&] { f(counting({3, 4}), counting({3, 4})); }, {"f32[3,4]", "divide 3"});
}

TEST_F(Devices, ProgramsRunOnOneSetOfDevices) {
  const Tensor a = device_put(counting({4}), Sharding(Mesh({{"x", 2}}, {0, 1}), P("x")));
  const Tensor b = device_put(counting({4}), Sharding(Mesh({{"x", 2}}, {2, 3}), P("x")));
  const auto add = jit([](Tensor x, Tensor y) { return x + y; });
  expect_error<TypeError>([&] { add(a, b); }, {"one set of devices", "devices 2,3"});
  const Tensor sum = add(b, b);
  EXPECT_EQ(shards_of(sum)[0].device, 2);
  EXPECT_EQ(sum.to_vector<float>(), (Floats{0, 2, 4, 6}));
}

TEST_F(Devices, OneDeviceOfSeveral) {
  const Tensor x = device_put(counting({4}), 3), y = device_put(counting({4}), 5);
  EXPECT_EQ(x.device(), 3);
  const auto f = jit([](Tensor a) { return a * 2.0f; });
  EXPECT_EQ(f(x).device(), 3);
  EXPECT_EQ(f(f(y)).device(), 5);
  EXPECT_EQ((f(x) + 1.0f).device(), 3);
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{0, 2, 4, 6}));
  expect_error<TypeError>([&] { jit([](Tensor a, Tensor b) { return a + b; })(x, y); },
                          {"devices 3 and 5"});
  EXPECT_EQ(device_put(x, 5).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ((device_put(x, 5) + y).device(), 5);
  expect_error<TypeError>([&] { jit([](Tensor a) { return device_put(a, 1); })(x); },
                          {"being traced"});
  int device = -1;
  const auto g = jit([&](Tensor a) {
    return tap(a, [&](const TapInfo& info, AnyView) { device = info.device; }) + 1.0f;
  });
  EXPECT_EQ(g(x).device(), 3);
  EXPECT_EQ(device, 3) << "what the tap is told";
  {
    const DeviceScope scope(2);
    EXPECT_EQ(f(counting({4})).device(), 2);
    EXPECT_EQ(f(x).device(), 3) << "what was put somewhere stays there";
    g(Tensor(1.0f)).block_until_ready();
    EXPECT_EQ(device, 2);
    EXPECT_EQ(g.start(Tensor(1.0f)).result().device(), 2) << "a started run too";
    EXPECT_EQ(device, 2);
  }
  EXPECT_EQ(f(counting({4})).device(), 0);
  const auto named = shard_map(g, Mesh({{"x", 1}}, {6}), {.in = {P()}, .out = {P()}});
  for (const Mode mode : test::all_modes) {
    EXPECT_EQ(jit(named, {.mode = mode})(counting({4})).device(), 6) << "a mesh that names it";
    EXPECT_EQ(device, 6);
  }
  EXPECT_EQ(jit(named)(x).device(), 6) << "wherever the arguments are";
}

TEST_F(Devices, WhatWasPutSomewhereStaysThereInAScope) {
  const DeviceScope scope(2);
  for (const int device : {0, 1}) {
    const Tensor x = device_put(counting({3}), device);
    EXPECT_EQ((x * 2.0f).device(), device) << "the number was put nowhere";
    EXPECT_EQ(negative(negative(x)).device(), device);
    const auto with_iota = [](Tensor v) { return v + iota<float>(3); };
    const auto two_calls = [](Tensor v) {
      auto where = [](const CallInfo& info, float) { return static_cast<float>(info.device); };
      const CallOptions ordered{.effect = Effect::ordered};
      const Tensor first = call(ordered, type<float>(), where, sum(v));
      const Tensor second = call(ordered, type<float>(), where, first * 2.0f);
      return v * 0.0f + first + second;
    };
    for (const Mode mode : test::all_modes) {
      const Tensor moved = jit(with_iota, {.mode = mode})(x);
      EXPECT_EQ(moved.device(), device) << static_cast<int>(mode);
      EXPECT_EQ(moved.to_vector<float>()[2], 4);
      const Tensor said = jit(two_calls, {.mode = mode})(x);
      EXPECT_EQ(said.device(), device) << static_cast<int>(mode);
      EXPECT_EQ(said.to_vector<float>()[0], static_cast<float>(2 * device))
          << static_cast<int>(mode);
    }
  }
}

/// A random elementwise program with a reduction and a product.
Tensor random_program(unsigned seed, Tensor x) {
  std::mt19937 random(seed);
  for (int i = 0; i < 6; ++i) switch (random() % 7) {
      case 0: x = sin(x); break;
      case 1: x = x + mean(x, {.axes = Dims{0}, .keep_dims = true}); break;
      case 2:
        x = matmul(x, transpose(x)) * 0.1f;
        x = tanh(x);
        break;
      case 3: x = where(x > 0.0f, x, x * 0.5f); break;
      case 4: x = transpose(x); break;
      case 5: x = concatenate({slice_axis(x, 0, 4, 8), slice_axis(x, 0, 0, 4)}, 0); break;
      default: x = softmax(x);
    }
  return x;
}

TEST_F(Devices, CutProgramsComputeTheSame) {
  const Tensor x = sin(counting({8, 8}));
  for (unsigned seed = 0; seed < 6; ++seed) {
    const auto f = [seed](Tensor a) { return random_program(seed, a); };
    const auto g = grad([&](Tensor a) { return sum(f(a) * a); });
    const auto both = [&](Tensor a, Tensor b) { return std::pair{f(a), g(b)}; };
    const auto [value, gradient] = jit(both)(x, x);
    for (const std::int64_t n : {1, 2, 8}) {
      SCOPED_TRACE(fmt::format("{} devices, seed {}", n, seed));
      const Mesh mesh({{"d", n}});
      const auto [y, dy] = jit(both)(device_put(x, Sharding(mesh, P("d"))),
                                     device_put(x, Sharding(mesh, P(std::nullopt, "d"))));
      expect_near(y, value, 1e-4f);
      expect_near(dy, gradient, 1e-3f);
    }
  }
}

TEST_F(Devices, DonatedPartsAreGone) {
  const Sharding s(Mesh({{"d", 4}}), P("d"));
  const auto f = jit([](Tensor x) { return x + 1.0f; }, {.donate = {0}});
  const Tensor x = device_put(counting({8}), s);
  EXPECT_EQ(f(x).to_vector<float>().back(), 8);
  expect_error<TypeError>([&] { x.to_vector<float>(); }, {"donated"});
  expect_error<TypeError>([&] { jit([](Tensor v) { return v * 2.0f; })(x); }, {"donated"});
  expect_error<TypeError>([&] { f(x); }, {"donated"});
  expect_error<TypeError>([&] { device_put(x, s); }, {"donated"});
}

TEST_F(Devices, DonatedPartsThatAreResultsLive) {
  const Sharding s(Mesh({{"d", 4}}), P("d"));
  for (const Mode mode : test::all_modes) {
    SCOPED_TRACE(static_cast<int>(mode));
    const auto f = jit(
        [](Tensor x, Tensor y) {
          return std::pair{x, x + y};
        },
        {.mode = mode, .donate = {0}});
    const Tensor x = device_put(counting({8}), s);
    const auto [same, sum] = f(x, device_put(counting({8}), s));
    expect_error<TypeError>([&] { x.to_vector<float>(); }, {"donated"});
    expect_near(same, counting({8}));
    expect_near(sum, counting({8}) * 2.0f);
    if (mode != Mode::compiled) {  // else as XLA chooses
      EXPECT_EQ(*sharding_of(same), s);
    }
  }
}

TEST_F(Devices, WhatLiesAsAskedIsNamedAsAsked) {
  const Sharding line(Mesh({{"x", 4}}), P()), grid(Mesh({{"a", 2}, {"b", 2}}), P());
  for (const Mode mode : test::all_modes) {
    const Tensor x = device_put(counting({8}), line);
    const Tensor y = device_put(x, grid);
    EXPECT_EQ(*sharding_of(x), line);
    EXPECT_EQ(*sharding_of(y), grid);
    EXPECT_EQ(*sharding_of(device_put(y, line)), line);
    expect_near(y, counting({8}));
    // They share their parts: no program takes them for the one while it reads the other.
    const auto add = [](Tensor v, Tensor w) { return v + w; };
    expect_error<TypeError>([&] { jit(add, {.mode = mode, .donate = {0}})(x, y); }, {"donated"});
    expect_error<TypeError>([&] { jit(add, {.mode = mode, .donate = {1}})(x, y); }, {"donated"});
    expect_near(jit(add)(x, y), counting({8}) * 2.0f);
    const auto next = jit([](Tensor v) { return v + 1.0f; }, {.mode = mode, .donate = {0}});
    expect_near(next(y), counting({8}) + 1.0f);
    for (const Tensor& gone : {x, y}) {
      expect_error<TypeError>([&] { gone.to_vector<float>(); }, {"donated"});
      expect_error<TypeError>([&] { jit(add)(gone, counting({8})); }, {"donated"});
      expect_error<TypeError>([&] { device_put(gone, grid); }, {"donated"});
      expect_error<TypeError>([&] { device_put(gone, line); }, {"donated"});
    }
  }
}

}  // namespace
}  // namespace postern::test
