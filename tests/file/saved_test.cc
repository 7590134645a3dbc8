// Saved programs: what comes back, what is refused, and files that were damaged or forged.
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <sstream>

#include "platform/platform.h"
#include "saved_test.h"

namespace postern::test {
using namespace internal;
namespace {

using Floats = std::vector<float>;

Tensor scaled(const Tensor& v, double factor) {
  return call({.name = "scale"}, v.type(), Named{"demo.scale", {{"factor", factor}}}, v);
}

class Saved : public testing::Test {
 protected:
  void SetUp() override {
    register_function("demo.scale",
                      [](const Attributes& a, View<const float> in, View<float> out) {
                        for (std::int64_t i = 0; i < in.size(); ++i)
                          out[i] = in[i] * static_cast<float>(a.get<double>("factor"));
                      },
                      {.replace = true});
    register_function("demo.log",
                      [this](View<const float> v) { log.emplace_back(v.begin(), v.end()); },
                      {.replace = true});
  }
  void TearDown() override {
    unregister_function("demo.scale");
    unregister_function("demo.log");
  }

  std::vector<Floats> log;
  Jitted<std::function<Tensor(Tensor)>> simple = jit(std::function<Tensor(Tensor)>(
      [](Tensor v) { return sum(tap({.name = "scaled"}, scaled(v, 3.0), Named{"demo.log"})); }));
  Tensor x = tensor<float>({1, 2, 3});
};

TEST_F(Saved, ProductsAreOfTheirDtypeOnEveryPlatform) {
  const auto f = jit([](Tensor v, Tensor w) { return dot(v, w); });
  const auto text = [&](DType dtype) {
    return saved_text(f.lower(ones(make_type(dtype, {2, 2})), ones(make_type(dtype, {2, 2}))));
  };
  EXPECT_TRUE(has(text(DType::f32), "precision HIGHEST"));
  EXPECT_FALSE(has(text(DType::bf16), "precision"));
  EXPECT_EQ(load_text(text(DType::f32))(ones(type<float>({2, 2})), ones(type<float>({2, 2})))
                .at(0)
                .to_vector<float>(),
            Floats(4, 2));
  platforms::let_products_be_rounded(true);  // Config::tf32
  EXPECT_FALSE(has(text(DType::f32), "precision"));
  platforms::let_products_be_rounded(false);
}

TEST_F(Saved, ComesBackWithItsCallsAndTaps) {
  const Loaded g = load_text(saved_text(simple.lower(x)));
  EXPECT_EQ(to_string(g.inputs()), "(f32[3])");
  EXPECT_EQ(to_string(g.outputs()), "(f32[])");
  EXPECT_EQ(g.required_functions(), (std::vector<std::string>{"demo.log", "demo.scale"}));
  ASSERT_EQ(g.sites().size(), 2u);
  EXPECT_EQ(g.sites()[0].name, "scale");
  EXPECT_EQ(g.sites()[0].attributes, (Attributes{{"factor", 3.0}}));
  EXPECT_EQ(to_string(g.sites()[0].place).substr(0, 14), "saved_test.cc:");
  EXPECT_EQ(g(x).at(0).item<float>(), 18);
  EXPECT_EQ(g(tensor<float>({4, 5, 6})).at(0).item<float>(), 45);
  EXPECT_EQ(log, (std::vector<Floats>{{3, 6, 9}, {12, 15, 18}}));
  unregister_function("demo.scale");
  expect_error<CallbackError>([&] { g(x); }, {"demo.scale", "call 'scale' at saved_test.cc"},
                              ErrorCode::unregistered);
  expect_error<TypeError>([&] { g(tensor<float>({1, 2})); }, {"argument 0", "f32[3]", "f32[2]"});
  expect_error<TypeError>([&] { g(x, x); }, {"takes 1 arguments", "2 came"});
}

TEST_F(Saved, RunsInAnotherProcess) {
  RecordProperty("covers", "IR-10");
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/program.mlir";
  save(file, simple.lower(x));
  const Ended ended = run_program("saved_run", {file});
  EXPECT_EQ(ended.out, "18 1\n") << ended.err;
  EXPECT_EQ(ended.code, 0);
}

TEST_F(Saved, LoopsBatchesDerivativesAndLargeCaptures) {
  const Tensor large = iota<float>(3000);
  auto f = [&](Tensor v) {
    auto rule = custom_jvp([](Tensor a) { return scaled(a, 2.0); },
                           [](auto p, auto t) {
                             return std::pair{scaled(std::get<0>(p), 2.0), std::get<0>(t) * 2.0f};
                           });
    Tensor y = fori_loop(
        0, 3,
        [&](Tensor, Tensor c) {
          return tap({.mode = TapMode::async, .every = 2}, rule(c), Named{"demo.log"});
        },
        v);
    return sum(y) + sum(large);
  };
  const auto g = jit([&](Tensor v) { return vmap(value_and_grad(f))(v); });
  const Tensor batch = tensor<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  const auto [value, gradient] = g(batch);
  barrier();
  const auto seen = log.size();
  const Loaded saved = load_text(saved_text(g.lower(batch)));
  const std::vector<Tensor> out = saved(batch);
  barrier();
  EXPECT_EQ(out.at(0).to_vector<float>(), value.to_vector<float>());
  EXPECT_EQ(out.at(1).to_vector<float>(), gradient.to_vector<float>());
  EXPECT_EQ(log.size(), 2 * seen);
}

TEST_F(Saved, MaximaKeepNan) {
  std::vector<float> values(64);
  values[13] = std::numeric_limits<float>::quiet_NaN();
  const Tensor some = tensor<float>(values);
  const auto f = jit([](Tensor v) { return std::pair(max(v), min(v)); });
  for (const Tensor& result : load_text(saved_text(f.lower(some)))(some))
    EXPECT_TRUE(std::isnan(result.item<float>()));
}

TEST_F(Saved, EveryKindOfAttribute) {
  RecordProperty("covers", "IR-13");
  const double infinity = std::numeric_limits<double>::infinity();
  const Attributes all{{"b", true},
                       {"i", std::int64_t{-9007199254740993}},
                       {"d", 0.1},
                       {"inf", -infinity},
                       {"s", "a \"quoted\"\nline // of text"},
                       {"bs", std::vector<bool>{true, false}},
                       {"is", std::vector<std::int64_t>{1, -2}},
                       {"ds", std::vector<double>{1e-300, infinity}},
                       {"ss", std::vector<std::string>{"x", ""}}};
  Attributes got;
  register_function("demo.attributes",
                    [&](const Attributes& a, float v) -> float {
                      got = a;
                      return v;
                    },
                    {.replace = true});
  const auto f = jit([&](Tensor v) {
    return call(type<float>(), Named{"demo.attributes", all}, v);
  });
  load_text(saved_text(f.lower(Tensor(1.0f))))(Tensor(1.0f)).at(0).item<float>();
  EXPECT_EQ(got, all);
}

Tensor printing(Tensor v) {
  using namespace literals;
  print("plain {} and {:.2f}", v, max(v));
  print({.label = "loss", .every = 2}, "{x} {{}} {1} {2} {kind}", "x"_a = sum(v), true, 2.5,
        "kind"_a = "text");
  print({.precision = 1, .suppress = true}, "{}",
        std::map<std::string, Tensor>{{"a", v * 1.26f}, {"b", v}});
  v = print_value({.threshold = 2, .edge_items = 1, .header = {{"what", "here"}}}, v);
  v = fori_loop(
      0, 2,
      [](Tensor i, Tensor w) {
        print_value({.label = "step"}, std::tuple{i, w * 2.0f});
        return w * 2.0f;
      },
      v);
  return vmap([](Tensor w) {
    print("inside {}", w);
    return w + 1.0f;
  })(v);
}

TEST_F(Saved, RunsWithADeadlineAndItsOwnFunctions) {
  const Loaded g = load_text(saved_text(simple.lower(x)));
  Floats heard;
  const RunOptions own{
      .functions = {{"demo.log", [&](View<const float> v) { heard.assign(v.begin(), v.end()); }}}};
  EXPECT_EQ(g.run({x}, own).at(0).item<float>(), 18);
  EXPECT_EQ(heard, Floats({3, 6, 9}));
  EXPECT_TRUE(log.empty());
  register_function("demo.scale",
                    [](const CallInfo& info, View<const float>, View<float>) {
                      while (!info.stop.stop_requested()) std::this_thread::sleep_for(1ms);
                    },
                    {.replace = true});
  expect_error<TimeoutError>([&] { g.run({x}, {.deadline = 1s}); }, {"scale", "deadline"},
                             ErrorCode::timeout);
  EXPECT_NO_THROW(barrier());
  expect_error<TypeError>([&] { g.run({}, own); }, {"takes 1 arguments"});
}

TEST_F(Saved, PrintsBringTheirFormatsAndOptions) {
  const auto f = jit(printing);
  std::ostringstream here, there;
  f.start_with({.sink = &here}, x).wait();
  const Loaded g = load_text(saved_text(f.lower(x)));
  EXPECT_TRUE(g.required_functions().empty());
  ASSERT_EQ(g.sites().size(), 6u);
  EXPECT_EQ(g.sites()[0].kind + " " + g.sites()[0].function, "print ");
  EXPECT_EQ(g.start({x}, {.sink = &there}).wait(), RunStatus::done);
  EXPECT_EQ(there.str(), here.str());
  EXPECT_NE(there.str().find("loss: 6 {} true 2.5 text"), std::string::npos) << there.str();
}

// Which looks like a place.
TEST_F(Saved, APrintsHeaderIsKept) {
  for (const std::map<std::string, std::string>& header :
       {std::map<std::string, std::string>{{"file", "/data/run/x.csv"}, {"line", "12"}},
        {{"file", "/data/run/x.csv"}, {"line", "12"}, {"zeta", "1"}}}) {
    const auto f = jit([&](Tensor v) { return print_value({.header = header}, v); });
    using Places = SaveOptions::Places;
    for (const SaveOptions& options :
         {SaveOptions{}, SaveOptions{.root = "/"}, SaveOptions{.places = Places::none}}) {
      std::ostringstream out;
      const Loaded g = load_text(saved_text(f.lower(x), options));
      EXPECT_EQ(g.start({x}, {.sink = &out}).wait(), RunStatus::done);
      EXPECT_NE(out.str().find("file: /data/run/x.csv, line: 12"), std::string::npos) << out.str();
    }
  }
}

TEST_F(Saved, PrintsToWhatIsOfThisProcessAreRefused) {
  std::ostringstream out;
  const auto f = jit([&](Tensor v) {
    print({.stream = &out}, "{}", v);
    print({.log = [](const PrintRecord&) {}}, "{}", v);
    print({.stream = &std::cerr}, "{}", v);
    return v;
  });
  expect_error<TypeError>([&] { saved_text(f.lower(x)); },
                          {"print 'print' at saved_test.cc", "(its stream is of this process)",
                           "(its option log is a function of this process)"});
  const auto g = jit([&](Tensor v) {
    print({.stream = &std::cerr}, "{}", v);
    return v;
  });
  const Loaded loaded = load_text(saved_text(g.lower(x)));
  testing::internal::CaptureStderr();
  loaded(x).at(0).block_until_ready();
  EXPECT_NE(testing::internal::GetCapturedStderr().find("[1. 2. 3.]"), std::string::npos);
}

TEST_F(Saved, ForgedPrintsAreRefused) {
  const std::string text = saved_text(jit(printing).lower(x));
  for (const auto& [part, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("value":0,"spec")", R"("value":9,"spec")"},
           {R"("value":0,"spec")", R"("value":-2,"spec")"},
           {R"("spec":".2f")", R"("spec":".99999999f")"},
           {R"("spec":".2f")", R"("spec":"x")"},
           {R"({"kind":"leaf"})", R"({"kind":"tuple"})"},
           {R"({"kind":"leaf"})", R"({"kind":"leaf","parts":[{"kind":"leaf"}]})"},
           {R"("precision":-1)", R"("precision":1000000)"},
           {R"("edge_items":3)", R"("edge_items":0)"},
           {R"({"kind":"text","known":{"bool":true}})", R"({"kind":"text","known":{"rule":true}})"},
           {R"("names":["a","b"])", R"("names":["a"])"}})
    expect_error<Error>([&, p = part, o = other] { load_text(summed(replaced(text, p, o))); }, {},
                        ErrorCode::invalid_argument);
}

TEST_F(Saved, ClosuresAreRefusedByNameAndPlace) {
  RecordProperty("covers", "IR-11");
  const auto f = jit([](Tensor v) {
    v = call(
        {.name = "one"}, v.type(), [](View<const float>, View<float>) {}, v);
    return tap({.name = "two"}, scaled(v, 1), [](View<const float>) {});
  });
  expect_error<TypeError>(
      [&] { saved_text(f.lower(x)); },
      {"call 'one' at saved_test.cc", "tap 'two' at saved_test.cc", "register_function", "Named"});
}

TEST_F(Saved, FilesHoldNoAbsolutePaths) {
  const auto f = jit([](Tensor v) {
    print("{}", v);
    tap({.name = "t"}, linalg::cholesky(broadcast_to(v, {1, 1})), Named{"demo.log"});
    return v;
  });
  const Lowered lowered = f.lower(Tensor(1.0f));
  const std::filesystem::path here = Place::current().file;
  ASSERT_TRUE(here.is_absolute());
  const auto files_in = [](const std::string& text) {
    std::set<std::string> files;
    for (std::size_t at = 0; (at = text.find(R"("file":")", at)) != std::string::npos;) {
      at += 8;
      files.insert(text.substr(at, text.find('"', at) - at));
    }
    return files;
  };
  using Files = std::set<std::string>;
  const std::filesystem::path tests = here.parent_path().parent_path();
  EXPECT_EQ(files_in(saved_text(lowered, {.root = tests})), Files{"file/saved_test.cc"});
  EXPECT_EQ(files_in(saved_text(lowered, {.root = tests / "nowhere"})), Files{"saved_test.cc"});
  EXPECT_EQ(files_in(saved_text(lowered, {.places = SaveOptions::Places::none})), Files{""});
  for (const std::string& text : {saved_text(lowered), saved_text(lowered, {.root = "/"}),
                                  saved_text(lowered, {.root = "."})}) {
    EXPECT_FALSE(has(text, here.string()));
    EXPECT_FALSE(has(text, R"("file":"/)"));
    EXPECT_FALSE(files_in(text).empty());
    EXPECT_EQ(to_string(load_text(text).sites().at(0).place).substr(0, 14), "saved_test.cc:");
  }
  EXPECT_EQ(to_string(load_text(saved_text(lowered, {.places = SaveOptions::Places::none}))
                          .sites()
                          .at(0)
                          .place),
            "?");
}

TEST_F(Saved, DamagedFilesSaySo) {
  RecordProperty("covers", "IR-12");
  const std::string text = saved_text(simple.lower(x));
  for (std::size_t end = 0; end < text.size(); end += 37)
    EXPECT_THROW(load_text(std::string_view(text).substr(0, end)), Error) << "cut at " << end;
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    std::string changed = text;
    const std::size_t at = text.find('\n') + 1 + random() % (text.size() - text.find('\n') - 1);
    changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 7));
    EXPECT_THROW(load_text(changed), Error) << "byte " << at;
  }
  expect_error<Error>([&] { load_text(replaced(text, "f32[3]", "f32[4]"), "it.mlir"); },
                      {"it.mlir", "checksum"}, ErrorCode::data_loss);
  expect_error<Error>([&] { load_text("module @main {}"); },
                      {"neither a saved program nor StableHLO text"}, ErrorCode::invalid_argument);
  expect_error<Error>([&] { load_text(replaced(text, "program 1", "program 3")); },
                      {"format 3", "up to 2"}, ErrorCode::unimplemented);
  expect_error<Error>([&] { load("/no/such/file.mlir"); }, {"/no/such/file.mlir", "No such file"},
                      ErrorCode::not_found);
  expect_error<Error>([&] { save("/no/such/folder/file.mlir", simple.lower(x)); },
                      {"/no/such/folder"}, ErrorCode::unavailable);
}

TEST_F(Saved, ForgedFilesDoNoHarm) {
  const std::string text = saved_text(simple.lower(x));
  auto forged = [&](const std::string& part, const std::string& other) {
    return load_text(summed(replaced(text, part, other)));
  };
  // The site says more than the text gives: the function must not see memory that is not there.
  EXPECT_THROW(
      forged(R"("operands":["f32[3]"])", R"("operands":["f32[3000000]"])")(x).at(0).item<float>(),
      Error);
  EXPECT_TRUE(log.empty());
  expect_error<TypeError>([&] { forged(R"("outputs":["f32[]"])", R"("outputs":["f64[]"])")(x); },
                          {"its results are (f64[])", "makes others"});
  for (const auto& [part, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("f32[3]")", R"("f32[-3]")"},
           {R"("f32[3]")", R"("f32[99999999999999999999]")"},
           {R"("f32[3]")", R"("f32[4294967296,4294967296,4294967296]")"},
           {R"("f32[3]")", R"("f99[3]")"},
           {R"("f32[3]")", R"("token[]")"},
           {R"("effect":"pure")", R"("effect":"none")"},
           {R"("every":1)", R"("every":0)"},
           {R"("levels":[])", R"("levels":[{"size":-1,"mapped":[true]}])"},
           {R"("levels":[])", R"("levels":[{"size":4611686018427387904,"mapped":[true]}])"},
           {R"("function":{"name":"demo.scale")", R"("function":{"name":"")"},
           {R"("line":)", R"("lime":)"},
           {R"({"double":)", R"({"triple":)"},
           {"// about {", "// about [["}})
    expect_error<Error>([&, part = part, other = other] { forged(part, other); }, {},
                        ErrorCode::invalid_argument);
  // Sites of a loop's residuals say how many steps there are in a block.
  const auto halves = [](Tensor v) {
    return while_loop([](Tensor u) { return u > 1.0f; }, [](Tensor u) { return sin(u) * 0.5f; }, v);
  };
  const std::string tapes = saved_text(jit(grad(halves)).lower(Tensor(3.0f)));
  for (const auto& [part, other] : std::vector<std::pair<std::string, std::string>>{
           {R"("room":{"int64":64})", R"("room":{"int64":0})"},
           {R"("room":{"int64":64})", R"("room":{"int64":-64})"},
           {R"("room":{"int64":64})", R"("room":{"int64":3})"},
           {R"("operands":["s64[]","s64[]","f64[]")", R"("operands":["s64[]","s64[]","f32[]")"},
           {R"("operands":["s64[]","s64[]",)", R"("operands":["s64[]",)"}})
    expect_error<Error>(
        [&, part = part, other = other] { load_text(summed(replaced(tapes, part, other))); },
        {"residuals"}, ErrorCode::invalid_argument);
  std::mt19937 random(6);
  const std::size_t head = text.find("module @");
  for (int i = 0; i < 5000; ++i) {  // any bytes in the head: loads or refuses
    std::string changed = text;
    for (int k = 0; k < 3; ++k) changed[random() % head] = static_cast<char>(random());
    try {
      load_text(summed(changed));
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace postern::test
