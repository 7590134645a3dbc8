// Attributes of a custom call to a SiteSpec.
#include "guest/call_attributes.h"

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "core/lists.h"

namespace postern::internal::guest {

namespace {

struct TextAttribute {
  std::string_view name;
  std::string CallAttributes::*member;
};
constexpr TextAttribute text_attributes[] = {{"function", &CallAttributes::function},
                                             {"name", &CallAttributes::name},
                                             {"file", &CallAttributes::file},
                                             {"kind", &CallAttributes::kind},
                                             {"levels", &CallAttributes::levels},
                                             {"paths", &CallAttributes::paths},
                                             {"transforms", &CallAttributes::transforms},
                                             {"axes", &CallAttributes::axes}};
struct NumberAttribute {
  std::string_view name;
  std::int64_t CallAttributes::*member;
};
constexpr NumberAttribute number_attributes[] = {
    {"line", &CallAttributes::line},    {"timeout", &CallAttributes::timeout},
    {"every", &CallAttributes::every},  {"parallel", &CallAttributes::parallel},
    {"kept", &CallAttributes::kept},    {"meets", &CallAttributes::meets},
    {"leader", &CallAttributes::leader}};

std::vector<std::string> parts_of(std::string_view text, char between) {
  std::vector<std::string> parts;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = std::min(text.find(between, from), text.size());
    parts.emplace_back(text.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

/// Reads one of "3:TF,2:TT": its size, and which operands have its axis.
BatchLevel level_of(std::string_view text, std::size_t operands) {
  BatchLevel level{};
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, level.size);
  bool is_level = error == std::errc() && behind != end && *behind == ':' && level.size >= 0;
  for (const char* c = behind; is_level && ++c != end;) {  // what comes behind the colon
    is_level = *c == 'T' || *c == 'F';
    level.mapped.push_back(*c == 'T');
  }
  check(is_level && level.mapped.size() == operands,
        "a custom call of Postern: '{}' is no batch level of a call with {} operands", text,
        operands);
  return level;
}

std::vector<BatchLevel> levels_of(std::string_view text, std::size_t operands) {
  std::vector<BatchLevel> levels;
  for (const std::string& part : parts_of(text, ',')) levels.push_back(level_of(part, operands));
  return levels;
}

/// Reads one of the lines "2 x".
MeshAxis axis_of(std::string_view text) {
  MeshAxis axis("", 0);
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, axis.size);
  check(error == std::errc() && behind != end && *behind == ' ' && axis.size >= 1,
        "a custom call of Postern: '{}' is no axis of a mesh", text);
  axis.name = std::string(behind + 1, end);
  return axis;
}

/// Returns the type of one invocation's leaf: without the axes of its levels, which stand in front.
Type without_levels(const Type& type, const std::vector<std::int64_t>& sizes) {
  const bool fits =
      type.dims.size() >= sizes.size() && std::equal(sizes.begin(), sizes.end(), type.dims.begin());
  check(fits, "a custom call of Postern: {} has not the axes of its batch levels in front",
        to_string(type));
  return make_type(type.dtype, tail(type.dims, sizes.size()));
}

/// Takes the axes of the levels off: from operands those that map them, from results all.
void strip_levels(const std::vector<BatchLevel>& levels, std::vector<Type>& operands,
                  std::vector<Type>& results) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    std::vector<std::int64_t> sizes;
    for (const BatchLevel& level : levels)
      if (level.mapped[i]) sizes.push_back(level.size);
    operands[i] = without_levels(operands[i], sizes);
  }
  std::vector<std::int64_t> all_sizes;
  for (const BatchLevel& level : levels) all_sizes.push_back(level.size);
  for (Type& result : results) result = without_levels(result, all_sizes);
}

}  // namespace

void CallAttributes::set(std::string_view attribute, const Attribute& value) {
  if (attribute.starts_with(own_prefix)) {
    own.set(std::string(attribute.substr(own_prefix.size())), value);
    return;
  }
  const auto* const text = std::ranges::find(text_attributes, attribute, &TextAttribute::name);
  const auto* const given_text = std::get_if<std::string>(&value);
  if (text != std::end(text_attributes) && given_text) {
    this->*text->member = *given_text;
    return;
  }
  const auto* const number =
      std::ranges::find(number_attributes, attribute, &NumberAttribute::name);
  const auto* const given_number = std::get_if<std::int64_t>(&value);
  check(number != std::end(number_attributes) && given_number,
        "a custom call of Postern has the attribute '{}', which it does not take so", attribute);
  this->*number->member = *given_number;
}

void CallAttributes::require() const {
  check(!function.empty(), "a custom call of Postern names no function");
  check(every >= 1 && timeout >= 0,
        "a custom call of Postern: every must be at least 1, got {}, and timeout at least 0, got "
        "{}",
        every, timeout);
  check(meets >= 0, "a custom call of Postern: meets must be at least 0, got {}", meets);
  check(kind == "call" || kind == "tap" || kind == "async",
        "a custom call of Postern: kind must be call, tap or async, got '{}'", kind);
}

std::string CallAttributes::key() const {
  std::string key = to_string(own) + kinds_of(own);
  for (const TextAttribute& text : text_attributes) key += '\n' + this->*text.member;
  for (const NumberAttribute& number : number_attributes)
    key += fmt::format("\n{}", this->*number.member);
  return key;
}

std::vector<MeshAxis> CallAttributes::mesh_axes() const {
  std::vector<MeshAxis> out;
  for (const std::string& axis : parts_of(axes, '\n')) out.push_back(axis_of(axis));
  return out;
}

std::vector<std::int64_t> CallAttributes::coordinates(std::int64_t position) const {
  const std::vector<MeshAxis> mesh = mesh_axes();
  std::vector<std::int64_t> coordinates(mesh.size());
  std::int64_t rest = position;
  for (std::size_t a = mesh.size(); a-- > 0;) {  // the last axis moves fastest
    coordinates[a] = rest % mesh[a].size;
    rest /= mesh[a].size;
  }
  const bool is_on_mesh = position >= 0 && rest == 0;
  check(is_on_mesh, "a custom call of Postern is at {}, which is not on its mesh", position);
  return coordinates;
}

std::shared_ptr<SiteSpec> spec_of(const CallAttributes& attributes, std::vector<Type> operands,
                                  std::vector<Type> results) {
  if (attributes.on_mesh()) {
    check(!operands.empty() && operands.back() == make_type(DType::u32, {}),
          "a custom call of Postern has axes, and its last operand is no position on a mesh");
    operands.pop_back();
  }
  auto spec = std::make_shared<SiteSpec>();
  spec->kind = attributes.kind == "call" ? SiteSpec::Kind::call : SiteSpec::Kind::tap;
  spec->name = attributes.name.empty() ? attributes.function : attributes.name;
  spec->place = place_in_file(attributes.file, static_cast<std::uint32_t>(attributes.line));
  spec->named = {attributes.function, attributes.own};
  spec->batch.levels = levels_of(attributes.levels, operands.size());
  strip_levels(spec->batch.levels, operands, results);
  spec->operands = std::move(operands);
  spec->results = std::move(results);
  spec->trees.operand_paths = parts_of(attributes.paths, '\n');
  spec->trees.operand_paths.resize(spec->operands.size());
  spec->trees.result_paths.resize(spec->results.size());
  spec->tap.transforms = parts_of(attributes.transforms, ',');
  spec->tap.derivatives = !spec->tap.transforms.empty();
  spec->call.vmap = attributes.parallel ? VmapMethod::parallel : VmapMethod::sequential;
  spec->effect = Effect::unordered;
  spec->call.timeout = std::chrono::nanoseconds(attributes.timeout);
  spec->tap.async = attributes.kind == "async";
  spec->tap.every = attributes.every;
  if (spec->tap.are_counted()) spec->tap.counts = std::make_shared<SiteCounts>();
  return spec;
}

}  // namespace postern::internal::guest
