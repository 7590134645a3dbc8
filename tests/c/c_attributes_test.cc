// Attributes as C reads them.
#include <postern/c.h>

#include <cmath>

#include "support.h"

namespace postern::test {
namespace {

int read_attributes(void* told, const pn_firing* f) {
  std::string& out = *static_cast<std::string*>(told);
  const auto add = [&](int code, const auto& value) {
    out +=
        code == PN_OK ? fmt::format("{} ", value) : fmt::format("{} {}\n", code, pn_last_error());
  };
  int yes = 0;
  std::int64_t number = 0;
  double real = 0;
  const char* text = "";
  std::size_t size = 0;
  add(pn_attribute_bool(f, "yes", &yes), yes);
  add(pn_attribute_int64(f, "count", &number), number);
  add(pn_attribute_double(f, "factor", &real), real);
  add(pn_attribute_string(f, "word", &text), text);
  add(pn_attribute_size(f, "list", &size), size);
  add(pn_attribute_int64_at(f, "list", 2, &number), number);
  add(pn_attribute_double_at(f, "reals", 1, &real), real);
  add(pn_attribute_bool_at(f, "flags", 1, &yes), yes);
  add(pn_attribute_string_at(f, "words", 0, &text), text);
  add(pn_attribute_double(f, "count", &real), real);
  add(pn_attribute_double(f, "fact", &real), real);
  add(pn_attribute_int64_at(f, "list", 3, &number), number);
  add(pn_attribute_size(f, "word", &size), size);
  return PN_OK;
}

TEST(CAttributes, AreReadByNameAndType) {
  std::string told;
  const double factor = std::nextafter(0.1, 1.0), infinity = INFINITY;
  ASSERT_EQ(pn_register("attributes_test.f", read_attributes, &told, nullptr, 1), PN_OK);
  const auto f = jit([&](Tensor x) {
    return call({.name = "f", .effect = Effect::unordered}, x.type(),
                Named{"attributes_test.f",
                      {{"yes", true},
                       {"count", std::int64_t{1} << 60},
                       {"factor", factor},
                       {"word", "it is"},
                       {"list", std::vector{1, 2, 3}},
                       {"reals", std::vector{1.0, infinity}},
                       {"flags", std::vector{false, true}},
                       {"words", std::vector<std::string>{"a", "b"}}}},
                x);
  });
  f(tensor<float>({1})).block_until_ready();
  EXPECT_TRUE(
      told.starts_with(fmt::format("1 {} {} it is 3 3 inf 1 a ", std::int64_t{1} << 60, factor)))
      << told;
  for (const char* part :
       {"3 ", "attribute 'count'", "asked for as double", "5 pn_attribute: there is no 'fact' in {",
        "3 pn_attribute: 'list' has 3 elements, 3 was asked for", "'word' is no list"})
    EXPECT_TRUE(has(told, part)) << part << "\n" << told;
  unregister_function("attributes_test.f");
}

}  // namespace
}  // namespace postern::test
