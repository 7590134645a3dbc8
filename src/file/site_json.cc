// Writing and reading sites. Numbers of attributes are written as text, which keeps infinities and every bit.
#include "file/site_json.h"

#include <postern/detail/block_core.h>

#include <charconv>
#include <mutex>
#include <set>

#include "print/print_job.h"

namespace postern::file {

namespace {

constexpr const char* effects[] = {"pure", "unordered", "ordered"};
constexpr const char* memories[] = {"host", "device"};
constexpr const char* methods[] = {"sequential", "parallel", "expand_dims", "broadcast_all"};
constexpr const char* words[] = {"call", "tap", "hook", "print"};
constexpr const char* kinds[] = {"bool", "int64", "double", "string", "bools", "int64s", "doubles", "strings"};

Json to_json(const Attribute& attribute) {
  const Json kind = kinds[attribute.index()];
  return std::visit(
      [&](const auto& v) -> Json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, double>) {
          return {{kind, number_text(v)}};
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          Json list = Json::array();
          for (const double d : v) list.push_back(number_text(d));
          return {{kind, list}};
        } else {
          return {{kind, v}};
        }
      },
      attribute);
}

Attribute attribute_from(const Json& json) {
  check(json.is_object() && json.size() == 1, "an attribute must be one value with its kind");
  const Json& v = json.front();
  switch (index_of("kind of attribute", kinds, json.begin().key())) {
    case 0: return v.get<bool>();
    case 1: return v.get<std::int64_t>();
    case 2: return number_from(v.get<std::string>());
    case 3: return v.get<std::string>();
    case 4: return v.get<std::vector<bool>>();
    case 5: return v.get<std::vector<std::int64_t>>();
    case 6: {
      std::vector<double> out;
      for (const Json& d : v) out.push_back(number_from(d.get<std::string>()));
      return out;
    }
    default: return v.get<std::vector<std::string>>();
  }
}

/// Of which one firing may be made: not so large that sizes overflow.
void check_sizes(const SiteSpec& s) {
  std::int64_t elements = 1;
  for (const BatchLevel& level : s.levels) {
    check(level.size >= 0 && level.mapped.size() == s.operands.size() + s.masked, "a batch level does not fit its operands");
    check(!__builtin_mul_overflow(elements, std::max<std::int64_t>(level.size, 1), &elements), "a batch has too many elements");
  }
  for (const auto* list : {&s.operands, &s.results})
    for (const Type& t : *list) {
      std::int64_t bytes = 0;
      check(!__builtin_mul_overflow(static_cast<std::int64_t>(t.byte_size()), elements, &bytes), "{} is too large", to_string(t));
    }
}

}  // namespace

Json to_json(const std::vector<Type>& types) {
  Json out = Json::array();
  for (const Type& t : types) out.push_back(to_string(t));
  return out;
}
std::vector<Type> types_from(const Json& json) {
  std::vector<Type> out;
  for (const Json& t : json) out.push_back(parse_type(t.get<std::string>()));
  return out;
}

Json to_json(const Attributes& attributes) {
  Json out = Json::object();
  for (const auto& [name, value] : attributes.items()) out[name] = to_json(value);
  return out;
}
Attributes attributes_from(const Json& json) {
  Attributes out;
  for (const auto& [name, value] : json.items()) out.set(name, attribute_from(value));
  return out;
}

std::string number_text(double value) { return fmt::format("{}", value); }
double number_from(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  check(!text.empty() && *end == '\0', "'{}' is no number", text);
  return value;
}

Type parse_type(std::string_view text) {
  const auto open = text.find('[');
  check(open != std::string_view::npos && text.back() == ']', "'{}' is no type", text);
  DType dtype{};
  check(detail::read_dtype(text.substr(0, open), dtype) && dtype != DType::token, "'{}' is no type: it has no dtype that holds data", text);
  Dims dims;
  const char *at = text.data() + open + 1, *const end = text.data() + text.size() - 1;
  while (at < end) {
    std::int64_t extent = -1;
    const auto [next, error] = std::from_chars(at, end, extent);
    check(error == std::errc() && extent >= 0 && (next == end || *next == ','), "'{}' is no type", text);
    dims.push_back(extent);
    at = next == end ? end : next + 1;
    check(next == end || at < end, "'{}' is no type", text);
  }
  Type type = make_type(dtype, std::move(dims));
  static_cast<void>(type.size());
  check(type.size() <= (std::int64_t{1} << 56), "'{}' is too large", text);
  return type;
}

std::string attributes_text(const Attributes& attributes) { return attributes.items().empty() ? "{}" : to_json(attributes).dump(); }

Json to_json(const SiteSpec& s) {
  Json json = {{"kind", s.word},
               {"name", s.name},
               {"file", s.place.file},
               {"line", s.place.line},
               {"function", s.named.name},
               {"attributes", to_json(s.named.attributes)},
               {"operands", to_json(s.operands)},
               {"results", to_json(s.results)},
               {"operand_structure", s.operand_structure},
               {"result_structure", s.result_structure},
               {"operand_paths", s.operand_paths},
               {"result_paths", s.result_paths},
               {"effect", effects[static_cast<int>(s.effect)]},
               {"timeout_ns", s.timeout.count()},
               {"warn_after_ns", s.warn_after.count()},
               {"vmap", methods[static_cast<int>(s.vmap)]},
               {"levels", Json::array()},
               {"masked", s.masked},
               {"mask_size", s.mask_size},
               {"transforms", s.transforms},
               {"async", s.async},
               {"derivatives", s.derivatives},
               {"recomputed", s.recomputed},
               {"every", s.every},
               {"keep_last", s.keep_last}};
  if (s.memory != Memory::host) json["memory"] = memories[static_cast<int>(s.memory)];
  for (const BatchLevel& level : s.levels) json["levels"].push_back({{"size", level.size}, {"mapped", level.mapped}});
  if (const host::PrintJob* job = host::print_job_of(s.function.get())) json["print"] = to_json(*job);
  if (s.device >= 0) json["device"] = s.device;
  if (s.one_order) json["one_order"] = true;
  if (s.mesh) json["mesh"] = to_json(*s.mesh);
  if (s.partitioned) json["partitioned"] = to_json(*s.partitioned);
  if (s.cut) json["part"] = to_json(Sharding(*s.mesh, *s.cut)), json["whole"] = s.whole;
  return json;
}

SiteSpec site_from(const Json& json) {
  SiteSpec s;
  s.word = words[index_of("kind of site", words, json.at("kind").get<std::string>())];
  s.kind = std::string_view(s.word) == "call" ? SiteSpec::Kind::call : SiteSpec::Kind::tap;
  s.name = json.at("name").get<std::string>();
  s.place = place_in_file(json.at("file").get<std::string>(), json.at("line").get<std::uint32_t>());
  s.named.name = json.at("function").get<std::string>();
  check(!s.named.name.empty() || json.contains("print"), "a site names no function");
  s.named.attributes = attributes_from(json.at("attributes"));
  s.operands = types_from(json.at("operands"));
  s.results = types_from(json.at("results"));
  s.operand_structure = json.at("operand_structure").get<std::string>();
  s.result_structure = json.at("result_structure").get<std::string>();
  s.operand_paths = json.at("operand_paths").get<std::vector<std::string>>();
  s.result_paths = json.at("result_paths").get<std::vector<std::string>>();
  s.effect = static_cast<Effect>(index_of("effect", effects, json.at("effect").get<std::string>()));
  s.timeout = std::chrono::nanoseconds(json.at("timeout_ns").get<std::int64_t>());
  s.warn_after = std::chrono::nanoseconds(json.at("warn_after_ns").get<std::int64_t>());
  check(s.timeout.count() >= 0 && s.warn_after.count() >= 0, "a time limit is negative");
  s.vmap = static_cast<VmapMethod>(index_of("vmap method", methods, json.at("vmap").get<std::string>()));
  s.masked = json.at("masked").get<bool>();
  s.mask_size = json.at("mask_size").get<std::int64_t>();
  for (const Json& level : json.at("levels"))
    s.levels.push_back({level.at("size").get<std::int64_t>(), level.at("mapped").get<std::vector<bool>>()});
  s.transforms = json.at("transforms").get<Transforms>();
  s.async = json.at("async").get<bool>();
  s.derivatives = json.at("derivatives").get<bool>();
  s.recomputed = json.at("recomputed").get<bool>();
  s.every = json.at("every").get<std::int64_t>();
  s.keep_last = json.at("keep_last").get<std::int64_t>();
  s.memory = static_cast<Memory>(index_of("memory", memories, json.value("memory", std::string("host"))));
  check(s.every > 0 && s.keep_last >= 0 && s.mask_size >= 0, "a site's counts are out of range");
  check(s.kind == SiteSpec::Kind::tap || !s.async, "a call cannot be asynchronous");
  check(s.kind == SiteSpec::Kind::call || s.results.empty(), "a tap has no results of its own");
  if (s.every != 1 || s.keep_last) s.counts = std::make_shared<SiteCounts>();
  s.from_file = true;
  check_sizes(s);
  if (json.contains("print")) {
    check(s.kind == SiteSpec::Kind::tap && s.named.name.empty(), "a site is a print and not a tap");
    s.function = print_from(json["print"], s.operands);
  }
  if (json.contains("device")) s.device = json["device"].get<int>();
  s.one_order = json.value("one_order", false);
  check(!s.one_order || s.effect == Effect::ordered, "a site has one order and is not ordered");
  if (json.contains("mesh")) s.mesh = std::make_shared<const Mesh>(mesh_from(json["mesh"]));
  if (json.contains("partitioned")) s.partitioned = sharding_from(json["partitioned"]);
  check(!s.partitioned || (s.mesh && *s.mesh == s.partitioned->mesh()), "a site's parts are not on its mesh");
  if (json.contains("part")) {
    const Sharding part = sharding_from(json["part"]);
    check(s.mesh && *s.mesh == part.mesh(), "a site's parts are not on its mesh");
    s.cut = part.spec();
    s.whole = json.at("whole").get<Dims>();
    for (std::int64_t i = 0; i < s.mesh->size(); ++i) part.part(s.whole, i);
  }
  return s;
}

}  // namespace postern::file
