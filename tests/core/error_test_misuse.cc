// Misuse: traced values out of place, wrong types, names that nobody registered, plug-ins that are
// none.
#include "support.h"

namespace postern {
namespace {

using test::cause_of, test::error_of, test::expect_error, test::has, test::run_program;

TEST(Error, ATracedTensorOutlivesItsTrace) {
  Tensor leaked;
  auto f = jit([&](Tensor x) { return leaked = x * 2.0f; });
  f(Tensor(1.0f));
  expect_error<TypeError>([&] { leaked + 1.0f; }, {"traced", "f32[]"});
  expect_error<TypeError>([&] { leaked.item<float>(); }, {"traced", "error_test_misuse.cc"});
  expect_error<TypeError>([&] { f(leaked); }, {"traced"});
  expect_error<TypeError>([&] { jit([&](Tensor x) { return x + leaked; })(Tensor(1.0f)); },
                          {"traced", "ended", "error_test_misuse.cc"});
  EXPECT_EQ(f(Tensor(3.0f)).item<float>(), 6);
}

TEST(Error, ATracedTensorOnAnotherThread) {
  auto f = jit([](Tensor x) {
    std::jthread([&] {
      expect_error<TypeError>([&] { x + 1.0f; }, {"traced"});
      expect_error<TypeError>([&] { jit([&](Tensor y) { return x + y; })(Tensor(1.0f)); },
                              {"thread"});
    }).join();
    return x + 1.0f;
  });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
}

TEST(Error, DataOfATracedTensor) {
  auto f = [](auto look) {
    return [look](Tensor x) {
      look(x * 2.0f);
      return x;
    };
  };
  expect_error<TypeError>([&] { jit(f([](Tensor x) { x.item<float>(); }))(Tensor(1.0f)); },
                          {"traced", "f32[]", "error_test_misuse.cc"});
  expect_error<TypeError>([&] { jit(f([](Tensor x) { x.to_vector<float>(); }))(Tensor(1.0f)); },
                          {"traced"});
  expect_error<TypeError>([&] { jit(f([](Tensor x) { x.block_until_ready(); }))(Tensor(1.0f)); },
                          {"traced"});
  expect_error<TypeError>([&] { abstract(type<float>()).item<float>(); }, {"abstract", "f32[]"});
  expect_error<TypeError>([&] { abstract(type<float>()) + 1.0f; }, {"abstract"});
  expect_error<TypeError>([&] { jit([](Tensor x) { return x; })(abstract(type<float>())); },
                          {"abstract"});
}

TEST(Error, ATracedValueCapturedByAHostFunction) {
  RecordProperty("covers", "IR-14");
  auto f = jit([](Tensor x) {
    Tensor doubled = x * 2.0f;
    return call(
        {.name = "captor"}, x.type(), [doubled](float v) { return v + doubled.item<float>(); }, x);
  });
  for (int i = 0; i < 2; ++i) {
    const auto e = error_of<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); });
    ASSERT_TRUE(e);
    EXPECT_EQ(e->code(), ErrorCode::threw);
    const auto cause = cause_of<TypeError>(*e);
    ASSERT_TRUE(cause);
    EXPECT_TRUE(has(cause->what(), "traced") && has(cause->what(), "error_test_misuse.cc:"))
        << cause->what();
  }
}

TEST(Error, EmptyTensors) {
  Tensor none;
  EXPECT_FALSE(none.has_value());
  expect_error<TypeError>([&] { none.type(); }, {"empty"});
  expect_error<TypeError>([&] { none + 1.0f; }, {"empty", "error_test_misuse.cc"});
  expect_error<TypeError>([&] { none.item<float>(); }, {"empty"});
  expect_error<TypeError>([&] { jit([](Tensor x) { return x; })(none); }, {"empty"});
  expect_error<TypeError>([&] { jit([](Tensor) { return Tensor(); })(Tensor(1.0f)); }, {"empty"});
  expect_error<TypeError>(
      [&] {
        call(
            type<float>(), [](float v) { return v; }, none);
      },
      {"empty"});
  expect_error<TypeError>(
      [&] {
        jit([&](Tensor x) {
          return call(
              x.type(), [](float v) { return v; }, none);
        })(Tensor(1.0f));
      },
      {"empty"});
}

TEST(Error, AskedForAsAnotherType) {
  const Tensor x = tensor<float>({1, 2});
  expect_error<TypeError>([&] { x.item<float>(); },
                          {"one element", "f32[2]", "error_test_misuse.cc"});
  expect_error<TypeError>([&] { x.to_vector<int>(); }, {"s32", "f32[2]", "error_test_misuse.cc"});
  expect_error<TypeError>([&] { Tensor(1.0f).item<double>(); }, {"f64", "f32[]"});
  expect_error<TypeError>([&] { tensor<float>({1, 2, 3}, {2, 2}); }, {"f32[2,2]", "3"});
  expect_error<TypeError>([&] { type<float>({-1}); }, {"-1"});
  expect_error<TypeError>(
      [&] {
        type<float>({1LL << 40, 1LL << 40}).size();
      },
      {"f32[1099511627776,1099511627776]"});
}

TEST(Error, OperationsThatDoNotFit) {
  auto z = [](Dims dims) { return zeros(type<float>(std::move(dims))); };
  expect_error<TypeError>(
      [&] {
        z({2, 3}) + z({4});
      },
      {"add", "[2,3]", "[4]", "error_test_misuse.cc"});
  expect_error<TypeError>(
      [&] {
        matmul(z({2, 3}), z({2, 3}));
      },
      {"matmul", "[2,3]", "error_test_misuse.cc"});
  expect_error<TypeError>([&] { reshape(z({6}), {4}); }, {"reshape", "[6]", "[4]"});
  expect_error<TypeError>([&] { slice(z({4}), {2}, {5}); }, {"slice", "5"});
  expect_error<TypeError>([&] { sum(z({4}), {.axes = Dims{1}}); }, {"sum", "1"});
  expect_error<TypeError>([&] { transpose(z({2, 3}), {0, 0}); }, {"transpose"});
  expect_error<TypeError>(
      [&] {
        concatenate({z({2, 3}), z({2, 4})}, 0);
      },
      {"concatenate", "[2,4]"});
  expect_error<TypeError>([&] { take(z({3}), Tensor(1.0f)); }, {"take", "f32"});
  expect_error<TypeError>([&] { where(Tensor(1.0f), z({1}), z({1})); }, {"where", "pred"});
}

TEST(Error, TheTracedFunctionThrows) {
  bool fails = true;
  auto f = jit([&](Tensor x) { return fails ? throw std::logic_error("not today") : x + 1.0f; });
  expect_error<std::logic_error>([&] { f(Tensor(1.0f)); }, {"not today"});
  expect_error<std::logic_error>([&] { f(Tensor(1.0f)); }, {"not today"});
  EXPECT_EQ((Tensor(1.0f) + 1.0f).item<float>(), 2) << "no trace is left open";
  fails = false;
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
}

TEST(Error, APlaceInsideAHostFunctionIsItsOwn) {
  std::uint32_t line = 0;
  auto failing = [&](float v) {
    line = __LINE__ + 1;
    matmul(zeros(type<float>({2, 3})), zeros(type<float>({2, 3})));
    return v;
  };
  auto f = [&](Tensor x) { return call(x.type(), failing, x); };
  for (bool compiled : {true, false}) {
    const auto e = error_of<CallbackError>(
        [&] { compiled ? jit(f)(Tensor(1.0f)).item<float>() : f(Tensor(1.0f)).item<float>(); });
    const auto cause = cause_of<TypeError>(*e);
    ASSERT_TRUE(cause);
    EXPECT_TRUE(has(cause->what(), "error_test_misuse.cc:" + std::to_string(line)))
        << cause->what();
  }
}

TEST(Error, ANameThatNobodyRegistered) {
  RecordProperty("covers", "ERR-16 LIFE-07");
  int fired = 0;
  register_function("error_test.there", [] { return 1.0f; });
  auto f = jit([&](Tensor x) {
    call({.effect = Effect::ordered}, std::tuple<>(), [&] { ++fired; });
    return call({.name = "away"}, x.type(), Named{"error_test.absent"}, x);
  });
  const auto parts = {std::string_view("error_test.absent"), std::string_view("away"),
                      std::string_view("error_test_misuse.cc"),
                      std::string_view("error_test.there")};
  for (int i = 0; i < 2; ++i)
    expect_error<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); }, parts,
                                ErrorCode::unregistered);
  expect_error<CallbackError>(
      [&] { call({.name = "away"}, type<float>(), Named{"error_test.absent"}); }, parts,
      ErrorCode::unregistered);
  EXPECT_EQ(fired, 0);
  register_function("error_test.absent", [](float v) { return v + 1; });
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 2);
  EXPECT_TRUE(unregister_function("error_test.absent"));
  EXPECT_FALSE(unregister_function("error_test.absent"));
  expect_error<CallbackError>([&] { f(Tensor(1.0f)).item<float>(); }, parts,
                              ErrorCode::unregistered);
  EXPECT_EQ(fired, 1);
  unregister_function("error_test.there");
}

TEST(Error, ARegisteredFunctionThatDoesNotFit) {
  RecordProperty("covers", "ERR-17");
  register_function("error_test.two", [](float a, float b) { return a + b; });
  auto f =
      jit([](Tensor x) { return call({.name = "one"}, x.type(), Named{"error_test.two"}, x); });
  expect_error<TypeError>([&] { f(Tensor(1.0f)).item<float>(); }, {"one", "2", "1"});
  register_function("error_test.two", [](float a) { return a; }, {.replace = true});
  EXPECT_EQ(f(Tensor(1.0f)).item<float>(), 1);
  unregister_function("error_test.two");
}

TEST(Error, NamesAreGuarded) {
  RecordProperty("covers", "LIFE-07");
  auto one = [] { return 1.0f; };
  expect_error<TypeError>([&] { register_function("", one); }, {"empty", "error_test_misuse.cc"});
  register_function("error_test.name", one);
  expect_error<Error>([&] { register_function("error_test.name", one); },
                      {"error_test.name", "already", "error_test_misuse.cc"},
                      ErrorCode::already_exists);
  EXPECT_NO_THROW(register_function("error_test.name", one, {.replace = true}));
  expect_error<TypeError>([&] { register_function("error_test.other", Named{"error_test.name"}); },
                          {"error_test.other"});
  const std::vector<std::string> names = registered_functions();
  EXPECT_NE(std::find(names.begin(), names.end(), "error_test.name"), names.end());
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  unregister_function("error_test.name");
}

TEST(Error, PluginsThatAreNone) {
  RecordProperty("covers", "ERR-20");
  test::TemporaryFolder folder;
  const std::string missing = folder.path() + "/missing.so";
  auto ended = run_program("error_plugin", {}, {{"POSTERN_PLUGIN", missing}});
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_TRUE(has(ended.out, "PluginError") && has(ended.out, missing)) << ended.out;
  const std::string too_long = folder.path() + "/" + std::string(300, 'x');  // for a file's name
  ended = run_program("error_plugin", {}, {{"POSTERN_PLUGIN", too_long}});
  EXPECT_EQ(ended.code, 3) << ended.err;
  EXPECT_TRUE(has(ended.out, "PluginError not_found") && has(ended.out, too_long)) << ended.out;
  ended = run_program("error_plugin", {}, {{"POSTERN_PLUGIN", "libm.so.6"}});
  EXPECT_EQ(ended.code, 3);
  EXPECT_TRUE(has(ended.out, "PluginError") && has(ended.out, "libm.so.6")) << ended.out;
  ended = run_program("error_plugin", {"none.so"});  // by configure, then the right one
  EXPECT_EQ(ended.code, 0) << ended.out << ended.err;
  EXPECT_TRUE(has(ended.out, "PluginError") && has(ended.out, "none.so") &&
              has(ended.out, "then 2"))
      << ended.out;
}

TEST(Error, DamagedPlugIns) {
  RecordProperty("covers", "ERR-20");
  const std::string plugin = POSTERN_TEST_LIBRARIES "/damaged_plugin.so";
  test::TemporaryFolder folder;
  auto ended = run_program("damaged", {folder.path() + "/output"}, {{"POSTERN_PLUGIN", plugin}},
                           std::chrono::seconds(300));
  EXPECT_EQ(ended.code, 0) << ended.err;
  int well = 0, by_an_error = 0;
  EXPECT_EQ(
      std::sscanf(ended.out.c_str(), "%d went well, %d ended by an error\n", &well, &by_an_error),
      2)
      << ended.out;
  EXPECT_GE(by_an_error, 50) << ended.out;
  for (const char* version : {"1.0", "0.5"}) {
    ended = run_program("error_plugin", {},
                        {{"POSTERN_PLUGIN", plugin}, {"TEST_PLUGIN_VERSION", version}});
    EXPECT_EQ(ended.code, 3) << ended.err;
    for (const std::string& part :
         {std::string("PluginError failed_precondition"), plugin,
          "speaks PJRT API " + std::string(version), std::string("needs 0.")})
      EXPECT_TRUE(has(ended.out, part)) << "no '" << part << "' in: " << ended.out;
  }
}

TEST(Error, PlugInsThatDoNotCompile) {
  RecordProperty("covers", "ERR-20");
  const auto compiles = [](const char* how, const std::vector<std::string>& arguments = {},
                           std::chrono::seconds limit = std::chrono::seconds(60)) {
    return run_program("compile_dies", arguments,
                       {{"POSTERN_PLUGIN", POSTERN_TEST_LIBRARIES "/damaged_plugin.so"},
                        {"POSTERN_LOG", "compiles"},
                        {"TEST_COMPILE", how}},
                       limit);
  };
  const std::string doomed = "doomed: CompileError internal: XLA failed to compile a program";
  for (const auto& [how, told] :
       {std::pair<const char*, std::string>{"throws", doomed + ": a pass failed"},
        {"throws a number", doomed + ": it threw what is no std::exception"},
        {"has no memory",
         "doomed: CompileError resource_exhausted: XLA failed to compile a "
         "program: there is no memory for it"},
        {"fails", "doomed: CompileError unavailable: XLA failed to compile a program for cpu"},
        {"gives nothing", doomed + " for cpu: it gave neither a program nor an error"},
        {"ends the thread", doomed + " for cpu: the plug-in tried to end the thread"}}) {
    const auto ended = compiles(how, {"two threads"});
    EXPECT_EQ(ended.code, 0) << how << ": " << ended.err;
    const std::size_t at = ended.out.find(told);
    EXPECT_TRUE(at != std::string::npos && ended.out.find(told, at + 1) != std::string::npos)
        << "not twice '" << told << "' in: " << ended.out;
    EXPECT_TRUE(has(ended.out, "first: 0\n") && has(ended.out, "last: 0\n")) << ended.out;
  }
  // What ends the process is the plug-in's, and the log has said at what.
  for (const auto& [how, code] :
       {std::pair{"ends the process", 7}, {"aborts", 1006}, {"does not return", -1}}) {
    auto limit = std::chrono::seconds(60);
    if (code < 0) limit = std::chrono::seconds(2);
    const auto ended = compiles(how, {}, limit);
    EXPECT_EQ(ended.code, code) << how << ": " << ended.err;
    EXPECT_TRUE(has(ended.out, "first: 0\n") && !has(ended.out, "last")) << ended.out;
    EXPECT_TRUE(has(ended.err, "jit 'doomed' at compile_dies.cc:")) << ended.err;
  }
}

TEST(Error, PlatformsWithoutAPlugIn) {
  RecordProperty("covers", "ERR-20");
  test::TemporaryFolder folder;  // where no wheels are
  for (const auto& [platform, told] :
       {std::pair{"rocm",
                  "no XLA plug-in for rocm: POSTERN_PLUGIN is not set, and there is no "
                  "file of jax-rocm7-pjrt, which none of Python's folders has"},
        std::pair{"metal", "no XLA plug-in for metal"},
        std::pair{"vulkan", "'vulkan' is no known platform; known are cpu, cuda, rocm"}}) {
    const auto ended = run_program("error_plugin", {},
                                   {{"POSTERN_PLATFORM", platform},
                                    {"POSTERN_PLUGIN", ""},
                                    {"HOME", folder.path()},
                                    {"PYTHONPATH", folder.path()}});
    EXPECT_EQ(ended.code, 3) << ended.err;
    EXPECT_TRUE(has(ended.out, told)) << ended.out;
  }
}

TEST(Error, SettingsOutOfRange) {
  auto ended = run_program("error_plugin", {}, {{"POSTERN_CPU_DEVICES", "many"}});
  EXPECT_EQ(ended.code, 3);
  EXPECT_TRUE(has(ended.out, "POSTERN_CPU_DEVICES") && has(ended.out, "many")) << ended.out;
  EXPECT_EQ(run_program("error_plugin", {}, {{"POSTERN_CPU_DEVICES", "3"}}).out,
            "2 on 3 devices\n");
  expect_error<TypeError>([] { configure({.cpu_devices = -1}); }, {"cpu_devices", "-1"});
  expect_error<TypeError>([] { configure({.max_reentry = 5000}); }, {"max_reentry", "5000"});
  devices();
  expect_error<Error>([] { configure({.cpu_devices = 2}); }, {"in use"},
                      ErrorCode::failed_precondition);
}

}  // namespace
}  // namespace postern
