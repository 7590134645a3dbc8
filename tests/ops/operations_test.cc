// Every public operation has its row in the tables of tests/ops/ops_*_test.cc and its line in
// docs/operations.md.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

namespace {

const std::filesystem::path tests = std::filesystem::path(POSTERN_TEST_DATA).parent_path(),
                            root = tests.parent_path();

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_FALSE(text.str().empty()) << file;
  return text.str();
}

using Names = std::set<std::string>;

Names matches(const std::string& text, const std::string& pattern) {
  Names out;
  const std::regex regex(pattern);
  for (std::sregex_iterator m(text.begin(), text.end(), regex), end; m != end; ++m)
    out.insert((*m)[1]);
  return out;
}

/// The functions of a header that give a Tensor or several.
Names operations_of(const std::string& header) {
  return matches(text_of(root / "include/postern" / header),
                 R"((?:^|\n)(?:requires [^\n]*> )?(?:\[\[nodiscard\]\] )?(?:inline |POSTERN_API )?)"
                 R"((?:Tensor|LuResult|std::(?:vector|pair|tuple)<Tensor[^>]*>)\s(\w+)\()");
}

const std::string headers[] = {"ops.h",      "arrange.h", "compare.h", "conv.h",   "indexing.h",
                               "products.h", "reduce.h",  "sort.h",    "signal.h", "nn.h"};

Names all_operations() {
  Names out;
  for (const std::string& header : headers) out.merge(operations_of(header));
  for (const char* header : {"random.h", "linalg.h", "initialize.h"})
    out.merge(operations_of(header));
  return out;
}

Names words_of(const std::string& text) {
  Names out;
  std::string word;
  for (const char c : text + ' ') {
    if (c == '_' || std::isalnum(static_cast<unsigned char>(c)))
      word += c;
    else if (!word.empty())
      out.insert(std::exchange(word, {}));
  }
  return out;
}

TEST(Operations, TheDocumentNamesEachOne) {
  std::string first_columns;
  std::istringstream lines(text_of(root / "docs/operations.md"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("| `")) first_columns += line.substr(0, line.find(" | ", 2)) + "\n";
  const Names known = all_operations();
  EXPECT_GT(known.size(), 170u) << "the headers are no longer understood";
  const Names named = words_of(first_columns);
  for (const std::string& name : known)
    EXPECT_TRUE(named.contains(name)) << name << " is not in docs/operations.md";

  std::string all;
  for (const auto& file : std::filesystem::directory_iterator(root / "include/postern"))
    if (file.is_regular_file()) all += text_of(file.path());
  const Names declared = words_of(all);
  for (const std::string& name : matches(first_columns, "`(\\w+)`"))
    EXPECT_TRUE(declared.contains(name))
        << "docs/operations.md names " << name << ", which there is not";
}

/// Rows of the tables by the operation that they begin with: "sum_axes" is one of sum.
TEST(Operations, EachOneHasARowInTheTables) {
  Names wanted, rows;
  for (const std::string& header : headers) wanted.merge(operations_of(header));
  for (const std::string& name : operations_of("random.h")) wanted.insert("random_" + name);
  for (const auto& file : std::filesystem::directory_iterator(tests / "ops")) {
    const std::string name = file.path().filename();
    if (name.starts_with("ops_") && name.ends_with("_test.cc"))
      rows.merge(matches(text_of(file.path()), "\\{\"(\\w+)\",\\s*\""));
  }
  Names found;
  for (std::string name : rows) {
    while (!wanted.contains(name) && name.find('_') != std::string::npos)
      name.resize(name.rfind('_'));
    found.insert(name);
  }
  for (const std::string& name : wanted)
    EXPECT_TRUE(found.contains(name)) << name << " has no row in tests/ops/ops_*_test.cc";
}

}  // namespace
