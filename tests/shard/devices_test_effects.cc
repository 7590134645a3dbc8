// Effects over several devices: in conditions of loops, at once after programs, in saved programs.
#include <postern/file.h>
#include <postern/listen.h>

#include <algorithm>
#include <mutex>

#include "devices_test.h"

namespace postern::test {
namespace {

using namespace std::chrono_literals;
using DevicesEffects = EightDevices;
using Words = std::vector<std::string>;

class Entered {
 public:
  void add(std::string what) {
    const std::scoped_lock lock(guard_);
    list_.push_back(std::move(what));
  }
  Words take() {
    const std::scoped_lock lock(guard_);
    return std::exchange(list_, {});
  }

 private:
  std::mutex guard_;
  Words list_;
};
Entered entries;

TEST_F(DevicesEffects, InAConditionFireOnEachDevice) {
  const Mesh mesh({{"d", 4}});
  auto counted = [](auto act) {
    return [act](Tensor x) {
      return std::get<1>(while_loop(
          [&](Tensor i, Tensor) {
            act(i);
            return i < 2.0f;
          },
          [](Tensor i, Tensor v) {
            return std::tuple{i + 1.0f, psum(v, "d")};
          },
          std::tuple{Tensor(0.0f), x}));
    };
  };
  const Callee add = [](const CallInfo& info, float v) {
    entries.add(fmt::format("{}:{}", info.device, v));
  };
  const Callee show = [](const TapInfo& info, float v) {
    entries.add(fmt::format("{}:{}", info.device, v));
  };
  Words want;
  for (int d = 0; d < 4; ++d)
    for (int i = 0; i < 3; ++i) want.push_back(fmt::format("{}:{}", d, i));
  auto expect_all = [&](auto act) {
    auto f = jit(shard_map(counted(act), mesh, {.in = {P("d")}, .out = {P("d")}}));
    const Tensor y = f(counting({4}));
    EXPECT_EQ(y.to_vector<float>(), Floats(4, 24));
    barrier();
    Words got = entries.take();
    std::ranges::sort(got);
    EXPECT_EQ(got, want);
  };
  for (const Effect effect : {Effect::ordered, Effect::unordered})
    expect_all([&](const Tensor& i) { call({.effect = effect}, std::vector<Type>(), add, i); });
  for (const bool ordered : {true, false})
    for (const TapMode mode : {TapMode::sync, TapMode::async})
      expect_all([&](const Tensor& i) { tap({.mode = mode, .ordered = ordered}, i, show); });
}

TEST_F(DevicesEffects, EverySoManyAreCountedOnEachDevice) {
  const Mesh mesh({{"d", 4}});
  const Callee show = [](const TapInfo& info, float i) {
    entries.add(fmt::format("{}:{}", info.device, i));
  };
  Words want;
  for (int d = 0; d < 4; ++d)
    for (const int i : {0, 3, 6}) want.push_back(fmt::format("{}:{}", d, i));
  auto f = shard_map(
      [&](Tensor x) {
        return fori_loop(
            0, 9,
            [&](Tensor i, Tensor v) {
              tap({.every = 3}, convert(i, DType::f32), show);
              return psum(v, "d") / 4.0f;  // all devices are in one step
            },
            x);
      },
      mesh, {.in = {P("d")}, .out = {P("d")}});
  for (const Mode mode : test::both_modes)
    for (auto [run, jitted] = std::pair{0, jit(f, {.mode = mode})}; run < 2; ++run) {
      jitted(counting({4})).block_until_ready();
      barrier();
      Words got = entries.take();
      std::ranges::sort(got);
      EXPECT_EQ(got, want);
    }
}

TEST_F(DevicesEffects, AtOnceComeAfterThoseOfProgramsBefore) {
  const Mesh mesh({{"d", 4}});
  auto note = [](const char* what, std::chrono::milliseconds late) {
    return Callee([=](const CallInfo&, float) {
      std::this_thread::sleep_for(late);
      entries.add(what);
    });
  };
  auto ordered = [](const Callee& fn, const Tensor& x) {
    call({.effect = Effect::ordered}, std::vector<Type>(), fn, x);
  };
  auto on_four = jit(shard_map(
      [&](Tensor x) {
        ordered(note("four", 50ms), sum(x));
        return x * 2.0f;
      },
      mesh, {.in = {P("d")}, .out = {P("d")}}));
  auto on_one = jit([&](Tensor x) {
    ordered(note("one", 50ms), x);
    return x + 1.0f;
  });
  const Words want{"four", "four", "four", "four", "at once", "one", "at once"};
  for (int i = 0; i < 5; ++i) {
    const Tensor four = on_four(counting({4}));
    ordered(note("at once", 0ms), Tensor(1.0f));
    const Tensor one = on_one(device_put(Tensor(1.0f), 5));
    ordered(note("at once", 0ms), Tensor(1.0f));
    EXPECT_EQ(entries.take(), want);
  }
  auto taps = jit([&](Tensor x) {
    return tap(x, [](float) {
      std::this_thread::sleep_for(50ms);
      entries.add("tap");
    });
  });
  for (const Mode mode : test::both_modes) {
    const Tensor x = taps(Tensor(1.0f));
    auto after = [&](Tensor v) { return tap(v, [](float) { entries.add("after"); }); };
    mode == Mode::compiled ? after(Tensor(2.0f)) : jit(after, {.mode = mode})(Tensor(2.0f));
    EXPECT_EQ(entries.take(), (Words{"tap", "after"}));
  }
}

TEST_F(DevicesEffects, AtOnceComeAfterThoseOnOtherDevices) {
  std::ostringstream printed;
  auto taps = jit([&](Tensor x) {
    return tap(x, [&](float) {
      std::this_thread::sleep_for(50ms);
      entries.add(printed.str().empty() ? "tap" : "too late");
    });
  });
  const std::function<void()> at_once[] = {
      [] { tap(Tensor(2.0f), [](float) { entries.add("after"); }); },
      [] {
        call(
            {.effect = Effect::ordered}, std::vector<Type>(), [](float) { entries.add("after"); },
            Tensor(2.0f));
      },
      [&] {
        print({.stream = &printed}, "{}", Tensor(2.0f));
        entries.add("after");
      }};
  for (const auto& act : at_once) {
    const Tensor x = taps(device_put(Tensor(1.0f), 5));
    act();
    EXPECT_EQ(entries.take(), (Words{"tap", "after"}));
  }
}

TEST_F(DevicesEffects, OneOrderIsSaved) {
  register_function(
      "devices_test.turn",
      [](const TapInfo& info, View<const float>) {
        // The later a device's turn, the sooner it would be here by itself.
        std::this_thread::sleep_for(std::chrono::microseconds(500 * (4 - info.device)));
        entries.add(fmt::format("{}", info.device));
      },
      {.replace = true});
  auto f = jit(
      shard_map([](Tensor x) { return tap({.one_order = true}, x, Named{"devices_test.turn"}); },
                Mesh({{"d", 4}}), {.in = {P("d")}, .out = {P("d")}}));
  const std::string text = saved_text(f.lower(counting({4})));
  EXPECT_TRUE(has(text, R"("one_order":true)"));
  const Loaded loaded = load_text(text);
  for (int i = 0; i < 10; ++i) {
    loaded(counting({4}))[0].block_until_ready();
    EXPECT_EQ(entries.take(), (Words{"0", "1", "2", "3"}));
  }
}

TEST_F(DevicesEffects, NonFiniteNamesOperationDeviceAndPart) {
  const Mesh mesh({{"d", 4}});
  const Tensor x = tensor<float>({1, 1, 1, 1, 1, 0, 1, 1});
  auto inverse = [](Tensor v) { return 1.0f / v; };
  const std::uint32_t line = __LINE__ - 1;
  const std::string operation =
      fmt::format("operation 'divide' at devices_test_effects.cc:{} on device 2", line);
  auto f = shard_map(inverse, mesh, {.in = {P("d")}, .out = {P("d")}});
  for (const Mode mode : test::both_modes)
    expect_error<CallbackError>(
        [&] { jit(trace::non_finite(f), {.mode = mode})(x).block_until_ready(); },
        {operation, "result at [1] of type f32[2] (part [4:6] of its whole) is infinite"});
  const Tensor rows = tensor<float>({1, 1, 0, 1});
  expect_error<CallbackError>(
      [&] { jit(trace::non_finite(pmap(inverse)))(rows).block_until_ready(); },
      {operation, "(part [2:3] of its whole) is infinite"});
  auto summed = shard_map([&](Tensor v) { return psum(sum(inverse(v)), "d"); }, mesh,
                          {.in = {P("d")}, .out = {P()}});
  expect_error<CallbackError>([&] { jit(trace::non_finite(summed))(x).block_until_ready(); },
                              {operation});
  EXPECT_EQ(jit(trace::non_finite(summed))(full({DType::f32, {8}}, 2.0f)).item<float>(), 4);
  auto overflows =
      shard_map([](Tensor v) { return psum(v, "d"); }, mesh, {.in = {P("d")}, .out = {P()}});
  expect_error<CallbackError>(
      [&] {
        jit(trace::non_finite(overflows))(full({DType::f32, {8}}, 3e38f)).block_until_ready();
      },
      {"operation 'psum'", "is infinite"});
}

using DevicesAgree = EightDevices;

/// A function on parts, with a branch or loop in which devices meet.
template <class F>
auto on_parts(F f) {
  const Mesh mesh({{"d", 2}, {"e", 2}});
  return shard_map(f, mesh, {.in = {P("d")}, .out = {P(AxisNames{"d", "e"})}});
}

Tensor branch(const Tensor& index, const Tensor& x, const char* axis) {
  return cond(
      index > 0.0f, [=](Tensor v) { return psum(v, axis); }, [](Tensor v) { return v * 2.0f; }, x);
}

TEST_F(DevicesAgree, ByIndexWhereDevicesMeetAreRefused) {
  const Tensor x = counting({2});
  auto refused = [&](auto f, std::initializer_list<std::string_view> words) {
    expect_error<TypeError>([&] { jit(on_parts(f))(x); }, words);
  };
  auto differs = [](const char* axis) { return convert<float>(axis_index(axis)); };
  refused([&](Tensor v) { return branch(differs("d"), v, "d"); },
          {"cond", "mesh axis 'd'", "psum at devices_test_effects.cc:", "pmax"});
  refused([&](Tensor v) { return branch(psum(differs("d"), "e"), v, "d"); }, {"mesh axis 'd'"});
  refused(
      [&](Tensor v) {
        return while_loop([](Tensor w) { return sum(w) < 100.0f; },
                          [](Tensor w) { return w + psum(w, "d") + 1.0f; }, v + differs("d"));
      },
      {"while_loop", "the condition may differ", "mesh axis 'd'"});
  refused(  // what differs comes round
      [&](Tensor v) {
        return std::get<1>(while_loop([](Tensor i, Tensor) { return i < 3.0f; },
                                      [&](Tensor i, Tensor w) {
                                        return std::tuple{i + differs("e"), psum(w, "e")};
                                      },
                                      std::tuple{Tensor(0.0f), v}));
      },
      {"while_loop", "mesh axis 'e'"});
  refused(  // a branch that differs makes what it gives differ
      [&](Tensor v) {
        const Tensor i = cond(
            differs("e") > 0.0f, [] { return Tensor(1.0f); }, [] { return Tensor(0.0f); });
        return branch(i, v, "e");
      },
      {"cond", "mesh axis 'e'"});
  refused(
      [&](Tensor v) {
        return vmap([&](Tensor w) {
          return while_loop([](Tensor u) { return u < 100.0f; },
                            [](Tensor u) { return u + psum(u, "d") + 1.0f; }, w + differs("d"));
        })(v);
      },
      {"while_loop", "mesh axis 'd'"});
  refused(
      [&](Tensor v) {
        return grad([&](Tensor w) { return sum(branch(differs("d"), w * w, "d")); })(v);
      },
      {"cond", "mesh axis 'd'"});
}

/// What is not provably the same on all devices that meet: parts of arguments, what functions of
/// the host give, and what devices pass on to each other.
TEST_F(DevicesAgree, ByDataWhereDevicesMeetAreRefused) {
  const Tensor x = counting({2});
  auto refused = [&](auto f, std::initializer_list<std::string_view> words) {
    expect_error<TypeError>([&] { jit(on_parts(f))(x); }, words);
  };
  refused([](Tensor v) { return branch(sum(v), v, "d"); },
          {"cond", "may differ", "mesh axis 'd'",
           "psum at devices_test_effects.cc:", "pmax, pmin or psum over 'd'"});
  refused(  // in a loop's condition too
      [](Tensor v) {
        return while_loop([](Tensor w) { return sum(w + psum(w, "d")) < 3.0f; },
                          [](Tensor w) { return w + 1.0f; }, v);
      },
      {"while_loop", "the condition may differ", "mesh axis 'd'"});
  refused(
      [](Tensor v) {
        return fori_loop(
            0, convert(sum(v), DType::s32), [](Tensor, Tensor w) { return psum(w, "d"); }, v);
      },
      {"mesh axis 'd'"});
  const Tensor same(1.0f);
  const Callee asks = [](float in) { return in; };
  refused([&](Tensor v) { return branch(call(same.type(), asks, same), v, "e"); },
          {"cond", "mesh axis 'e'"});
  refused([&](Tensor v) { return branch(psum(call(same.type(), asks, same), "d"), v, "e"); },
          {"cond", "mesh axis 'e'"});
  const std::vector<std::pair<int, int>> pairs{{0, 1}};
  refused([&](Tensor v) { return branch(ppermute(same, "e", pairs), v, "e"); }, {"mesh axis 'e'"});
  refused(
      [](Tensor v) {
        const Tensor known = iota(type<float>({2}), 0);
        return branch(sum(reduce_scatter(known, "e", 0, true)), v, "e");
      },
      {"mesh axis 'e'"});
  refused(
      [](Tensor v) {
        return branch(sum(all_to_all(iota(type<float>({2}), 0), "e", 0, 0)), v, "e");
      },
      {"mesh axis 'e'"});
  refused([](Tensor v) { return checkpoint([](Tensor w) { return branch(sum(w), w, "d"); })(v); },
          {"cond", "mesh axis 'd'"});
  refused(
      [](Tensor v) { return grad([](Tensor w) { return sum(branch(sum(w), w * w, "d")); })(v); },
      {"cond", "mesh axis 'd'"});
  expect_error<TypeError>([&] { on_parts([](Tensor v) { return branch(sum(v), v, "d"); })(x); },
                          {"cond", "mesh axis 'd'"});
}

TEST_F(DevicesAgree, OnMeshesOfManyAxes) {
  std::vector<MeshAxis> axes;
  for (int i = 0; i < 70; ++i) axes.push_back({fmt::format("a{}", i), i == 2 || i == 66 ? 2 : 1});
  const auto run = [&](const char* differs) {
    const auto f = [=](Tensor v) { return branch(convert<float>(axis_index(differs)), v, "a66"); };
    return jit(shard_map(f, Mesh(axes), {.in = {P("a66")}, .out = {P(AxisNames{"a2", "a66"})}}))(
        counting({2}));
  };
  EXPECT_EQ(run("a2").to_vector<float>(), (Floats{0, 2, 1, 1}));
  expect_error<TypeError>([&] { run("a66"); }, {"the mesh axis 'a66', and"});
}

TEST_F(DevicesAgree, ThatAgreeMayMeet) {
  const Tensor x = counting({2});
  auto runs = [&](auto f, const Floats& want) {
    const Tensor y = jit(on_parts(f))(x);
    EXPECT_EQ(y.to_vector<float>(), want);
  };
  auto differs = [](const char* axis) { return convert<float>(axis_index(axis)); };
  runs([&](Tensor v) { return branch(psum(differs("d"), "d"), v, "d"); }, {1, 1, 1, 1});
  runs([&](Tensor v) { return branch(differs("d"), v, "e"); }, {0, 0, 2, 2});
  runs([](Tensor v) { return branch(pmax(sum(v), "d"), v, "d"); }, {1, 1, 1, 1});
  runs(
      [](Tensor v) {
        return fori_loop(
            0, 3, [](Tensor, Tensor w) { return psum(w, "d"); }, v);
      },
      {4, 4, 4, 4});
  runs(
      [](Tensor v) {  // the whole group leaves together
        return while_loop([](Tensor w) { return psum(sum(w), "d") < 3.0f; },
                          [](Tensor w) { return psum(w, "d"); }, v);
      },
      {2, 2, 2, 2});
  runs([](Tensor v) { return branch(sum(v), v, "e"); }, {0, 0, 2, 2});  // alike along "e"
  runs([](Tensor v) { return branch(sum(all_gather(v, "d")), v, "d"); }, {1, 1, 1, 1});
  runs([](Tensor v) { return branch(tap(pmin(sum(v) + 1.0f, "d"), [](float) {}), v, "d"); },
       {1, 1, 1, 1});
  runs(
      [](Tensor v) {  // a batch of one device meets nobody
        return vmap([](Tensor w) { return branch(w, w, "b"); }, {.axis_name = "b"})(v);
      },
      {0, 0, 1, 1});
  // The decision is kept for the derivative, and the devices still agree on it.
  runs(
      [](Tensor v) {
        return grad([](Tensor w) { return sum(branch(psum(sum(w), "d"), w * w, "d")); })(v);
      },
      {0, 0, 4, 4});
  const auto whole = [](Tensor v) {
    return sum(on_parts([](Tensor w) { return branch(psum(sum(w), "d"), w * w, "d"); })(v));
  };
  EXPECT_EQ(jit(grad(whole))(x).to_vector<float>(), (Floats{0, 8}));
}

TEST_F(DevicesAgree, WhatProcessesTellEachOtherDiffersNoMore) {
  const Mesh mesh({{"host", processes}, {"x", 2}});
  const P rows(AxisNames{"host", "x"});
  const Tensor x = counting({2}) + 1.0f;
  const auto runs = [&](auto f) {
    const auto parts = shard_map(f, mesh, {.in = {rows}, .out = {rows}});
    return collect(jit(parts)(x)).template to_vector<float>();
  };
  const auto loop = [](auto all) {
    return [all](Tensor v) {
      return while_loop([all](Tensor c) { return all(c) < 9.0f; },
                        [](Tensor c) {
                          return c + psum(c, {"host", "x"});
                        },
                        v);
    };
  };
  const Floats want{13, 14};
  EXPECT_EQ(runs(loop([](Tensor c) { return pmax(max(c), {"x", "host"}); })), want);
  EXPECT_EQ(runs(loop([](Tensor c) { return psum(psum(max(c), "x"), "host") / 2.0f; })), want);
  const auto first = [](Tensor v) { return branch(convert<float>(axis_index("host")), v, "x"); };
  EXPECT_EQ(runs(first), (Floats{2, 4}));
  expect_error<TypeError>([&] { runs(loop([](Tensor c) { return psum(max(c), "host"); })); },
                          {"while_loop", "mesh axis 'x'"});
}

}  // namespace
}  // namespace postern::test
