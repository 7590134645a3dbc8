// Collectives over mesh axes and over the axis of a vmap at once.
#include "devices_test.h"

namespace postern::test {
namespace {

using DevicesBatches = EightDevices;

TEST_F(DevicesBatches, NamesOfBothKinds) {
  const Mesh mesh({{"d", 4}});
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

TEST_F(DevicesBatches, CollectivesOfEveryDTypeAreThoseOfAVmap) {
  const Mesh mesh({{"d", 4}});
  const P rows("d");
  for (const DType dtype :
       {DType::pred, DType::s2, DType::u2, DType::s4, DType::c64, DType::f4e2m1fn}) {
    const auto all = [dtype](Tensor v) {
      std::vector<Tensor> out{all_gather(v, "d", -1, true),       all_to_all(v, "d", 0, -1),
                              ppermute(v, "d", {{0, 1}, {2, 2}}), broadcast(v, "d", 2),
                              scatter_from(v, "d", 3, 0, true),   gather_to(v, "d", 1, 0, true)};
      if (dtype != DType::pred) {
        out.push_back(psum(v, "d"));
        out.push_back(reduce_scatter(v, "d", 0, true));
      }
      if (dtype != DType::pred && dtype != DType::c64) {
        out.push_back(pmax(v, "d"));
        out.push_back(pmin(v, "d"));
      }
      return out;
    };
    const auto part = [all](Tensor v) {
      std::vector<Tensor> out = all(squeeze(v, {0}));
      for (Tensor& t : out) t = expand_dims(t, 0);
      return out;
    };
    const Tensor x =
        convert(remainder(remainder(reshape(iota<std::int32_t>(96), {4, 8, 3}), 5), 2), dtype);
    const std::vector<Tensor> got = jit(shard_map(part, mesh, {.in = {rows}, .out = {rows}}))(x),
                              want = jit(vmap(all, {.axis_name = "d"}))(x);
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(to_string(got[i].type()), to_string(want[i].type()));
      EXPECT_EQ(convert(got[i], DType::c64).to_vector<std::complex<float>>(),
                convert(want[i], DType::c64).to_vector<std::complex<float>>())
          << to_string(dtype) << ", the " << i << "th";
    }
  }
}

}  // namespace
}  // namespace postern::test
