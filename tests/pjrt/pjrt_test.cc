// The PJRT boundary: plug-ins, clients, executables. Runs, memory and the table are tested in
// pjrt_test_*.cc.
#include "pjrt_test.h"

#include <dlfcn.h>

#include <cstdlib>
#include <limits>
#include <optional>
#include <protozero/pbf_reader.hpp>

namespace postern::internal::pjrt {
namespace {

TEST(PjrtPlugin, MissingFile) {
  const auto error = error_of<PluginError>([] { Plugin::load("/nowhere/xla.so"); });
  EXPECT_EQ(error.code(), ErrorCode::not_found);
  EXPECT_TRUE(contains(error.what(), "/nowhere/xla.so")) << error.what();
}

TEST(PjrtPlugin, SharedObjectThatIsNone) {
  Dl_info libm{};
  ASSERT_TRUE(dladdr(dlsym(RTLD_DEFAULT, "cos"), &libm));
  const auto error = error_of<PluginError>([&] { Plugin::load(libm.dli_fname); });
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(contains(error.what(), "GetPjrtApi")) << error.what();
}

TEST(PjrtPlugin, FileThatIsNoSharedObject) {
  const auto error = error_of<PluginError>([] { Plugin::load("/proc/self/cmdline"); });
  EXPECT_TRUE(contains(error.what(), "cannot load the plug-in")) << error.what();
}

TEST(PjrtPlugin, VersionsTooOldOrTooNew) {
  EXPECT_NO_THROW(check_api_version(0, 81, "p.so"));
  EXPECT_NO_THROW(check_api_version(0, 120, "p.so"));
  for (auto [major, minor] : {std::pair(0, 80), std::pair(1, 0)}) {
    const auto error = error_of<PluginError>(
        [&, major = major, minor = minor] { check_api_version(major, minor, "p.so"); });
    EXPECT_TRUE(contains(error.what(), std::to_string(major) + "." + std::to_string(minor)))
        << error.what();
    EXPECT_TRUE(contains(error.what(), "0.81")) << error.what();
  }
}

TEST(PjrtPlugin, EnvironmentVariableThatNamesNothing) {
  const char* before = std::getenv("POSTERN_PLUGIN");
  const std::string kept = before ? before : "";
  setenv("POSTERN_PLUGIN", "/nowhere/else.so", 1);
  const auto error = error_of<PluginError>([] { platforms::plugin_path(platforms::cpu); });
  before ? setenv("POSTERN_PLUGIN", kept.c_str(), 1) : unsetenv("POSTERN_PLUGIN");
  EXPECT_TRUE(contains(error.what(), "POSTERN_PLUGIN")) << error.what();
  EXPECT_TRUE(contains(error.what(), "/nowhere/else.so")) << error.what();
}

TEST(PjrtPlugin, LoadedOnceAndDescribed) {
  EXPECT_EQ(&Plugin::load(platforms::plugin_path(platforms::cpu)), &plugin());
  EXPECT_GE(plugin().api_minor(), required_api_minor);
  EXPECT_NE(plugin().ffi(), nullptr);
  EXPECT_EQ(plugin().extension(-1), nullptr);
  EXPECT_TRUE(contains(plugin().identity(), "stablehlo_current_version=")) << plugin().identity();
}

TEST(PjrtClient, DevicesAndNames) {
  EXPECT_EQ(client().platform_name(), "cpu");
  ASSERT_EQ(client().devices().size(), 4u);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(client().devices()[static_cast<std::size_t>(i)].id(), i);
  EXPECT_GE(client().devices()[2].local_hardware_id(), 0);
}

TEST(PjrtClient, XlaLogsNothing) {
  plugin();
  testing::internal::CaptureStderr();
  {
    Client other = platforms::cpu.make_client(plugin(), 1);
    EXPECT_THROW(other.compile("module"), CompileError);
    other.compile(add_text);
  }
  const std::string log = testing::internal::GetCapturedStderr();
  if (std::getenv("POSTERN_LOG")) GTEST_SKIP() << "this environment asks for logs";
  EXPECT_EQ(log, "");
}

TEST(PjrtClient, NeedsADevice) {
  for (int count : {0, -2})
    EXPECT_EQ(error_of<Error>([&] { platforms::cpu.make_client(plugin(), count); }).code(),
              ErrorCode::invalid_argument);
}

TEST(PjrtClient, CompileErrorKeepsTheText) {
  const auto error = error_of<CompileError>(
      [] { client().compile("module { func.func @main() { stablehlo.nonsense } }"); });
  EXPECT_TRUE(contains(error.what(), "stablehlo.nonsense")) << error.what();
  const auto unknown =
      error_of<CompileError>([] { client().compile(call_text("pjrt_test_nobody")); });
  EXPECT_EQ(unknown.code(), ErrorCode::not_found);
  EXPECT_TRUE(contains(unknown.what(), "pjrt_test_nobody")) << unknown.what();
}

TEST(PjrtClient, DeviceAssignment) {
  const Executable on_two = client().compile(add_text, {.device_ids = {2}});
  ASSERT_EQ(on_two.devices().size(), 1u);
  EXPECT_EQ(on_two.devices()[0].id(), 2);
  const Executable grid = client().compile(
      add_text,
      {.num_replicas = 2, .num_partitions = 2, .use_spmd = true, .device_ids = {3, 1, 0, 2}});
  ASSERT_EQ(grid.devices().size(), 4u);
  EXPECT_EQ(grid.devices()[1].id(), 1);
  EXPECT_EQ(error_of<Error>([] { to_proto({.num_replicas = 2, .device_ids = {1}}); }).code(),
            ErrorCode::invalid_argument);
  EXPECT_THROW(client().compile(add_text, {.num_replicas = 9}), CompileError);
}

/// What XLA's DebugOptions of a compiled program say at a field number.
std::optional<std::int64_t> debug_option(const Executable& compiled, protozero::pbf_tag_type tag) {
  constexpr protozero::pbf_tag_type config = 2, debug_options = 14;
  const auto program = compiled.optimized_program();
  EXPECT_EQ(program.format, "hlo_with_config");
  protozero::pbf_reader outer(program.code);
  if (!outer.next(config)) return {};
  protozero::pbf_reader inner = outer.get_message();
  if (!inner.next(debug_options)) return {};
  protozero::pbf_reader options = inner.get_message();
  if (!options.next(tag)) return {};
  return options.get_int64();
}

TEST(PjrtClient, NoProgramEndsTheProcessBecauseDevicesWaitForOneAnother) {
  // XLA reads the flags in the environment, not a program's own options; those that no program
  // gives say what it read.
  constexpr protozero::pbf_tag_type terminate = 417, warn = 418;
  constexpr std::int64_t never = std::numeric_limits<std::int32_t>::max();
  const Executable add = client().compile(add_text);
  const Executable loaded = client().deserialize(add.serialize());
  for (const auto tag : {terminate, warn}) {
    EXPECT_EQ(debug_option(add, tag), never) << tag;
    EXPECT_EQ(debug_option(loaded, tag), never) << tag;
  }
  const char* const flags = std::getenv("XLA_FLAGS");
  EXPECT_FALSE(flags && contains(flags, "collective_call"))
      << "children would have them: " << flags;
}

// XLA reads them once, so each is tried in a process of its own.
TEST(PjrtClient, BlankFlagsAreLikeNone) {
  constexpr protozero::pbf_tag_type terminate = 417;
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const char* const before = std::getenv("XLA_FLAGS");
  const std::string kept = before ? before : "";
  for (const char* flags : {"", " ", " \n"}) {
    setenv("XLA_FLAGS", flags, 1);
    EXPECT_EXIT(
        {
          const auto limit = debug_option(client().compile(add_text), terminate);
          const bool is_as_before = std::string_view(std::getenv("XLA_FLAGS")) == flags;
          const bool ok = is_as_before && limit == std::numeric_limits<std::int32_t>::max();
          std::_Exit(ok ? 0 : 1);
        },
        testing::ExitedWithCode(0), "")
        << '"' << flags << '"';
  }
  before ? setenv("XLA_FLAGS", kept.c_str(), 1) : unsetenv("XLA_FLAGS");
}

TEST(PjrtClient, GpuCompilersMayBeToldToTryNothing) {
  constexpr protozero::pbf_tag_type autotune_level = 123;
  EXPECT_GT(debug_option(client().compile(add_text), autotune_level).value_or(0), 0);
  const Executable untuned = client().compile(add_text, {.tune = false});
  EXPECT_EQ(debug_option(untuned, autotune_level).value_or(0), 0);
}

TEST(PjrtExecutable, RunsAndRunsAgain) {
  const Executable add = client().compile(add_text);
  Buffer sum = to_device(one_to_four, {4});
  for (int i = 0; i < 10; ++i) sum = run(add, {&sum, &sum});
  EXPECT_EQ(to_host(sum), (std::vector<float>{1024, 2048, 3072, 4096}));
}

TEST(PjrtExecutable, DescribesItself) {
  const Executable add = client().compile(add_text);
  EXPECT_EQ(add.num_outputs(), 1u);
  EXPECT_EQ(add.output_dtypes(), std::vector<DType>{DType::f32});
  EXPECT_EQ(add.output_dims(), std::vector<Dims>{{4}});
  EXPECT_FALSE(add.optimized_program().code.empty());
  EXPECT_EQ(add.memory_stats().arguments, 32);
}

TEST(PjrtExecutable, SeveralOutputsOfSeveralRanks) {
  const Executable both = client().compile(R"(module @both {
    func.func public @main(%a: tensor<2x3xf32>) -> (tensor<3x2xf32>, tensor<f32>, tensor<0x5xi64>) {
      %0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
      %1 = stablehlo.constant dense<7.0> : tensor<f32>
      %2 = stablehlo.constant dense<0> : tensor<0x5xi64>
      return %0, %1, %2 : tensor<3x2xf32>, tensor<f32>, tensor<0x5xi64>
    }
  })");
  EXPECT_EQ(both.output_dims(), (std::vector<Dims>{{3, 2}, {}, {0, 5}}));
  EXPECT_EQ(both.output_dtypes(), (std::vector<DType>{DType::f32, DType::f32, DType::s64}));
  const Buffer input = to_device({1, 2, 3, 4, 5, 6}, {2, 3});
  PJRT_Buffer* argument = input.handle();
  PJRT_Buffer* outputs[3];
  both.execute({&argument, 1}, outputs);
  const Buffer first(both.api(), outputs[0]), second(both.api(), outputs[1]),
      third(both.api(), outputs[2]);
  EXPECT_EQ(to_host(first), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(to_host(second), std::vector<float>{7});
  EXPECT_EQ(third.host_bytes(), 0u);
}

TEST(PjrtExecutable, WrongArgumentsAreRefused) {
  const Executable add = client().compile(add_text);
  const Buffer four = to_device(one_to_four, {4});
  EXPECT_EQ(error_of<Error>([&] { run(add, {&four}); }).code(), ErrorCode::invalid_argument);
  const Buffer two = to_device({1, 2}, {2});
  EXPECT_EQ(error_of<Error>([&] { run(add, {&four, &two}); }).code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(contains(error_of<Error>([&] { add.execute({}, {}); }).what(),
                       "room for 1 outputs; came room for 0"));
  EXPECT_EQ(to_host(run(add, {&four, &four})), (std::vector<float>{2, 4, 6, 8}));  // still usable
}

TEST(PjrtExecutable, PortableRunsWhereTheCallSays) {
  const Executable add = client().compile(add_text, {.portable = true});
  EXPECT_TRUE(add.devices().empty());
  const Device& third = client().devices()[3];
  const Buffer there = to_device(one_to_four, {4}, third);
  const Buffer sum = run(add, {&there, &there}, {.device = &third});
  EXPECT_EQ(sum.device(), third);
  EXPECT_EQ(to_host(sum), (std::vector<float>{2, 4, 6, 8}));
  const Buffer here = to_device(one_to_four, {4});
  EXPECT_EQ(error_of<Error>([&] {
              run(add, {&here, &here}, {.device = &third});
            }).code(),
            ErrorCode::invalid_argument);
  EXPECT_THROW(run(add, {&here, &here}), Error);  // no device named
}

TEST(PjrtExecutable, SerializedAndLoadedAgain) {
  register_handlers();
  const Executable offset =
      client().deserialize(client().compile(offset_text, {.portable = true}).serialize());
  Probed with;
  const Device& device = client().devices()[1];
  const Buffer input = to_device(one_to_four, {4}, device);
  EXPECT_EQ(to_host(run(offset, {&input}, {.context = &with.context, .device = &device})),
            (std::vector<float>{101, 102, 103, 104}));
  EXPECT_THROW(client().deserialize("rubbish"), Error);
}

TEST(PjrtExecutable, CompiledForOneDeviceAndLoadedForAny) {
  register_handlers();
  const Executable fixed = client().compile(offset_text);
  ASSERT_EQ(fixed.devices().size(), 1u);
  const CompileOptions portable{.portable = true}, alone{};
  const Executable any = client().deserialize(fixed.serialize(), &portable);
  EXPECT_TRUE(any.devices().empty());
  EXPECT_EQ(error_of<Error>([&] { any.serialize(); }).code(), ErrorCode::unimplemented)
      << "XLA:CPU would write it without its code";
  const Executable again = client().deserialize(fixed.serialize(), &alone);
  EXPECT_EQ(again.devices().size(), 1u);
  Probed with;
  const std::vector<float> expected = {101, 102, 103, 104};
  for (const Device& device : client().devices()) {
    const Buffer input = to_device(one_to_four, {4}, device);
    EXPECT_EQ(to_host(run(any, {&input}, {.context = &with.context, .device = &device})), expected);
  }
  const Buffer input = to_device(one_to_four, {4});
  EXPECT_EQ(to_host(run(again, {&input}, {.context = &with.context})), expected);
}

TEST(PjrtExecutable, HandlersSeeTheNumberOfTheRun) {
  register_handlers();
  const Executable offset = client().compile(offset_text);
  const Buffer input = to_device(one_to_four, {4});
  Probed with;
  for (const int number : {1, 0x7fffffff, -1, -0x7fffffff - 1}) {
    run(offset, {&input}, {.context = &with.context, .number = number});
    EXPECT_EQ(with.probe.run, number);
  }
}

TEST(PjrtExecutable, ReplicasMeetInACollective) {
  const Executable sum = client().compile(R"(module @sum {
    func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
      %0 = "stablehlo.all_reduce"(%a) ({
        ^bb0(%x: tensor<f32>, %y: tensor<f32>):
          %s = stablehlo.add %x, %y : tensor<f32>
          stablehlo.return %s : tensor<f32>
      }) {replica_groups = dense<[[0, 1, 2, 3]]> : tensor<1x4xi64>}
        : (tensor<2xf32>) -> tensor<2xf32>
      return %0 : tensor<2xf32>
    }
  })",
                                          {.num_replicas = 4});
  std::vector<Buffer> inputs;
  std::vector<PJRT_Buffer*> arguments, outputs(4);
  for (const Device& device : client().devices()) {
    inputs.push_back(to_device({1, static_cast<float>(device.id())}, {2}, device));
    arguments.push_back(inputs.back().handle());
  }
  std::vector<Event> complete(4);
  sum.execute_multi(4, arguments, outputs, complete);
  for (std::size_t i = 0; i < 4; ++i) {
    const Buffer result(sum.api(), outputs[i]);
    complete[i].await();
    EXPECT_EQ(result.device(), client().devices()[i]);
    EXPECT_EQ(to_host(result), (std::vector<float>{4, 6}));
  }
  EXPECT_THROW(sum.execute_multi(4, arguments, outputs, std::span(complete).first(2)), Error);
}

TEST(PjrtExecutable, DonationAndKeeping) {
  const Executable twice = client().compile(R"(module @twice {
    func.func public @main(%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> {
      %0 = stablehlo.add %a, %a : tensor<4xf32>
      return %0 : tensor<4xf32>
    }
  })");
  const Buffer input = to_device(one_to_four, {4});
  const std::int64_t keep[] = {0};
  run(twice, {&input}, {.keep = keep});
  EXPECT_EQ(to_host(run(twice, {&input})), (std::vector<float>{2, 4, 6, 8}));
  EXPECT_TRUE(
      contains(error_of<Error>([&] { run(twice, {&input}); }).what(), "deleted or donated"));
}

}  // namespace
}  // namespace postern::internal::pjrt
