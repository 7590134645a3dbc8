// Sites: whether a function can take what a site gives.
#include "core/site_spec.h"

#include <algorithm>

#include "core/check.h"
#include "core/value.h"

namespace postern {
using namespace internal;

using detail::Parameter;

std::string to_string(const Transforms& transforms) {
  return fmt::format("{}", fmt::join(transforms, ","));
}

namespace {

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
  check(std::ranges::none_of(site.operands, is_packed, &Type::dtype) &&
            std::ranges::none_of(site.made(), is_packed, &Type::dtype),
        "{}: on a GPU elements of less than a byte are packed, several a byte; with Memory::device "
        "convert them first",
        who);
}

namespace internal {

// Whether the function `f` can serve the site, so that firing it need not ask. Checks in this
// order: that it asks for nothing which this kind of site does not give; that it leaves device
// memory alone; that it takes as many leaves as the site has (all operands or all results may be
// one parameter, results count only where they are filled in place); and the dtype, rank and
// direction of each. Afterwards an invocation may pass its buffers as they are. Throws a TypeError
// at the site's place that names the site, the parameter and the leaf.
void check_signature(const SiteSpec& site, const detail::HostFunction& f) {
  using Kind = Parameter::Kind;
  PlaceScope::Replace at(site.place);
  const std::string who = fmt::format("{} '{}'", word_of(site.kind), site.name);
  check(site.is_tap() || !f.wants_tap_info,
        "{}: the function takes a TapInfo, which only taps, hooks and prints give; take a CallInfo",
        who);
  check(!f.wants_attributes || !site.named.name.empty(),
        "{}: the function takes Attributes, which only functions called by name are given", who);
  const std::vector<Parameter>& takes = f.parameters;
  const std::vector<Type>& made = site.made();
  const bool all_in = !takes.empty() && takes.front().kind == Kind::all_operands;
  const bool all_out = !takes.empty() && takes.back().kind == Kind::all_results;
  const bool for_any_site = all_in && all_out && takes.size() == 2;
  const bool in_place = !f.by_value && (!site.is_tap() || for_any_site);
  std::size_t for_operands = site.operands.size(), for_results = made.size();
  if (all_in) for_operands = 1;
  if (all_out) for_results = 1;
  std::size_t wanted = for_operands;
  std::string to_fill, batched;
  if (in_place) {
    wanted += for_results;
    to_fill = fmt::format(" and {} {} to fill", plural(made.size(), "result"), to_string(made));
  }
  if (site.memory != Memory::host) check_device_memory(site, f, who);
  check(takes.size() == wanted, "{}: the function takes {}, the {} gives {} {}{}", who,
        plural(takes.size(), "parameter"), text_of(site.kind),
        plural(site.operands.size(), "operand"), to_string(site.operands), to_fill);
  if (!site.tap.transforms.empty())
    batched = fmt::format(" (seen after {})", postern::to_string(site.tap.transforms));
  for (std::size_t i = 0; i < takes.size(); ++i) {
    const Parameter& p = takes[i];
    if (p.kind == Kind::all_operands || p.kind == Kind::all_results) continue;
    const bool is_operand = i < for_operands;
    const std::size_t leaf = is_operand ? i : i - for_operands;
    const Type& type = is_operand ? site.operands[leaf] : made[leaf];
    const std::vector<std::string>& paths =
        is_operand ? site.trees.operand_paths : site.trees.result_paths;
    std::string path;
    if (leaf < paths.size()) path = paths[leaf];
    const bool writes = p.kind == Kind::mutable_view || p.kind == Kind::any_mutable_view;
    const bool untyped = p.kind == Kind::any_view || p.kind == Kind::any_mutable_view;
    const bool fits = writes != is_operand && (untyped || p.dtype == type.dtype) &&
                      (p.kind != Kind::number || type.dims.empty());
    check(fits, "{}: parameter {} of the function is {}, {} {}{} is {}{}", who, i,
          parameter_text(p), is_operand ? "operand" : "result", leaf, path, to_string(type),
          batched);
  }
}

void check_signature(const SiteSpec& site) {
  if (site.function) check_signature(site, *site.function);
}

const std::shared_ptr<const detail::HostFunction>& disabled() {
  static const auto* const function = [] {
    auto f = std::make_shared<detail::HostFunction>();
    f->parameters.push_back({Parameter::Kind::all_operands, {}});
    f->invoke = [](void*, const detail::Firing&) {};
    return new std::shared_ptr<const detail::HostFunction>(std::move(f));
  }();
  return *function;
}

ParamsPtr params_of_own(SiteSpec site) {
  if (site.tap.are_counted()) site.tap.counts = std::make_shared<SiteCounts>();
  if (site.tap.live) site.tap.live = std::make_shared<Switch>();
  return make_params(SiteParams{std::make_shared<const SiteSpec>(std::move(site))});
}

}  // namespace internal

}  // namespace postern
