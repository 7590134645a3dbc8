// Arrays made of parts that lie on devices already, by the C interface, and programs of one device
// that are given them.
#include <postern/c.h>

#include <atomic>

#include "devices_test.h"

namespace postern::test {
namespace {

struct FreeTensor {
  void operator()(pn_tensor* t) const { pn_tensor_free(t); }
};
using CTensor = std::unique_ptr<pn_tensor, FreeTensor>;

CTensor tensor_of(const Floats& values, const Dims& dims) {
  pn_tensor* out = nullptr;
  const pn_array array{PN_F32, static_cast<std::int32_t>(dims.size()), dims.data(),
                       const_cast<float*>(values.data()), values.size() * sizeof(float)};
  EXPECT_EQ(pn_tensor_copy(&array, &out), PN_OK) << pn_last_error();
  return CTensor(out);
}
Floats values_of(const pn_tensor* t) {
  pn_array seen{};
  EXPECT_EQ(pn_tensor_view(t, &seen), PN_OK) << pn_last_error();
  const auto* data = static_cast<const float*>(seen.data);
  return Floats(data, data + seen.bytes / sizeof(float));
}
std::vector<std::pair<int, Floats>> shards_of(const pn_tensor* t) {
  std::vector<std::pair<int, Floats>> out;
  pn_tensor* shard = nullptr;
  std::int32_t device = -1;
  int code = PN_OK;
  while ((code = pn_tensor_shard(t, out.size(), &device, &shard)) == PN_OK) {
    out.emplace_back(device, values_of(shard));
    pn_tensor_free(shard);
  }
  EXPECT_EQ(code, PN_NOT_FOUND) << pn_last_error();
  return out;
}

/// An array f32[4,2] on a mesh of 2 by 2: rows along its first axis, columns along the second.
class DevicesGivenParts : public EightDevices {
 protected:
  std::vector<const pn_tensor*> pointers() const {
    std::vector<const pn_tensor*> out;
    for (const CTensor& p : parts) out.push_back(p.get());
    return out;
  }
  int make(pn_tensor** out) const {
    const auto all = pointers();
    return pn_tensor_of_shards(how.c_str(), all.data(), all.size(), compare, out);
  }
  CTensor made() const {
    pn_tensor* out = nullptr;
    EXPECT_EQ(make(&out), PN_OK) << pn_last_error();
    return CTensor(out);
  }
  void expect_refused(const char* why) const {
    pn_tensor* out = nullptr;
    EXPECT_EQ(make(&out), PN_INVALID_ARGUMENT);
    EXPECT_NE(std::string(pn_last_error()).find(why), std::string::npos) << pn_last_error();
    EXPECT_EQ(out, nullptr);
  }

  static std::string on(const char* axes, const char* devices, const char* spec) {
    return fmt::format(R"({{"mesh": {{"axes": {}, "devices": {}}}, "spec": {}}})", axes, devices,
                       spec);
  }

  static constexpr const char *grid = R"([["x", 2], ["y", 2]])", *cut = R"([["x"], ["y"]])";
  std::string how = on(grid, "[0, 1, 2, 3]", cut);
  int compare = 0;
  std::vector<CTensor> parts = [] {
    std::vector<CTensor> out;
    for (const float i : {0.0f, 1.0f, 4.0f, 5.0f}) out.push_back(tensor_of({i, i + 2}, {2, 1}));
    return out;
  }();
};

TEST_F(DevicesGivenParts, LieWhereTheyAreGivenAndAreOneArray) {
  how = on(grid, "[3, 0, 2, 5]", cut);
  const CTensor x = made();
  EXPECT_EQ(values_of(x.get()), (Floats{0, 1, 2, 3, 4, 5, 6, 7}));
  using Shards = std::vector<std::pair<int, Floats>>;
  EXPECT_EQ(shards_of(x.get()), (Shards{{3, {0, 2}}, {0, {1, 3}}, {2, {4, 6}}, {5, {5, 7}}}));
  pn_tensor* none = nullptr;
  EXPECT_EQ(pn_tensor_shard(x.get(), 4, nullptr, &none), PN_NOT_FOUND);
  EXPECT_STREQ(pn_last_error(), "pn_tensor_shard: there is no shard 4, the tensor has 4");
  EXPECT_EQ(shards_of(parts[0].get()), (Shards{{0, {0, 2}}}));
}

TEST_F(DevicesGivenParts, AreNotCopiedWhereTheyAreAligned) {
  alignas(64) static float numbers[1 << 16] = {1};
  const std::int64_t dims[] = {1 << 16};
  const pn_array array{PN_F32, 1, dims, numbers, sizeof numbers};
  how = on(grid, "[0, 1, 2, 3]", "[]");  // all of it everywhere
  parts.clear();
  for (int i = 0; i < 4; ++i) {
    pn_tensor* part = nullptr;
    ASSERT_EQ(pn_tensor_borrow(&array, nullptr, nullptr, &part), PN_OK);
    parts.emplace_back(part);
  }
  const CTensor x = made();
  for (std::size_t i = 0; i < 4; ++i) {
    pn_tensor* shard = nullptr;
    pn_array seen{};
    ASSERT_EQ(pn_tensor_shard(x.get(), i, nullptr, &shard), PN_OK);
    ASSERT_EQ(pn_tensor_view(shard, &seen), PN_OK);
    EXPECT_EQ(seen.data, numbers);
    pn_tensor_free(shard);
  }
}

TEST_F(DevicesGivenParts, AreComparedWhereAskedFor) {
  how = on(grid, "[0, 1, 2, 3]", R"([["x"]])");  // parts 0 and 1 are copies, and differ
  compare = 1;
  expect_refused("hold the same part were given different values");
  compare = 0;
  EXPECT_EQ(shards_of(made().get())[1].second, (Floats{1, 3}));
  parts[1] = tensor_of({0, 2}, {2, 1});
  parts[3] = tensor_of({4, 6}, {2, 1});
  compare = 1;
  EXPECT_EQ(values_of(made().get()), (Floats{0, 2, 4, 6}));
}

TEST_F(DevicesGivenParts, ThatDoNotFitAreRefused) {
  const auto with = [&](const std::string& text, const char* why) {
    how = text;
    expect_refused(why);
  };
  const char* const four = "[0, 1, 2, 3]";
  with("", "the sharding cannot be read");
  with("[1]", "the sharding cannot be read");
  with(on(grid, "null", cut), "a list was to come");
  with(on(grid, four, R"(["x"])"), "the sharding cannot be read");
  with(std::string(100'000, '['), "the sharding cannot be read");
  with(on("[]", "[]", cut), "a grid of 1 devices, 0 were given");
  with(on(R"([["x", 0]])", "[]", cut), "out of range");
  with(on(R"([["x", 9223372036854775807], ["y", 2]])", four, cut), "out of range");
  with(on(R"([["x", 2]])", "[0, 1]", R"([["x"]])"), "mesh(x=2) has 2 devices, 4 parts came");
  with(on(grid, four, R"([["z"]])"), "no axis 'z'");
  with(on(grid, four, R"([["x"], ["x"]])"), "x");
  with(on(grid, four, R"([["x"], [], [], ["y"]])"), "parts f32[2,1] are none of an array over");
  with(on(grid, "[0, 0, 1, 2]", cut), "twice");
  with(on(grid, "[0, -1, 1, 2]", cut), "-1");
  with(on(grid, "[0, 1, 2, 900]", cut), "needs device 900");
  how = on(grid, four, cut);
  parts[2] = tensor_of({1, 2}, {1, 2});
  expect_refused("part 2 is f32[1,2], part 0 f32[2,1]");
  parts[2].reset();
  expect_refused("shard 2 is NULL");
}

const char* const plain_text = R"(
func.func @main(%x: tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<f32>) {
  %c = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.add %x, %x : tensor<4x2xf32>
  %1 = stablehlo.reduce(%0 init: %c) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<4x2xf32>, tensor<f32>) -> tensor<f32>
  return %0, %1 : tensor<4x2xf32>, tensor<f32>
})";

TEST_F(DevicesGivenParts, ProgramsOfOneDeviceRunOnTheirDevices) {
  pn_program* program = nullptr;
  ASSERT_EQ(pn_load_text(plain_text, std::strlen(plain_text), &program), PN_OK) << pn_last_error();
  const CTensor x = made();
  const pn_tensor* const argument = x.get();
  pn_tensor* out[2] = {};
  ASSERT_EQ(pn_run(program, &argument, 1, out), PN_OK) << pn_last_error();
  const CTensor twice(out[0]), sum(out[1]);
  using Shards = std::vector<std::pair<int, Floats>>;
  EXPECT_EQ(shards_of(twice.get()),
            (Shards{{0, {0, 4}}, {1, {2, 6}}, {2, {8, 12}}, {3, {10, 14}}}));
  EXPECT_EQ(shards_of(sum.get()), (Shards{{0, {56}}, {1, {56}}, {2, {56}}, {3, {56}}}));
  pn_program_free(program);
}

TEST_F(DevicesGivenParts, LoadedProgramsAreCutAsTheirArgumentsLie) {
  const Loaded program = load_text(plain_text);
  const Mesh mesh({{"x", 4}});
  const Tensor x = counting({4, 2});
  const auto spread = program(device_put(x, Sharding(mesh, P("x"))));
  ASSERT_TRUE(sharding_of(spread[0]));
  EXPECT_EQ(sharding_of(spread[0])->spec(), P("x"));
  const auto started = program.start({device_put(x, Sharding(mesh, P()))}, RunOptions()).result();
  EXPECT_TRUE(sharding_of(started[0])->is_replicated());
  const auto here = program(x);
  EXPECT_FALSE(sharding_of(here[0]));
  for (const auto& results : {spread, started})
    EXPECT_EQ(results[0].to_vector<float>(), here[0].to_vector<float>());
}

const char* const calling_text = R"(
func.func @main(%x: tensor<4x2xf32>) -> tensor<4x2xf32> {
  %0 = stablehlo.custom_call @given_parts.scale(%x) : (tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
})";

TEST_F(DevicesGivenParts, WhatSuchAProgramCallsSeesTheWholeOnceAndMayFail) {
  std::atomic<int> entered{0};
  register_function("given_parts.scale", [&](View<const float> x, View<float> y) {
    ++entered;
    if (x[0] < 0) throw std::runtime_error("less than nothing");
    for (std::int64_t i = 0; i < x.size(); ++i) y[i] = x[i] * 10;
  });
  const Loaded program = load_text(calling_text);
  const Sharding spread(Mesh({{"x", 2}, {"y", 2}}), P("x", "y"));
  const auto y = program.run({device_put(counting({4, 2}), spread)}, RunOptions());
  EXPECT_EQ(y[0].to_vector<float>(), (Floats{0, 10, 20, 30, 40, 50, 60, 70}));
  EXPECT_EQ(entered.exchange(0), 1);
  expect_error<CallbackError>(
      [&] {
        program.run({device_put(counting({4, 2}) - 1.0f, spread)}, RunOptions());
      },
      {"less than nothing"});
  EXPECT_EQ(entered, 1);
  unregister_function("given_parts.scale");
}

}  // namespace
}  // namespace postern::test
