// Writing and reading sites.
#include "file/site_json.h"

#include <postern/detail/block_core.h>
#include <postern/registry.h>

#include <charconv>

#include "cluster/cluster.h"
#include "core/sharding.h"
#include "core/text.h"
#include "file/described_json.h"
#include "host/process_call.h"
#include "host/residual_store.h"
#include "host/stage.h"
#include "print/print_job.h"
#include "shard/processes.h"
#include "site/residual_store.h"

namespace postern::internal::file {

namespace {

/// Throws TypeError unless a batch fits its operands and its arrays' sizes can be counted.
void check_sizes(const SiteSpec& s) {
  std::int64_t elements = 1;
  for (const BatchLevel& level : s.batch.levels) {
    check(level.size >= 0 && level.mapped.size() == s.operands.size() + s.batch.masked,
          "a batch level does not fit its operands");
    check(!__builtin_mul_overflow(elements, std::max<std::int64_t>(level.size, 1), &elements),
          "a batch has too many elements");
  }
  for (const auto* list : {&s.operands, &s.results, &s.call.later})
    for (const Type& t : *list) {
      std::int64_t bytes = 0;
      check(!__builtin_mul_overflow(static_cast<std::int64_t>(t.byte_size()), elements, &bytes),
            "{} is too large", to_string(t));
    }
}

/// Throws TypeError unless what starts a call gives a handle, and what waits takes one.
void check_role(const SiteSpec& s) {
  using Role = SiteCall::Role;
  const auto is_handle = [](const Type& t) { return t.dtype == DType::u64; };
  check(s.call.role == Role::whole || (!s.is_tap() && s.effect != Effect::pure),
        "a site that starts or waits is no such call");
  check(s.call.role == Role::start || s.call.later.empty(),
        "a site that starts no call has later results");
  if (s.call.role == Role::start)
    check(s.results.empty() || (s.results.size() == 1 && is_handle(s.results[0])),
          "a site that starts a call gives no handle");
  if (s.call.role == Role::wait)
    check(s.named.name.empty() && s.operands.size() == 1 && is_handle(s.operands[0]) &&
              s.operands[0].dims.empty(),
          "a site that waits takes no handle");
}

/// Throws TypeError for fields that are not of one kind of site, or out of range.
void check_kind(const SiteSpec& s) {
  check(s.tap.every > 0 && s.tap.until >= 0 && s.tap.keep_last >= 0 && s.batch.mask_size >= 0,
        "a site's counts are out of range");
  const auto pairs = static_cast<std::size_t>(s.tap.paired);
  const bool is_of_derivatives = s.is_tap() && s.tap.derivatives;
  const bool is_applied = pairs <= s.tap.transforms.size();
  const bool has_halves = pairs < 32 && s.operands.size() % (std::size_t{1} << pairs) == 0;
  check(pairs == 0 || (is_of_derivatives && is_applied && has_halves),
        "a site's leaves are not values and tangents");
  check(s.is_tap() || !s.tap.async, "a call cannot be asynchronous");
  check(!s.is_tap() || s.results.empty(), "a tap has no results of its own");
  check(!s.one_order || s.effect == Effect::ordered, "a site has one order and is not ordered");
  check(s.memory != Memory::device_recorded || (!s.is_tap() && s.effect == Effect::pure),
        "a site's work is recorded and it is no pure call");
  check(s.is_tap() || s.tap.options.items().empty(), "a call has options of a tap");
}

/// Throws TypeError unless what the operands are parts of lies on the site's own mesh.
void check_parts(const SiteShard& s) {
  check(!s.partitioned || (s.over_processes && s.over_processes->mesh() == s.partitioned->mesh()) ||
            (s.mesh && *s.mesh == s.partitioned->mesh()),
        "a site's parts are not on its mesh");
  if (!s.spec) return;
  check(s.mesh != nullptr, "a site's parts are not on its mesh");
  const Sharding part(*s.mesh, *s.spec);
  for (std::int64_t i = 0; i < s.mesh->size(); ++i) index_ranges(part, s.global_dims, i);
}

/// Throws TypeError unless the operand can lie over processes as is told: nothing else looks at it.
void check_over(const SiteShard& s) {
  if (!s.over_processes) return;
  const Mesh& mesh = s.over_processes->mesh();
  check(spans_processes(mesh) && (!s.mesh || s.mesh->size() <= mesh.size()),
        "a site lies over no processes");
  s.over_processes->part_type(make_type(DType::u8, s.process_dims));
}

/// Gives a site that the library or a print serves its function, and refuses what does not fit it.
void give_function(SiteSpec& s, const Json& print) {
  s.function = host::residual_function(s.named.name);
  if (s.function) check_residual_site(s);
  if (s.named.name == process_call) {
    s.function = host::process_function(s.named.attributes);
    host::check_process_site(s);
  }
  if (s.tap.live && s.named.name.empty()) s.function = disabled();
  if (print.is_null()) return;
  check(s.is_tap() && s.named.name.empty(), "a site is a print and not a tap");
  s.function = print_from(print, s.operands);
}

}  // namespace

Json written(const Attributes& attributes) {
  Json out = Json::object();
  for (const auto& [name, value] : attributes.items()) out[name] = written(value);
  return out;
}
Attributes attributes_from(const Json& json) {
  Attributes out;
  for (const auto& [name, value] : json.items()) {
    Attribute attribute;
    read(value, attribute);
    out.set(name, std::move(attribute));
  }
  return out;
}

std::string number_text(double value) { return fmt::format("{}", value); }
double number_from(const std::string& text) {
  std::size_t size = 0;
  const double value = parse_number(text, &size);
  check(!text.empty() && size == text.size(), "'{}' is no number", text);
  return value;
}

Type parse_type(std::string_view text) {
  const auto open = text.find('[');
  check(open != std::string_view::npos && text.back() == ']', "'{}' is no type", text);
  DType dtype{};
  check(detail::read_dtype(text.substr(0, open), dtype) && dtype != DType::token,
        "'{}' is no type: it has no dtype that holds data", text);
  Dims dims;
  const char *at = text.data() + open + 1, *const end = text.data() + text.size() - 1;
  while (at < end) {
    std::int64_t extent = -1;
    const auto [next, error] = std::from_chars(at, end, extent);
    check(error == std::errc() && extent >= 0 && (next == end || *next == ','), "'{}' is no type",
          text);
    dims.push_back(extent);
    at = next == end ? end : next + 1;
    check(next == end || at < end, "'{}' is no type", text);
  }
  Type type = make_type(dtype, std::move(dims));
  static_cast<void>(type.size());
  check(type.size() <= (std::int64_t{1} << 56), "'{}' is too large", text);
  return type;
}

Json to_json(const SiteSpec& s) {
  Json json = written_fields(s);
  if (const host::PrintJob* job = host::print_job_of(s.function.get()))
    json["print"] = to_json(*job);
  return json;
}

SiteSpec site_from(const Json& from) {
  Json json = from, print;
  if (json.is_object() && json.contains("print")) {
    print = std::move(json["print"]);
    json.erase("print");
  }
  SiteSpec s;
  read_fields(json, "a site", s);
  check(!s.tap.live || s.kind == SiteSpec::Kind::hook, "a site is live and no hook");
  check(!s.named.name.empty() || !print.is_null() || !s.enters() || s.tap.live,
        "a site names no function");
  check_role(s);
  check_kind(s);
  host::check_stage_options(s.tap.options);
  if (s.tap.are_counted()) s.tap.counts = std::make_shared<SiteCounts>();
  s.from_file = true;
  check_sizes(s);
  give_function(s, print);
  check_parts(s.shard);
  check(s.tap.process >= -1, "a site is shown on no process");
  if (s.tap.process >= 0) clusters::Cluster::get();  // joins it now, or throws
  check_over(s.shard);
  return s;
}

Json written(const Place& v) { return {{"file", v.file}, {"line", v.line}}; }
void read(const Json& json, Place& v) {
  v = place_in_file(json.at("file").get<std::string>(), exactly<std::uint32_t>(json.at("line")));
}

void read(const Json& json, std::chrono::nanoseconds& v) {
  v = std::chrono::nanoseconds(exactly<std::int64_t>(json));
  check(v.count() >= 0, "a time limit is negative");
}

std::string text_of(const Json& json, std::string_view what) {
  try {
    return json.dump();
  } catch (const Json::exception& e) {
    throw_type_error(fmt::format("{} is no UTF-8 text: {}", what, e.what()));
  }
}

}  // namespace postern::internal::file

namespace postern {
using namespace internal;

std::string to_json_text(const Attributes& attributes, Place place) {
  PlaceScope at(place);
  if (attributes.items().empty()) return "{}";
  return file::text_of(file::written(attributes), "an attribute");
}

}  // namespace postern
