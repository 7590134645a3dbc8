// Keys of parameters: different ones have different keys, also where their texts are alike.
#include "core/params.h"

#include "block/block.h"
#include "core/site_spec.h"
#include "support.h"

namespace postern {
using namespace internal;

// Parameters without a list, of a named and of an unnamed namespace.
struct NamedPlainParams {
  std::int64_t axis_;
  Dims start, limit;
};

namespace {

using std::chrono::nanoseconds;

struct PlainParams {
  std::int64_t axis_ = 1;
  Dims start, limit;
};
struct ListedParams {
  std::int64_t axis_;
  Dims start, limit;
  auto fields(Fields sink) const {
    return sink.field("axis_", axis_).field("start", start).field("limit", limit);
  }
};
struct NoParams {};
struct NumberParams {
  bool on;
  int small;
  std::int64_t large;
  std::uint64_t natural;
  double real;
};
struct EveryParams {
  NumberParams numbers;
  NoParams nothing;
  std::string_view view;
  const char* literal;
  std::string text;
  DType dtype;
  Type type;
  std::vector<Type> types;
  Dims dims;
  std::vector<int> ints;
  std::vector<bool> bits;
  std::vector<std::string> words;
  Attributes attributes;
  ProgramPtr program;
};
struct EveryListedParams {
  EveryParams e;
  auto fields(Fields sink) const {
    return sink.by([&](FieldSink& s) {
      s("on", e.numbers.on);
      s("small", e.numbers.small);
      s("large", e.numbers.large);
      s("natural", e.numbers.natural);
      s("real", e.numbers.real);
      s("view", e.view);
      s("literal", e.literal);
      s("text", e.text);
      s("dtype", e.dtype);
      s("type", e.type);
      s("types", e.types);
      s("dims", e.dims);
      s("ints", e.ints);
      s("bits", e.bits);
      s("words", e.words);
      s("attributes", e.attributes);
      s("program", e.program);
    });
  }
};

template <class P>
std::string key_of_params(P params) {
  std::string key;
  append_key(key, *make_params(std::move(params)));
  return key;
}
std::string key_of_site(const SiteSpec& site) {
  return key_of_params(SiteParams{std::make_shared<const SiteSpec>(site)});
}
std::string key_of_target(FfiTarget target) {
  return key_of_params(
      blocks::TargetParams{std::make_shared<const FfiTarget>(std::move(target)), {}, {}});
}
std::string key_of_block(blocks::BlockParams params) {
  params.config = std::make_shared<const detail::BlockConfig>();
  params.body = std::make_shared<const Program>();
  return key_of_params(std::move(params));
}

TEST(Params, TimesAreExactInKeys) {
  SiteSpec a, b;
  a.call.timeout = nanoseconds(123456789);
  b.call.timeout = nanoseconds(123456790);
  EXPECT_NE(key_of_site(a), key_of_site(b));
  b.call.timeout = a.call.timeout;
  EXPECT_EQ(key_of_site(a), key_of_site(b));
  b.call.warn_after = nanoseconds(1);
  EXPECT_NE(key_of_site(a), key_of_site(b));
  EXPECT_TRUE(test::has(to_string(*make_params(SiteParams{std::make_shared<SiteSpec>(a)})),
                        "timeout=123.457ms"))
      << "people read a rounded one";
}

TEST(Params, AttributesKeepTheirTypesInKeys) {
  SiteSpec integer, real;
  integer.named = {"f", {{"n", 1}}};
  real.named = {"f", {{"n", 1.0}}};
  EXPECT_NE(key_of_site(integer), key_of_site(real));
  EXPECT_NE(key_of_target({"f", {{"n", 1}}}), key_of_target({"f", {{"n", 1.0}}}));
  EXPECT_EQ(key_of_target({"f", {{"n", 1}}}), key_of_target({"f", {{"n", 1}}}));
}

TEST(Params, WeakResultsAreOthers) {
  SiteSpec weak, strong;
  weak.results = {{DType::f32, {}, true}};
  strong.results = {{DType::f32, {}, false}};
  EXPECT_NE(key_of_site(weak), key_of_site(strong));
}

TEST(Params, FieldsThatAreLeftOutDoNotTakeEachOthersPlace) {
  FfiTarget in("f"), out("f");
  in.operand_layouts = {{0, 1}};
  out.result_layouts = {{0, 1}};
  EXPECT_NE(key_of_target(in), key_of_target(out));
}

TEST(Params, BlocksThatGiveOtherOperandsToOverridesAreOthers) {
  const Type x{DType::f32, {}};
  blocks::BlockParams one, two;
  one.operands = {x};  // and captures the other one
  two.operands = {x, x};
  EXPECT_NE(key_of_block(one), key_of_block(two));
  blocks::BlockParams alive = one, all = one;
  alive.levels = {{3, {true}, true}};
  all.levels = {{3, {true}, false}};
  EXPECT_NE(key_of_block(alive), key_of_block(all));
  all.levels = alive.levels;
  EXPECT_EQ(key_of_block(alive), key_of_block(all));
  all.order = 1;
  EXPECT_NE(key_of_block(alive), key_of_block(all));
}

TEST(Params, DerivativesOfOverridesSayWhoseTheyAre) {
  const ProgramPtr body = std::make_shared<const Program>();
  blocks::OwnParams first{body, body, 0, {0}, {}}, second{body, body, 0, {1}, {}};
  EXPECT_NE(key_of_params(first), key_of_params(second));
}

TEST(Params, StructsWithoutAListAreToldAsThoseWithOne) {
  const ListedParams listed{2, {1, 2}, {3}};
  const std::string text = "axis_=2, start=[1,2], limit=[3]";
  EXPECT_EQ(to_string(*make_params(listed)), text);
  EXPECT_EQ(to_string(*make_params(PlainParams{2, {1, 2}, {3}})), text);
  EXPECT_EQ(to_string(*make_params(NamedPlainParams{2, {1, 2}, {3}})), text);
  struct Local {
    std::int64_t axis_;
    Dims start, limit;
  };
  EXPECT_EQ(to_string(*make_params(Local{2, {1, 2}, {3}})), text);
  EXPECT_EQ(key_of_params(PlainParams{2, {1, 2}, {3}}), key_of_params(listed));
  EXPECT_NE(key_of_params(PlainParams{2, {1}, {2, 3}}), key_of_params(listed));
  EXPECT_EQ(key_of_params(NamedPlainParams{2, {1, 2}, {3}}), key_of_params(listed));
}

TEST(Params, StructsWithoutMembersAreEmpty) {
  EXPECT_EQ(to_string(*make_params(NoParams{})), "");
  EXPECT_EQ(key_of_params(NoParams{}), "");
}

TEST(Params, EachTypeOfMemberIsToldWithoutAList) {
  const EveryParams every{{true, -1, 1LL << 40, ~0ULL, 0.1},
                          {},
                          "v",
                          "l",
                          "t",
                          DType::bf16,
                          {DType::f32, {}, true},
                          {{DType::f32, {2}, false}, {DType::s32, {}, true}},
                          {4, 5},
                          {6},
                          {true, false},
                          {"word", "two words"},
                          {{"n", 1}},
                          std::make_shared<const Program>()};
  const ParamsPtr params = make_params(every), listed = make_params(EveryListedParams{every});
  EXPECT_TRUE(test::has(to_string(*params),
                        "on=true, small=-1, large=1099511627776, natural=18446744073709551615, "
                        "real=0.1, view=v, literal=l, text=t, dtype=bf16, type=f32[]"));
  EXPECT_EQ(to_string(*params), to_string(*listed));
  EXPECT_EQ(key_of_params(every), key_of_params(EveryListedParams{every}));
  EXPECT_EQ(programs_of(*params), std::vector{every.program});
  EveryParams strong = every;
  strong.type.weak = false;
  EXPECT_NE(key_of_params(strong), key_of_params(every));
}

}  // namespace
}  // namespace postern
