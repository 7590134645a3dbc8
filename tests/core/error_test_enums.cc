// Numbers cast to enums that have no such value: a TypeError, in a process of its own.
#include <cstdlib>

#include "support.h"

namespace postern::test {
namespace {

template <class Act>
void expect_refused(const char* what, Act act) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        try {
          act();
          std::fprintf(stderr, "%s: taken\n", what);
        } catch (const TypeError& e) {
          if (has(e.what(), what) && has(e.what(), "is not one of the")) std::_Exit(0);
          std::fprintf(stderr, "%s: %s\n", what, e.what());
        } catch (const std::exception& e) {
          std::fprintf(stderr, "%s: another error: %s\n", what, e.what());
        }
        std::_Exit(1);
      },
      testing::ExitedWithCode(0), "")
      << what;
}

const auto none = static_cast<DType>(200);
Tensor x() { return tensor<float>({1, 2, 3}); }
void see(View<const float>, View<float>) {}

TEST(ErrorEnumsDeathTest, Options) {
  expect_refused("Effect 77",
                 [] { call({.effect = static_cast<Effect>(77)}, x().type(), see, x()); });
  expect_refused("Effect 77", [] {
    jit([](Tensor v) { return call({.effect = static_cast<Effect>(77)}, v.type(), see, v); })(x());
  });
  expect_refused("VmapMethod 9", [] {
    vmap([](Tensor v) { return call({.vmap = static_cast<VmapMethod>(9)}, v.type(), see, v); })(
        x());
  });
  expect_refused("Memory 3",
                 [] { call({.memory = static_cast<Memory>(3)}, x().type(), see, x()); });
  expect_refused("TapMode 2",
                 [] { tap({.mode = static_cast<TapMode>(2)}, x(), [](View<const float>) {}); });
  expect_refused("Mode 99",
                 [] { jit([](Tensor v) { return v; }, {.mode = static_cast<Mode>(99)})(x()); });
  expect_refused("Cut 4", [] {
    jit([](Tensor v) { return host_plus_one(v + 1.0f); },
        {.cut = [](const StageNode&) { return static_cast<Cut>(4); }})(x());
  });
}

TEST(ErrorEnumsDeathTest, Operations) {
  const IndexAxes axes{{}, {0}, {0}, {}, {}};
  expect_refused("OutOfRange 3", [&] {
    gather(x(), tensor<std::int32_t>({0}), axes, {1}, static_cast<OutOfRange>(3));
  });
  expect_refused("Update 5", [&] {
    scatter(static_cast<Update>(5), x(), tensor<std::int32_t>({0}), Tensor(1.0f), axes);
  });
  expect_refused("Monoid 4", [] { reduce_window(static_cast<Monoid>(4), x(), {1}); });
}

TEST(ErrorEnumsDeathTest, DTypes) {
  expect_refused("DType 200", [] {
    type<float>({2});
    make_type(none, {2});
  });
  expect_refused("DType 200", [] { Tensor(Type{none, {2}}, nullptr); });
  expect_refused("DType 200", [] { abstract(Type{none, {2}}); });
  expect_refused("DType 200", [] { zeros({none, {2}}); });
  expect_refused("DType 200", [] { full(Type{none, {2}}, 1.0f); });
  expect_refused("DType 200", [] { iota(Type{none, {2}}, 0); });
  expect_refused("DType 200", [] { convert(x(), none); });
  expect_refused("DType 200", [] { bitcast(x(), none); });
  expect_refused("DType 200", [] { eye(none, 2, 2); });
  expect_refused("DType 200", [] { call(Type{none, {2}}, see, x()); });
  expect_refused("DType 200", [] {
    jit([](Tensor v) { return call(Type{none, {2}}, see, v); })(x());
  });
  expect_refused("DType 200", [] { jit([](Tensor v) { return convert(v, none); })(x()); });
  expect_refused("DType 200", [] { static_cast<void>(byte_width(none)); });
  EXPECT_EQ(to_string(none), "no dtype");
}

}  // namespace
}  // namespace postern::test
