// Every name of a hostile kind in every place where a name goes.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/text.h"
#include "support.h"

namespace postern::test {
using namespace internal;
namespace {

using Floats = std::vector<float>;
using Json = nlohmann::json;

std::string contents(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return std::move(text).str();
}

/// Of a text that is shown: UTF-8, and nothing that a terminal takes for a command.
void expect_readable(std::string_view text) {
  EXPECT_TRUE(is_utf8(text)) << one_line(text);
  const auto shown = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t';
  };
  EXPECT_TRUE(std::ranges::all_of(text, shown)) << one_line(text);
}

struct HostileName {
  const char* what;
  std::string name;
};

const HostileName names[] = {
    {"empty", ""},
    {"space", " "},
    {"words", "two words"},
    {"quote", "a\"b'c"},
    {"backslash", "a\\b\\"},
    {"newline", "a\nb"},
    {"nul", std::string("a\0b", 3)},
    {"escape", "\x1b[31mred\x7f"},
    {"signs", "@%-/!#^$"},
    {"at", "@main"},
    {"braces", "{}{0}{:x}"},
    {"digit", "7up"},
    {"point", ".hidden"},
    {"path", "../../etc/x"},
    {"utf8", "größe \xe2\x88\x82 \xf0\x9f\x98\x80"},
    {"latin1", "gr\xf6\xdf"},
    {"overlong", "\xc0\xaf\xed\xa0\x80"},
    {"html", "</title><script>alert(1)</script>&"},
    {"module", "m {} module @x { func.func @main() { return } }"},
    {"attribute", "a = 1 : i64}, has_side_effect = false} //"},
    {"keyword", "module"},
    {"comment", "a // b"},
    {"long", std::string(70000, 'n')},
};

class Names : public testing::TestWithParam<HostileName> {
 protected:
  void SetUp() override {
    record_timeline(true);
    register_function(function, [](const Attributes&, View<const float> in, View<float> out) {
      for (std::int64_t i = 0; i < in.size(); ++i) out[i] = in[i] * 2;
    });
  }
  void TearDown() override {
    record_timeline(false);
    unregister_function(function);
  }

  /// With the name wherever a program has one.
  Tensor body(const Tensor& v) {
    std::map<std::string, Tensor> tree{{name, v}};
    tree = tap({.name = name}, tree, [](View<const float>) {});
    tree = tap({.name = name, .mode = TapMode::async}, tree, stats);
    tree = hook(name, tree, [](View<const float>) {});
    print({.stream = &printed, .label = name}, PrintFormat("{}", Place::current()), name);
    print_value({.stream = &printed, .label = name, .header = {{name, name}}}, tree);
    return call({.name = name, .effect = Effect::unordered}, v.type(),
                Named{function, {{name, name}, {"list", std::vector<std::string>{name, "x"}}}},
                tree.at(name));
  }
  Jitted<std::function<Tensor(Tensor)>> program(Mode mode) {
    return jit(std::function<Tensor(Tensor)>([this](Tensor v) { return body(v); }),
               {.mode = mode, .name = name});
  }

  const std::string name = GetParam().name, function = name.empty() ? "names_test.f" : name;
  const listen::Stats stats = listen::stats();
  std::ostringstream printed;
  const Tensor x = tensor<float>({1, 2});
};

TEST_P(Names, ProgramsRunAndReadWell) {
  const auto f = program(Mode::automatic);
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{2, 4}));
  EXPECT_EQ(program(Mode::evaluate)(x).to_vector<float>(), (Floats{2, 4}));
  EXPECT_EQ(f.start(x).result().to_vector<float>(), (Floats{2, 4}));
  barrier();
  EXPECT_TRUE(has(printed.str(), name));
  expect_readable(to_string(f.lower(x).program()));
  expect_readable(f.lower(x).stablehlo());
  expect_readable(stats.table());
  EXPECT_FALSE(stats.table().find("\n ") != std::string::npos) << "a row without a label";
}

TEST_P(Names, FailuresReadWell) {
  const auto f = jit([&](Tensor v) {
    return call(
        {.name = name}, v.type(),
        [&](View<const float>, View<float>) { throw std::runtime_error(name); }, v);
  });
  const auto e = error_of<CallbackError>([&] { f(x).block_until_ready(); });
  ASSERT_TRUE(e);
  expect_readable(e->what());
  EXPECT_EQ(e->site().name, name);
  EXPECT_EQ(e->code(), ErrorCode::threw);
  const auto refused = error_of<TypeError>([&] {
    call(
        {.name = name}, std::tuple<>(), [](View<const float>) {}, x);
  });
  if (refused) expect_readable(refused->what());
  unregister_function(function);
  const auto missing = error_of<CallbackError>([&] { program(Mode::automatic)(x); });
  if (missing) expect_readable(missing->what());
}

TEST_P(Names, TimelineIsJson) {
  const TemporaryFolder folder;
  program(Mode::automatic)(x);
  barrier();
  write_timeline(folder.path() + "/t.json");
  const Json json = Json::parse(contents(folder.path() + "/t.json"));
  EXPECT_GT(json.at("traceEvents").size(), 3u);
}

TEST_P(Names, ReportIsOnePageOfText) {
  const TemporaryFolder folder;
  program(Mode::automatic)(x);
  barrier();
  report(folder.path() + "/r.html", {.title = name});
  const std::string page = contents(folder.path() + "/r.html");
  expect_readable(page);
  EXPECT_FALSE(has(page, "<script"));
  EXPECT_FALSE(has(page, "<h3></h3>"));
}

TEST_P(Names, RecordingsReplay) {
  const TemporaryFolder folder;
  const auto f = program(Mode::automatic);
  {
    Taping recording = record(folder.path() + "/tape");
    f(x).block_until_ready();
    recording.close();
  }
  const auto firings = read_recording(folder.path() + "/tape");
  ASSERT_GE(firings.size(), 3u);
  EXPECT_EQ(firings.front().name, name);
  unregister_function(function);
  const Taping replaying = replay(folder.path() + "/tape");
  EXPECT_EQ(f(x).to_vector<float>(), (Floats{2, 4}));
}

TEST_P(Names, ProgramsAreSaved) {
  const auto f = jit(std::function<Tensor(Tensor)>([this](Tensor v) {
                       return call({.name = name}, v.type(), Named{function, {{name, name}}}, v);
                     }),
                     {.name = name});
  if (!is_utf8(name)) return expect_error<TypeError>([&] { saved_text(f.lower(x)); }, {"UTF-8"});
  const Loaded g = load_text(saved_text(f.lower(x)));
  EXPECT_EQ(g.sites().at(0).name, name);
  EXPECT_EQ(g.sites().at(0).attributes, (Attributes{{name, name}}));
  EXPECT_EQ(g(x).at(0).to_vector<float>(), (Floats{2, 4}));
}

TEST_P(Names, ArraysOfARecordAreFound) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/all.npz";
  {
    const auto all = listen::record(file);
    for (int i = 0; i < 3; ++i) {
      tap({.name = name}, x, all);
      tap({.name = name}, Tensor(1.0f), all);
    }
    EXPECT_EQ(all.recorded(), 6u);
  }
  const std::string script =
      "import sys, zipfile; z = zipfile.ZipFile(sys.argv[1]); assert z.testzip() is None; "
      "n = z.namelist(); assert len(set(n)) == 2, n; assert all(e.endswith('.npy') for e in n), n";
  EXPECT_EQ(std::system(("python3 -c \"" + script + "\" " + file).c_str()), 0);
}

TEST_P(Names, AttributesOfTargetsAndAxesOfMeshes) {
  expect_error<TypeError>([&] { ffi_call({name, {{name, name}}}, x.type(), {}, x); }, {});
  if (name.empty()) return;
  const Mesh mesh({{name, 1}});
  expect_readable(to_string(mesh));
  expect_error<TypeError>([&] { static_cast<void>(mesh.size("no such axis")); }, {"no such axis"});
}

std::string test_name(const testing::TestParamInfo<HostileName>& info) { return info.param.what; }
INSTANTIATE_TEST_SUITE_P(All, Names, testing::ValuesIn(names), test_name);

TEST(NamesText, EscapesTellDifferentTextsApart) {
  EXPECT_EQ(to_string(Attributes{{"a", "b\", c = \"d"}}), "{a = \"b\\\", c = \\\"d\"}");
  EXPECT_NE(to_string(Attributes{{"a = 1, b", 2}}), to_string(Attributes{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(one_line("a\nb\xff\xc2\x9b\x7f"), "a\\nb\\xFF\\xC2\\x9B\\x7F");
  EXPECT_EQ(printable("a\nb\tc\r"), "a\nb\tc\\x0D");
  EXPECT_EQ(word_or_quoted("plain.word-1_"), "plain.word-1_");
  EXPECT_EQ(word_or_quoted(""), "\"\"");
}

TEST(NamesText, Utf8IsToldFromOtherBytes) {
  for (const char* good : {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf",
                           "\xee\x80\x80", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(is_utf8(good)) << one_line(good);
  for (const char* bad : {"\x80", "\xc1\xbf", "\xc2", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xe2\x82",
                          "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80"})
    EXPECT_FALSE(is_utf8(bad)) << one_line(bad);
}

}  // namespace
}  // namespace postern::test
