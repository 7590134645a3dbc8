// Numbers in texts do not depend on the process's locale, whose decimal point may be a comma.
#include <postern/file.h>

#include <clocale>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/text.h"
#include "file/site_json.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

TEST(Locale, NumbersAreReadWithTheirSizes) {
  const std::tuple<const char*, double, std::size_t> rows[] = {
      {"1.5", 1.5, 3}, {"-2e3,", -2000, 4}, {"0x1p4", 16, 5},       {"1e-320", 1e-320, 6},
      {"", 0, 0},      {"x", 0, 0},         {"1e999", INFINITY, 5}, {" 7", 7, 2}};
  for (const auto& [text, value, size] : rows) {
    std::size_t got = 99;
    EXPECT_EQ(parse_number(text, &got), value) << text;
    EXPECT_EQ(got, size) << text;
  }
  EXPECT_TRUE(std::isnan(parse_number("nan")));
}

/// While it lives, 1.5 is "1,5" for the C library.
class WithComma {
 public:
  WithComma() {
    std::ofstream characters(folder_.path() + "/ascii");
    characters << "<code_set_name> ASCII\n<comment_char> %\n<escape_char> /\nCHARMAP\n";
    char line[64];
    for (unsigned i = 0; i < 128; ++i) {
      std::snprintf(line, sizeof line, "<U%04X> /x%02x x\n", i, i);
      characters << line;
    }
    characters << "END CHARMAP\n";
    characters.close();
    std::ofstream(folder_.path() + "/comma")
        << "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \"<U002C>\"\n"
           "thousands_sep \"<U002E>\"\ngrouping 3;3\nEND LC_NUMERIC\n"
           "LC_CTYPE\nupper <U0041>\nlower <U0061>\nEND LC_CTYPE\n";
    const std::string make =
        "cd " + folder_.path() + " && localedef -c -i ./comma -f ./ascii ./xx_XX >/dev/null 2>&1";
    static_cast<void>(std::system(make.c_str()));  // it warns, and says 1
    ::setenv("LOCPATH", folder_.path().c_str(), 1);
    made = std::setlocale(LC_NUMERIC, "xx_XX") != nullptr && std::strtod("1.5", nullptr) == 1;
  }
  ~WithComma() {
    std::setlocale(LC_NUMERIC, "C");
    ::unsetenv("LOCPATH");
  }
  bool made = false;

 private:
  test::TemporaryFolder folder_;
};

TEST(Locale, ACommaForAPointChangesNoValue) {
  const WithComma comma;
  if (!comma.made) GTEST_SKIP() << "localedef made no locale";
  for (const double value : {0.1, -1.5e-7, 1e300})
    EXPECT_EQ(file::number_from(file::number_text(value)), value);

  std::ostringstream text;
  text << convert(tensor<float>({0.1f, 1.5f}), DType::f16)
       << convert(tensor<float>({0.5f, 100.25f}), DType::bf16);
  EXPECT_TRUE(test::has(text.str(), "0.1 ") && test::has(text.str(), "1.5")) << text.str();
  EXPECT_TRUE(test::has(text.str(), "0.5") && !test::has(text.str(), ",0")) << text.str();

  const Loaded loaded = load_text(R"(func.func @main() -> tensor<4xf64> {
  %0 = stablehlo.constant dense<[2.5, 1.5e-320, 1.0e400, -0.125]> : tensor<4xf64>
  return %0 : tensor<4xf64>
})");
  const auto got = jit([&] { return loaded(std::vector<Tensor>{})[0]; })().to_vector<double>();
  EXPECT_EQ(got[0], 2.5);
  EXPECT_LT(got[1], 1e-300);
  EXPECT_EQ(got[2], INFINITY);
  EXPECT_EQ(got[3], -0.125);

  const test::TemporaryFolder folder;
  const std::string file = folder.path() + "/mean.pn";
  const auto f = jit([](Tensor x) { return mean(x) + 0.1f; });
  save(file, f.lower(abstract(type<float>({any("n")}))));
  EXPECT_EQ(load(file)(tensor<float>({1, 2, 3, 6}))[0].item<float>(), 3.1f);
}

}  // namespace
}  // namespace postern
