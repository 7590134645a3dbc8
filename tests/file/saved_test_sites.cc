// Sites, prints and blocks as JSON: every field comes back.
#include "core/site_spec.h"
#include "file/block_json.h"
#include "file/described_json.h"
#include "print/print_job.h"
#include "support.h"

#include <set>
#include <sstream>

namespace postern::test {
using namespace internal;
namespace {

const Mesh mesh({{"x", 2}}, {0, 1});

/// A call and a tap; between them every field has a value that is not its default.
SiteSpec a_call() {
  SiteSpec s;
  s.name = "a \"call\"";
  s.place = {"here.cc", "", 7};
  s.named = {"some.function", {}};
  s.named.attributes.set("factor", 2.5);
  s.operands = {make_type(DType::f32, {4})};
  s.results = {make_type(DType::s8, {2, 3}), make_type(DType::f64, {})};
  s.trees.operand_structure = "*";
  s.trees.result_structure = "(*,*,)";
  s.trees.operand_paths = {".x"};
  s.trees.result_paths = {".a", ".b, c"};
  s.effect = Effect::ordered;
  s.call.timeout = std::chrono::nanoseconds(123'456'789);
  s.call.warn_after = std::chrono::seconds(3);
  s.call.vmap = VmapMethod::expand_dims;
  s.call.device = 3;
  s.memory = Memory::device;
  s.one_order = true;
  s.batch.levels = {{5, {true, false}}, {2, {false, true}}};
  s.batch.masked = true;
  s.batch.mask_size = 10;
  return s;
}

SiteSpec a_start() {
  SiteSpec s;
  s.name = "a start";
  s.named = {"some.function", {}};
  s.call.role = SiteCall::Role::start;
  s.effect = Effect::unordered;
  s.operands = {make_type(DType::f32, {4})};
  s.results = {make_type(DType::u64, {})};
  s.call.later = {make_type(DType::f32, {2})};
  return s;
}

SiteSpec a_tap() {
  SiteSpec s;
  s.kind = SiteSpec::Kind::hook;
  s.name = "a hook";
  s.named = {"some.listener", {}};
  s.operands = {make_type(DType::f32, {2, 3}), make_type(DType::f32, {2, 3})};
  s.shard.mesh = std::make_shared<const Mesh>(mesh);
  s.shard.partitioned = Sharding(mesh, P("x"));
  s.shard.spec = P("x");
  s.shard.global_dims = {4, 3};
  s.shard.over_processes =
      Sharding(Mesh({{"host", processes(2)}, {"x", 2}}), P(AxisNames{"host", "x"}));
  s.shard.process_dims = {8, 3};
  s.tap.process = 1;
  s.tap.transforms = {"vmap", "jvp"};
  s.tap.async = s.tap.derivatives = s.tap.recomputed = true;
  s.tap.paired = 1;
  s.tap.every = 3;
  s.tap.until = 17;
  s.tap.keep_last = 5;
  s.tap.options.set("interval", std::int64_t{1'000'000});
  s.tap.live = std::make_shared<Switch>();
  return s;
}

template <class S, class F>
void for_each_kept(F&& f) {
  for_each_field<S>([&](const auto& field) {
    if constexpr (std::decay_t<decltype(field)>::kept) f(field);
  });
}

TEST(SavedSites, EveryFieldOfASiteComesBack) {
  std::set<std::string> changed;
  for (const SiteSpec& site : {a_call(), a_start(), a_tap()}) {
    const SiteSpec back = file::site_from(file::to_json(site)), plain;
    for_each_kept<SiteSpec>([&](const auto& f) {
      EXPECT_EQ(file::written(f.of(back)), file::written(f.of(site))) << f.name;
      if (file::written(f.of(site)) != file::written(f.of(plain))) changed.insert(f.name);
    });
    EXPECT_TRUE(back.from_file);
    EXPECT_EQ(back.tap.are_counted(), back.tap.counts != nullptr);
    EXPECT_EQ(file::to_json(back), file::to_json(site));
  }
  for_each_kept<SiteSpec>([&](const auto& f) {
    EXPECT_TRUE(changed.contains(f.name)) << f.name << " has its default here: change it";
  });
}

TEST(SavedSites, EveryKindComesBack) {
  for (const std::string word : words_of<SiteSpec::Kind>()) {
    file::Json json = file::to_json(word == "call" ? a_call() : a_tap());
    json["kind"] = word;
    if (word != "hook") {
      if (word != "call") {
        EXPECT_THROW(file::site_from(json), TypeError) << "only hooks are live";
      }
      json.erase("live");
    }
    const SiteSpec back = file::site_from(json);
    EXPECT_EQ(back.is_tap(), word != "call") << word;
    EXPECT_EQ(file::to_json(back), json) << word;
  }
}

TEST(SavedSites, AFieldThatIsMissingOrUnknownIsRefused) {
  const file::Json json = file::to_json(a_call());
  for (const auto& [name, value] : json.items()) {
    file::Json less = json;
    less.erase(name);
    EXPECT_THROW(file::site_from(less), TypeError) << name;
  }
  file::Json more = json;
  more["of another version"] = 1;
  EXPECT_THROW(file::site_from(more), TypeError);
}

TEST(SavedSites, RolesThatDoNotFitAreRefused) {
  RecordProperty("covers", "OVERLAP-11");
  const file::Json start = file::to_json(a_start());
  const auto refused = [](file::Json json, const char* name, const file::Json& value) {
    json[name] = value;
    EXPECT_THROW(file::site_from(json), TypeError) << name << " = " << value;
  };
  refused(start, "role", "begin");
  refused(start, "role", "whole");  // has later results
  refused(start, "role", "wait");   // has a function
  refused(start, "results", {"f32[]"});
  refused(start, "results", {"u64[]", "u64[]"});
  refused(start, "effect", "pure");
  refused(start, "function", {{"name", ""}, {"attributes", file::Json::object()}});
}

TEST(SavedSites, LeavesThatAreNoPairsAreRefused) {
  SiteSpec odd = a_tap(), negative = a_tap(), bare = a_tap(), twice = a_tap(), values = a_tap();
  odd.operands.pop_back();
  negative.tap.paired = -1;
  bare.tap.transforms.clear();
  twice.tap.paired = 2;
  values.tap.derivatives = false;
  for (const SiteSpec& site : {odd, negative, bare, twice, values})
    EXPECT_THROW(file::site_from(file::to_json(site)), TypeError);
}

TEST(SavedSites, SitesThatDifferInAnyFieldHaveOtherKeys) {
  auto key = [](const SiteSpec& s) {
    std::string out;
    append_key(out, *make_params(SiteParams{std::make_shared<const SiteSpec>(s)}));
    return out;
  };
  const SiteSpec plain;
  for (const SiteSpec& site : {a_call(), a_start(), a_tap()}) {
    for_each_kept<SiteSpec>([&](const auto& f) {
      if (file::written(f.of(site)) == file::written(f.of(plain))) return;
      SiteSpec one;
      f.of(one) = f.of(site);
      EXPECT_NE(key(one), key(plain)) << f.name;
    });
  }
}

TEST(SavedSites, EveryOptionOfAPrintComesBack) {
  PrintOptions o;
  o.stream = &std::cerr;
  o.label = "a label";
  o.precision = 3;
  o.threshold = 7;
  o.edge_items = 2;
  o.suppress = o.show_device = true;
  o.device = 1;
  o.header = {{"key", "value"}};
  const file::Json written = file::written_fields(o), plain = file::written_fields(PrintOptions{});
  for (const auto& [name, value] : written.items())
    EXPECT_NE(value, plain.at(name)) << name << " has its default here: change it";
  PrintOptions back;
  file::read_fields(written, "a print", back);
  EXPECT_EQ(file::written_fields(back), written);
}

TEST(SavedSites, PrintsAreWrittenAsTheyWere) {
  using Kind = detail::PrintNode::Kind;
  detail::PrintNode leaf, count, share, both;
  count.kind = share.kind = Kind::text;
  count.known = std::int64_t{0};
  share.known = 0.1;
  both.kind = Kind::named;
  both.parts = {leaf, count};
  both.names = {"a", "b"};
  host::PrintJob job;
  job.pieces = {{"x = ", 0, "", "{x}"}, {}};
  job.values = {{"x", both}, {"", share}};
  const file::Json json = file::to_json(job);
  file::Json rest = json;
  rest.erase("options");
  EXPECT_EQ(rest.dump(),
            R"({"whole":false,"pieces":[{"text":"x = ","value":0,"spec":"","placeholder":"{x}"},)"
            R"({"text":"","value":-1,"spec":"","placeholder":""}],"values":[{"name":"x","value":)"
            R"({"kind":"named","names":["a","b"],"parts":[{"kind":"leaf"},{"kind":"text","known":)"
            R"({"int64":0}}]}},{"name":"","value":{"kind":"text","known":{"double":"0.1"}}}]})");
  const auto back = file::print_from(json, std::vector{make_type(DType::f32, {})});
  EXPECT_EQ(file::to_json(*host::print_job_of(back.get())), json);
}

TEST(SavedSites, PrintsThatAreNestedTooDeepAreRefused) {
  file::Json json = file::to_json(host::PrintJob{});
  file::Json value = {{"kind", "tuple"}};
  for (int i = 0; i < 200; ++i) value = {{"kind", "tuple"}, {"parts", file::Json::array({value})}};
  json["values"].push_back({{"name", ""}, {"value", value}});
  EXPECT_THROW(file::print_from(json, {}), TypeError);
}

TEST(SavedSites, BlocksAreWrittenAsTheyWere) {
  const std::string text =
      R"({"name":"a.block","attributes":{"full":{"bool":true}},"operands":["f32[2]"],)"
      R"("results":["f32[]"],"levels":[{"size":3,"mapped":[true],"masked":false}],)"
      R"("function":"f","inputs":["f32[3,2]"],"outputs":["f32[3]"],"begin":5,"end":70})";
  const file::Json json = file::Json::parse(text);
  const file::SavedBlock back = file::block_from(json);
  blocks::BlockParams params = back.params;
  params.config = std::make_shared<const detail::BlockConfig>(
      detail::BlockConfig{nullptr, back.config.name, back.config.attributes, nullptr});
  Module::Kept kept = back.function;
  kept.params = make_params(std::move(params));
  EXPECT_EQ(file::to_json(kept).dump(), text);
  for (const auto& [name, value] : json.items()) {
    file::Json less = json;
    less.erase(name);
    EXPECT_THROW(file::block_from(less), TypeError) << name;
  }
  file::Json more = json;
  more["of another version"] = 1;
  EXPECT_THROW(file::block_from(more), TypeError);
}

}  // namespace
}  // namespace postern::test
