// inspect_sharding: what XLA chose for a value inside a program.
#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesInspect = EightDevices;
using Told = std::vector<std::string>;

const Sharding& two_rows() {
  static const Sharding s(Mesh({{"d", 2}}), P("d"));
  return s;
}
auto into(Told& told) {
  return [&told](const Sharding& s) { told.push_back(to_string(s)); };
}

TEST_F(DevicesInspect, ToldOnceForEachCompilation) {
  RecordProperty("covers", "DEV-16");
  Told told;
  std::string drawn;
  const auto f = jit([&](Tensor x) {
    return inspect_sharding(sin(x) * 2.0f,
                            [&](const Sharding& s) {
                              told.push_back(to_string(s));
                              drawn = draw(s, {8, 8});
                            }) +
           1.0f;
  });
  const Tensor x = counting({8, 8}), in_rows = device_put(x, two_rows());
  const Tensor want = jit([](Tensor v) { return sin(v) * 2.0f + 1.0f; })(x);
  for (int i = 0; i < 3; ++i) expect_near(f(in_rows), want);
  EXPECT_EQ(told, Told{to_string(two_rows())});
  EXPECT_EQ(drawn, "+---+\n| 0 |\n+---+\n| 1 |\n+---+\n");
  expect_near(f(device_put(x, Sharding(Mesh({{"d", 2}}), P(std::nullopt, "d")))), want);
  ASSERT_EQ(told.size(), 2u) << "arguments that lie otherwise make another program";
  EXPECT_EQ(drawn, "+---+---+\n| 0 | 1 |\n+---+---+\n");
  EXPECT_EQ(f.lower(in_rows).stablehlo(),
            jit([](Tensor v) { return sin(v) * 2.0f + 1.0f; }).lower(in_rows).stablehlo());
  EXPECT_EQ(told.size(), 2u) << "lowering compiles nothing";
}

TEST_F(DevicesInspect, ThroughTransformations) {
  RecordProperty("covers", "DEV-16");
  const Tensor x = device_put(counting({8, 8}), two_rows());
  Told told;
  jit([&](Tensor v) {
    static_cast<void>(inspect_sharding(v + 1.0f, into(told)));
    return v * 2.0f;
  })(x)
      .block_until_ready();
  EXPECT_EQ(told, Told{to_string(two_rows())}) << "a value that nobody uses";
  told.clear();
  const auto loss = [&](Tensor v) { return sum(inspect_sharding(v * v, into(told))); };
  expect_near(jit(grad(loss))(x), counting({8, 8}) * 2.0f);
  EXPECT_EQ(told, Told{to_string(two_rows())}) << "the value, not its cotangent";
  told.clear();
  expect_near(jit(grad(checkpoint(loss)))(x), counting({8, 8}) * 2.0f);
  EXPECT_EQ(told, Told(told.size(), to_string(two_rows())));
  EXPECT_FALSE(told.empty());
  told.clear();
  jit(vmap([&](Tensor row) { return inspect_sharding(exp(row), into(told)); }))(x)
      .block_until_ready();
  EXPECT_EQ(told, Told{to_string(two_rows())}) << "with the batch's axis";
}

TEST_F(DevicesInspect, WhateverXlaChooses) {
  RecordProperty("covers", "DEV-16");
  const Mesh eight({{"x", 8}});
  const Sharding columns(Mesh({{"d", 2}}), P(std::nullopt, "d"));
  Told turned, asked, on_one, summed, folded;
  jit([&](Tensor x) {
    const Tensor y = inspect_sharding(device_put(x * 2.0f, columns), into(asked));
    const Tensor z = call(
        x.type(), [](View<const float> in, View<float> out) { std::ranges::copy(in, out.begin()); },
        x);
    return inspect_sharding(transpose(x), into(turned)) + transpose(y) +
           inspect_sharding(z, into(on_one)) + inspect_sharding(sum(x), into(summed));
  })(device_put(counting({8, 8}), two_rows()))
      .block_until_ready();
  EXPECT_EQ(turned, Told{to_string(columns)});
  EXPECT_EQ(asked, Told{to_string(columns)});
  EXPECT_EQ(on_one, Told{to_string(Sharding(Mesh({{"device", 1}}), P()))});
  EXPECT_EQ(summed, Told{to_string(Sharding(Mesh({{"d", 2}}), P()))});
  std::string drawn;
  const auto fold = jit([&](Tensor x) {
    const Tensor y = inspect_sharding(reshape(x, {2, 4}), [&](const Sharding& s) {
      folded.push_back(to_string(s));
      drawn = draw(s, {2, 4});
    });
    return y * 2.0f;
  });
  expect_near(fold(device_put(counting({8}), Sharding(eight, P("x")))), counting({2, 4}) * 2.0f);
  EXPECT_EQ(folded,
            Told{to_string(Sharding(Mesh({{"axis0", 2}, {"axis1", 4}}), P("axis0", "axis1")))});
  EXPECT_EQ(drawn,
            "+---+---+---+---+\n| 0 | 1 | 2 | 3 |\n+---+---+---+---+\n| 4 | 5 | 6 | 7 "
            "|\n+---+---+---+---+\n");
}

TEST_F(DevicesInspect, OnOneDeviceAndAtOnce) {
  Told told;
  const auto f = [&](Tensor x) { return inspect_sharding(x * 2.0f, into(told)); };
  EXPECT_EQ(jit(f)(Tensor(1.0f)).item<float>(), 2);
  EXPECT_EQ(jit(f, {.mode = Mode::staged})(Tensor(1.0f)).item<float>(), 2);
  EXPECT_EQ(jit(f, {.mode = Mode::evaluate})(Tensor(1.0f)).item<float>(), 2);
  const std::string one = to_string(Sharding(Mesh({{"device", 1}}), P()));
  EXPECT_EQ(told, Told(3, one));
  told.clear();
  const auto everywhere = [&](const Tensor& x) {
    for (const Mode mode : {Mode::compiled, Mode::staged, Mode::evaluate})
      EXPECT_EQ(jit(f, {.mode = mode})(x).item<float>(), 2);
  };
  const Mesh on_three({{"device", 1}}, {3}), on_two({{"device", 1}}, {2});
  everywhere(device_put(Tensor(1.0f), 3));
  EXPECT_EQ(told, Told(3, to_string(Sharding(on_three, P())))) << "where its arguments are";
  told.clear();
  {
    const DeviceScope scope(2);
    everywhere(Tensor(1.0f));
    EXPECT_EQ(told, Told(3, to_string(Sharding(on_two, P()))));
    told.clear();
    everywhere(device_put(Tensor(1.0f), 3));
    EXPECT_EQ(told, Told(3, to_string(Sharding(on_three, P()))));
    told.clear();
  }
  f(device_put(counting({8, 8}), two_rows()));
  EXPECT_EQ(told.size(), 1u);
  EXPECT_NE(told[0], one);
}

TEST_F(DevicesInspect, WhatCannotBeInspected) {
  Told told;
  const Tensor x = device_put(counting({8, 8}), two_rows());
  const auto looped = jit([&](Tensor v) {
    return fori_loop(
        0, 3, [&](Tensor, Tensor w) { return inspect_sharding(w + 1.0f, into(told)); }, v);
  });
  expect_error<TypeError>([&] { looped(x); }, {"inspect_sharding inside", "outside of loops",
                                               "devices_test_inspect.cc"});
  const auto part = jit(shard_map([&](Tensor v) { return inspect_sharding(v, into(told)); },
                                  two_rows().mesh(), {{P("d")}, {P("d")}}));
  expect_error<TypeError>([&] { part(x); },
                          {"inspect_sharding", "shard_map", "devices_test_inspect.cc"});
  expect_error<TypeError>([&] { static_cast<void>(inspect_sharding(x, nullptr)); },
                          {"inspect_sharding", "null", "devices_test_inspect.cc"});
  expect_error<TypeError>([&] { static_cast<void>(inspect_sharding(Tensor(), into(told))); },
                          {"inspect_sharding", "empty"});
  const auto throws = jit([&](Tensor v) {
    return inspect_sharding(v, [](const Sharding&) { throw std::runtime_error("as you like"); });
  });
  for (int i = 0; i < 2; ++i) expect_error<std::runtime_error>([&] { throws(x); }, {"as you like"});
  EXPECT_TRUE(told.empty());
  expect_near(jit([](Tensor v) { return v + 1.0f; })(x), counting({8, 8}) + 1.0f);
}

}  // namespace
}  // namespace postern::test
