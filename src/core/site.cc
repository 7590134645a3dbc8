// Sites: whether a function can take what a site gives.
#include "core/site.h"

#include <algorithm>

#include "core/check.h"
#include "core/text.h"

namespace postern {

using detail::Parameter;

std::string to_string(const Transforms& transforms) {
  return fmt::format("{}", fmt::join(transforms, ","));
}

std::string text_of(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& item : list) out += (out.empty() ? "" : ",") + word_or_quoted(item);
  return out;
}

namespace {

bool is_packed(const Type& type) { return bit_width(type.dtype) < 8; }

std::string parameter_text(const Parameter& p) {
  switch (p.kind) {
    case Parameter::Kind::view: return fmt::format("View<const {}>", to_string(p.dtype));
    case Parameter::Kind::mutable_view: return fmt::format("View<{}>", to_string(p.dtype));
    case Parameter::Kind::number: return fmt::format("a number of {}", to_string(p.dtype));
    default: return "a view of any type";
  }
}

}  // namespace

/// With Memory::device a function is given addresses that only a GPU may be able to read.
static void check_device_memory(const SiteSpec& site, const detail::HostFunction& f,
                                const std::string& who) {
  const bool takes_numbers = std::ranges::any_of(
      f.parameters, [](const Parameter& p) { return p.kind == Parameter::Kind::number; });
  check(!f.by_value && !takes_numbers,
        "{}: with Memory::device the function must take views and fill its results in place; what "
        "it is given may be a GPU's memory",
        who);
  check(std::ranges::none_of(site.operands, is_packed) &&
            std::ranges::none_of(site.made(), is_packed),
        "{}: on a GPU elements of less than a byte are packed, several a byte; with Memory::device "
        "convert them first",
        who);
}

// Whether the function `f` can serve the site, so that firing it need not ask. Checks in this
// order: that it asks for nothing which this kind of site does not give; that it leaves device
// memory alone; that it takes as many leaves as the site has (all operands or all results may be
// one parameter, results count only where they are filled in place); and the dtype, rank and
// direction of each. Afterwards a firing may pass its buffers as they are. Throws a TypeError at
// the site's place that names the site, the parameter and the leaf.
void check_signature(const SiteSpec& site, const detail::HostFunction& f) {
  using Kind = Parameter::Kind;
  PlaceScope::Replace at(site.place);
  const std::string who = fmt::format("{} '{}'", site.word, site.name);
  check(site.kind == SiteSpec::Kind::tap || !f.wants_tap_info,
        "{}: the function takes a TapInfo, which only taps, hooks and prints give; take a CallInfo",
        who);
  check(!f.wants_attributes || !site.named.name.empty(),
        "{}: the function takes Attributes, which only functions called by name are given", who);
  const std::vector<Parameter>& takes = f.parameters;
  const std::vector<Type>& made = site.made();
  const bool all_in = !takes.empty() && takes.front().kind == Kind::all_operands;
  const bool all_out = !takes.empty() && takes.back().kind == Kind::all_results;
  const bool any_site =
      all_in && all_out && takes.size() == 2;  // operands and results as they come
  const bool in_place = !f.by_value && (site.kind == SiteSpec::Kind::call || any_site);
  const std::size_t for_operands = all_in ? 1 : site.operands.size();
  std::size_t wanted = for_operands;
  if (in_place) wanted += all_out ? 1 : made.size();
  if (site.memory == Memory::device) check_device_memory(site, f, who);
  check(takes.size() == wanted, "{}: the function takes {} leaves, the {} gives {} operands {}{}",
        who, takes.size(), site.kind == SiteSpec::Kind::tap ? "tap" : "call", site.operands.size(),
        to_string(site.operands),
        in_place ? fmt::format(" and {} results {} to fill", made.size(), to_string(made)) : "");
  const std::string batched =
      site.transforms.empty() ? "" : fmt::format(" (seen after {})", to_string(site.transforms));
  for (std::size_t i = 0; i < takes.size(); ++i) {
    const Parameter& p = takes[i];
    if (p.kind == Kind::all_operands || p.kind == Kind::all_results) continue;
    const bool is_operand = i < for_operands;
    const std::size_t leaf = is_operand ? i : i - for_operands;
    const Type& type = is_operand ? site.operands[leaf] : made[leaf];
    const auto& paths = is_operand ? site.operand_paths : site.result_paths;
    const std::string path = leaf < paths.size() ? paths[leaf] : "";
    const bool writes = p.kind == Kind::mutable_view || p.kind == Kind::any_mutable_view;
    const bool untyped = p.kind == Kind::any_view || p.kind == Kind::any_mutable_view;
    check(writes != is_operand && (untyped || p.dtype == type.dtype) &&
              (p.kind != Kind::number || type.dims.empty()),
          "{}: parameter {} of the function is {}, {} {}{} is {}{}", who, i, parameter_text(p),
          is_operand ? "operand" : "result", leaf, path, to_string(type), batched);
  }
}

void check_signature(const SiteSpec& site) {
  if (site.function) check_signature(site, *site.function);
}

}  // namespace postern
