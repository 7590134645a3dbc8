// Saved programs over several devices.
#include <algorithm>
#include <atomic>
#include <sstream>

#include "core/digest.h"
#include "devices_test.h"

namespace postern::test {
using namespace internal;
namespace {

class DevicesSaved : public EightDevices {
 protected:
  void SetUp() override {
    EightDevices::SetUp();
    register_function("demo.scale",
                      [](const Attributes& a, View<const float> in, View<float> out) {
                        for (std::int64_t i = 0; i < in.size(); ++i)
                          out[i] = in[i] * static_cast<float>(a.get<double>("factor"));
                      },
                      {.replace = true});
  }
  void TearDown() override { unregister_function("demo.scale"); }

  const Mesh mesh{{{"x", 2}, {"y", 2}}, {1, 0, 2, 3}};
  const Sharding cut{mesh, P("x", "y")};
};

TEST_F(DevicesSaved, ShardMapsCallsTapsPrintsAndCaptures) {
  const Tensor large = device_put(counting({64, 64}), cut), x = device_put(counting({4, 6}), cut);
  std::atomic<int> parts{0};
  register_function("demo.part", [&](const TapInfo& info, View<const float> v) {
    EXPECT_EQ(info.coordinates.size(), 2u);
    EXPECT_EQ(v.size(), 6);
    ++parts;
  });
  const auto on_each = shard_map(
      [](Tensor v) {
        v = call({.name = "scale"}, v.type(), Named{"demo.scale", {{"factor", 3.0}}}, v);
        return psum(tap({.name = "part"}, v, Named{"demo.part"}), "y");
      },
      mesh, {.in = {P("x", "y")}, .out = {P("x")}});
  const auto f = jit([&](Tensor v) {
    print({.partitioned = cut}, "{}", v);
    const Tensor y = on_each(v);
    print("whole {}", y);
    return std::tuple{y, v + 1.0f, sum(large)};
  });
  std::ostringstream here, there;
  auto run = f.start_with({.sink = &here}, x);
  ASSERT_EQ(run.wait(), RunStatus::done);
  const auto [y, more, total] = run.result();
  EXPECT_EQ(parts.exchange(0), 4);

  const Loaded g = load_text(saved_text(f.lower(x)));
  EXPECT_EQ(to_string(g.inputs()), "(f32[4,6])");
  EXPECT_EQ(g.required_functions(), (std::vector<std::string>{"demo.part", "demo.scale"}));
  auto again = g.start({x}, {.sink = &there});
  ASSERT_EQ(again.wait(), RunStatus::done);
  const std::vector<Tensor> out = again.result();
  EXPECT_EQ(parts.load(), 4);
  expect_near(out.at(0), y);
  expect_near(out.at(1), more);
  EXPECT_EQ(out.at(2).item<float>(), total.item<float>());
  // Parts come as devices get there.
  auto sorted = [](const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::ranges::sort(lines);
    return lines;
  };
  EXPECT_EQ(sorted(there.str()), sorted(here.str()));
  EXPECT_NE(there.str().find("[0:2, 0:3] "), std::string::npos) << there.str();
  expect_near(g(counting({4, 6})).at(0), y);  // from wherever its argument is
  unregister_function("demo.part");
}

TEST_F(DevicesSaved, NeedTheirDevices) {
  const Tensor x = device_put(tensor<float>({1, 2, 3, 4}), Sharding(Mesh({{"x", 4}}), P("x")));
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/program.mlir";
  save(file, jit([](Tensor v) { return v * 2.0f; }).lower(x));
  EXPECT_EQ(load(file)(x).at(0).to_vector<float>(), (Floats{2, 4, 6, 8}));
  const Ended ended = run_program("saved_run", {file}, {{"POSTERN_CPU_DEVICES", "2"}});
  EXPECT_EQ(ended.code, 1);
  EXPECT_NE(
      ended.out.find("runs on the devices 0, 1, 2, 3, this process has 2: set POSTERN_CPU_DEVICES"),
      std::string::npos)
      << ended.out;
}

TEST_F(DevicesSaved, ForgedFilesAreRefused) {
  const Tensor x = device_put(tensor<float>({1, 2, 3, 4}), Sharding(Mesh({{"x", 4}}), P("x")));
  const std::string text = saved_text(jit([](Tensor v) { return v * 2.0f; }).lower(x));
  auto forged = [&](const std::string& part, const std::string& other) {
    std::string changed = text;
    const auto at = changed.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    changed.replace(at, part.size(), other);
    const auto sum = changed.find("// checksum ") + 12, body = changed.find('\n', sum) + 1;
    changed.replace(sum, body - 1 - sum, digest(std::string_view(changed).substr(body)));
    expect_error<Error>([&] { load_text(changed); }, {}, ErrorCode::invalid_argument);
  };
  forged(R"("over":{"devices":[0,1,2,3])", R"("over":{"devices":[0,1,2,5])");
  forged(R"("over":{"devices":[0,1,2,3])", R"("over":{"devices":[])");
  forged(R"("over":{"devices":[0,1,2,3])", R"("over":{"devices":"all")");
  forged(R"("axes":[["x",4]])", R"("axes":[["x",5]])");
  forged(R"("axes":[["x",4]])", R"("axes":[["x",4611686018427387904],["y",4]])");
  forged(R"("spec":[["x"]])", R"("spec":[["z"]])");
  forged(R"("output_ends":[)", R"("output_ends":[99999,)");
  forged(R"("output_ends":[)", R"("output_ends":[],"ends":[)");
}

}  // namespace
}  // namespace postern::test
