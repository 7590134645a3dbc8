// Keys of parameters: different ones have different keys, also where their texts are alike.
#include "core/params.h"

#include "block/block.h"
#include "core/site_spec.h"
#include "support.h"

namespace postern {
using namespace internal;
namespace {

using std::chrono::nanoseconds;

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
  a.timeout = nanoseconds(123456789);
  b.timeout = nanoseconds(123456790);
  EXPECT_NE(key_of_site(a), key_of_site(b));
  b.timeout = a.timeout;
  EXPECT_EQ(key_of_site(a), key_of_site(b));
  b.warn_after = nanoseconds(1);
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

}  // namespace
}  // namespace postern
