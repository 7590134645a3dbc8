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

static std::string parameter_text(const Parameter& p) {
  switch (p.kind) {
    case Parameter::Kind::view: return fmt::format("View<const {}>", to_string(p.dtype));
    case Parameter::Kind::mutable_view: return fmt::format("View<{}>", to_string(p.dtype));
    case Parameter::Kind::number: return fmt::format("a number of {}", to_string(p.dtype));
    default: return "a view of any type";
  }
}

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

/// Refuses a parameter that cannot take the operand or result that it stands for.
static void check_parameter(const SiteSpec& site, const std::string& who, std::size_t number,
                            const Parameter& p, bool is_operand, std::size_t leaf) {
  using Kind = Parameter::Kind;
  const Type& type = is_operand ? site.operands[leaf] : site.made()[leaf];
  const bool writes = p.kind == Kind::mutable_view || p.kind == Kind::any_mutable_view;
  const bool untyped = p.kind == Kind::any_view || p.kind == Kind::any_mutable_view;
  const bool rank_fits = p.kind != Kind::number || type.dims.empty();
  if (writes != is_operand && (untyped || p.dtype == type.dtype) && rank_fits) return;
  const auto& paths = is_operand ? site.trees.operand_paths : site.trees.result_paths;
  std::string path, batched;
  if (leaf < paths.size()) path = paths[leaf];
  if (!site.tap.transforms.empty())
    batched = fmt::format(" (seen after {})", to_string(site.tap.transforms));
  throw_type_error(fmt::format("{}: parameter {} of the function is {}, {} {}{} is {}{}", who,
                               number, parameter_text(p), is_operand ? "operand" : "result", leaf,
                               path, to_string(type), batched));
}

namespace internal {

// Checks in this order: that the function asks for nothing which this kind of site does not give;
// that it leaves device memory alone; that it takes as many leaves as the site has (all operands or
// all results may be one parameter, results count only where they are filled in place); and each
// parameter. Afterwards an invocation may pass its buffers as they are.
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
  std::string to_fill;
  if (in_place) {
    wanted += for_results;
    to_fill = fmt::format(" and {} {} to fill", plural(made.size(), "result"), to_string(made));
  }
  if (site.memory != Memory::host) check_device_memory(site, f, who);
  check(takes.size() == wanted, "{}: the function takes {}, the {} gives {} {}{}", who,
        plural(takes.size(), "parameter"), text_of(site.kind),
        plural(site.operands.size(), "operand"), to_string(site.operands), to_fill);
  for (std::size_t i = 0; i < takes.size(); ++i) {
    if (takes[i].kind == Kind::all_operands || takes[i].kind == Kind::all_results) continue;
    const bool is_operand = i < for_operands;
    check_parameter(site, who, i, takes[i], is_operand, is_operand ? i : i - for_operands);
  }
}

void check_signature(const SiteSpec& site) {
  if (site.function) check_signature(site, *site.function);
}

const std::shared_ptr<const detail::HostFunction>& disabled() {
  static const auto* const function = [] {
    auto nothing = std::make_shared<detail::HostFunction>();
    nothing->parameters.push_back({Parameter::Kind::all_operands, {}});
    nothing->invoke = [](void*, const detail::Firing&) {};
    return new std::shared_ptr<const detail::HostFunction>(std::move(nothing));
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
