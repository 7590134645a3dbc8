// Collectives over mesh axes and over the axis of a vmap at once.
#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesBatches = EightDevices;

TEST_F(DevicesBatches, NamesOfBothKinds) {
  const Mesh mesh({{"d", 4}});
  const P rows("d"), none;
  const Tensor x = counting({4, 3});  // each device has a row of three elements
  auto each = [](auto f) {
    return [f](Tensor part) { return vmap(f, {.axis_name = "i"})(reshape(part, {3})); };
  };
  auto inside = [&](auto f, P out) {
    return jit(shard_map(each(f), mesh, {.in = {rows}, .out = {out}}))(x);
  };
  expect_near(inside(
                  [](Tensor v) {
                    return psum(v, {"i", "d"});
                  },
                  none),
              full(type<float>({3}), 66.0f));
  expect_near(inside([](Tensor v) { return psum(v, "i"); }, rows),
              reshape(broadcast_to(sum(x, {.axes = Dims{1}, .keep_dims = true}), {4, 3}), {12}));
  expect_near(inside([](Tensor v) { return psum(v, "d"); }, none), sum(x, {.axes = Dims{0}}));
  expect_near(inside(
                  [](Tensor) {
                    return convert(axis_index({"d", "i"}), DType::f32);
                  },
                  rows),
              iota<float>(12));
  expect_near(inside(
                  [](Tensor v) {
                    return sum(all_gather(v, {"d", "i"}) * iota<float>(12));
                  },
                  none),
              full(type<float>({3}), 506.0f));
  // A vmap outside of the shard_map: the batch is not cut, the mesh axis is.
  auto outside = [&](Tensor column) {
    auto f = [](Tensor part) { return part - psum(part, {"i", "d"}) + psum(part, "i"); };
    return shard_map(f, mesh, {.in = {rows}, .out = {rows}})(column);
  };
  const Tensor got = jit(vmap(outside, {.in_axes = 1, .out_axes = 1, .axis_name = "i"}))(x);
  expect_near(got, x - 66.0f + sum(x, {.axes = Dims{1}, .keep_dims = true}));
  auto swapped = [&](Tensor element) {
    auto f = [](Tensor part) { return all_to_all(part, "i", 1, 1); };
    return shard_map(f, mesh, {.in = {rows}, .out = {rows}})(element);
  };
  const Tensor cube = counting({4, 3, 3});
  expect_near(jit(vmap(swapped, {.in_axes = 1, .out_axes = 1, .axis_name = "i"}))(cube),
              transpose(cube, {0, 2, 1}));
  auto loss = [&](Tensor v) {
    return sum(square(vmap(outside, {.in_axes = 1, .out_axes = 1, .axis_name = "i"})(v)));
  };
  auto plain = [](Tensor v) {
    return sum(square(v - sum(v) + sum(v, {.axes = Dims{1}, .keep_dims = true})));
  };
  expect_near(jit(grad(loss))(x), grad(plain)(x));

  expect_error<TypeError>([&] { inside([](Tensor v) { return psum(v, "k"); }, none); },
                          {"psum", "no axis 'k'", "'i' (3 of a vmap)", "mesh(d=4)"});
  expect_error<TypeError>(
      [&] {
        auto f = [](Tensor part) {
          return vmap([](Tensor v) { return psum(v, "d"); }, {.axis_name = "d"})(part);
        };
        shard_map(f, mesh, {.in = {rows}, .out = {rows}})(x);
      },
      {"psum", "'d'", "mesh", "vmap"});
}

}  // namespace
}  // namespace postern::test
