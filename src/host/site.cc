// Preparing sites, and checking that a function can take what a site gives.
#include "host/site.h"

#include <algorithm>

#include "core/check.h"
#include "host/run_state.h"

namespace postern {

void SiteSpec::fields(FieldSink& sink) const {
  static constexpr const char* effects[] = {"pure", "unordered", "ordered"};
  static constexpr const char* methods[] = {"sequential", "parallel", "expand_dims", "broadcast_all"};
  sink("name", name);
  if (kind != Kind::call) sink("kind", word);
  sink("effect", effects[static_cast<int>(effect)]);
  if (kind == Kind::call) sink("results", result_structure + to_string(results));
  if (!named.name.empty()) sink("function", named.name), sink("attributes", named.attributes);
  if (timeout.count()) sink("timeout_ms", fmt::format("{:g}", std::chrono::duration<double, std::milli>(timeout).count()));
  if (vmap != VmapMethod::sequential) sink("vmap", methods[static_cast<int>(vmap)]);
  for (const BatchLevel& level : levels) sink("batch", fmt::format("{}", level.size)), sink("mapped", level.mapped);
  if (masked) sink("masked", true);
  if (!transforms.empty()) sink("transforms", to_string(transforms));
  if (async) sink("async", true);
  if (derivatives) sink("derivatives", true);
  if (recomputed) sink("recomputed", true);
  if (every != 1) sink("every", every);
  if (keep_last) sink("keep_last", keep_last);
  if (mesh) sink("mesh", to_string(*mesh));
  if (memory == Memory::device) sink("memory", "device");
  if (one_order) sink("one_order", true);
  if (partitioned) sink("partitioned", to_string(*partitioned));
  if (cut) sink("cut", to_string(*cut)), sink("whole", whole);
  if (device >= 0) sink("device", device);
  if (warn_after.count()) sink("warn_after_ns", std::int64_t{warn_after.count()});
  // Not shown, but the function is told of them, and errors name them.
  sink.identity("fn", function.get());
  sink.identity("counts", counts.get());
  sink.identity("file", place.file);
  sink.identity("line", reinterpret_cast<const void*>(std::uintptr_t{place.line}));
}

}  // namespace postern

namespace postern::host {

using detail::Parameter;

HostSite::HostSite(SitePtr s, std::shared_ptr<const detail::HostFunction> fn)
    : spec(std::move(s)), declared{&spec->named.attributes, &spec->result_structure, &spec->result_paths}, function(std::move(fn)) {
  operands = spec->operands.size();
  results = spec->results.size();
  for (std::int64_t i = 0; spec->mesh && i < spec->mesh->size(); ++i) {
    Spot spot{spec->mesh->coordinates(spec->mesh->devices()[static_cast<std::size_t>(i)]), {}};
    if (spec->cut) spot.part = Sharding(*spec->mesh, *spec->cut).part(spec->whole, i);
    spot.repeats = spec->partitioned && spec->kind == SiteSpec::Kind::tap &&
                   std::ranges::any_of(spots, [&](const Spot& before) { return before.part == spot.part; });
    spots.push_back(std::move(spot));
  }
  direct = std::ranges::none_of(spots, &Spot::repeats) && spec->levels.empty() && !spec->masked && !spec->async && spec->every == 1 &&
           spec->timeout.count() == 0 && spec->warn_after.count() == 0;
  one_order = spec->one_order && !spots.empty();
  inputs = operands + spec->masked;
  buffers = inputs + results;
  auto add = [&](const Type& t) {
    leaves.push_back({t.dtype, t.dims.data(), t.dims.size(), t.size()});
    leaf_bytes.push_back(t.byte_size());
  };
  for (const Type& t : spec->operands) add(t);
  for (const Type& t : spec->results) add(t);

  // Innermost level last; a leaf that lacks a level stands still along it.
  const std::size_t count = spec->levels.size();
  level_sizes.resize(count);
  level_strides.assign(count, std::vector<std::size_t>(leaves.size(), 0));
  mask_strides.assign(count, 0);
  std::vector<std::size_t> step = leaf_bytes;
  std::size_t mask_step = 1;
  for (std::size_t l = count; l-- > 0;) {
    const BatchLevel& level = spec->levels[l];
    level_sizes[l] = level.size;
    elements *= level.size;
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      if (i < operands && !level.mapped[i]) continue;
      level_strides[l][i] = step[i];
      step[i] *= static_cast<std::size_t>(level.size);
    }
    if (spec->masked && level.mapped[operands]) {
      mask_strides[l] = mask_step;
      mask_step *= static_cast<std::size_t>(level.size);
    }
  }
  buffer_bytes = std::move(step);
  unchecked = spec->from_file;
  for (const detail::LeafLayout& leaf : leaves) packed = packed || bit_width(leaf.dtype) < 8;
  if (function) serve(function);
}

void HostSite::serve(std::shared_ptr<const detail::HostFunction> found) {
  function = std::move(found);
  invoke = function->invoke;
  object = function->object.get();
  told = function->wants_call_info || function->wants_tap_info;
  quick = direct && !one_order && !told && !packed && !unchecked && buffers <= few;
}

const HostSite::Spot& HostSite::spot(int device) const {
  static const Spot nowhere;
  for (std::size_t i = 0; i < spots.size(); ++i)
    if (spec->mesh->devices()[i] == device) return spots[i];
  return nowhere;
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

void check_signature(const SiteSpec& site, const detail::HostFunction& f) {
  using Kind = Parameter::Kind;
  PlaceScope::Replace at(site.place);
  const std::string who = fmt::format("{} '{}'", site.word, site.name);
  check(site.kind == SiteSpec::Kind::tap || !f.wants_tap_info,
        "{}: the function takes a TapInfo, which only taps, hooks and prints give; take a CallInfo", who);
  check(!f.wants_attributes || !site.named.name.empty(), "{}: the function takes Attributes, which only functions called by name are given",
        who);
  std::vector<Parameter> takes = f.parameters;
  const bool all_in = !takes.empty() && takes.front().kind == Kind::all_operands;
  const bool all_out = !takes.empty() && takes.back().kind == Kind::all_results;
  const bool any_site = all_in && all_out && takes.size() == 2;  // operands and results as they come
  const bool in_place = !f.by_value && (site.kind == SiteSpec::Kind::call || any_site);
  const std::size_t wanted = (all_in ? 1 : site.operands.size()) + (in_place ? (all_out ? 1 : site.results.size()) : 0);
  const bool on_device = site.memory == Memory::device;
  check(!on_device || (!f.by_value && std::ranges::none_of(takes, [](const Parameter& p) { return p.kind == Kind::number; })),
        "{}: with Memory::device the function must take views and fill its results in place; what it is given may be a GPU's memory", who);
  check(!on_device || (std::ranges::none_of(site.operands, is_packed) && std::ranges::none_of(site.results, is_packed)),
        "{}: on a GPU elements of less than a byte are packed, several a byte; with Memory::device convert them first", who);
  check(takes.size() == wanted, "{}: the function takes {} leaves, the {} gives {} operands {}{}", who, takes.size(),
        site.kind == SiteSpec::Kind::tap ? "tap" : "call", site.operands.size(), to_string(site.operands),
        in_place ? fmt::format(" and {} results {} to fill", site.results.size(), to_string(site.results)) : "");
  const std::string batched = site.transforms.empty() ? "" : fmt::format(" (seen after {})", to_string(site.transforms));
  for (std::size_t i = 0; i < takes.size(); ++i) {
    const Parameter& p = takes[i];
    if (p.kind == Kind::all_operands || p.kind == Kind::all_results) continue;
    const bool is_operand = all_in ? i == 0 : i < site.operands.size();
    const std::size_t leaf = is_operand ? i : i - (all_in ? 1 : site.operands.size());
    const Type& type = is_operand ? site.operands[leaf] : site.results[leaf];
    const auto& paths = is_operand ? site.operand_paths : site.result_paths;
    const std::string path = leaf < paths.size() ? paths[leaf] : "";
    const bool writes = p.kind == Kind::mutable_view || p.kind == Kind::any_mutable_view;
    const bool untyped = p.kind == Kind::any_view || p.kind == Kind::any_mutable_view;
    check(writes != is_operand && (untyped || p.dtype == type.dtype) && (p.kind != Kind::number || type.dims.empty()),
          "{}: parameter {} of the function is {}, {} {}{} is {}{}", who, i, parameter_text(p), is_operand ? "operand" : "result", leaf,
          path, to_string(type), batched);
  }
}

}  // namespace postern::host

namespace postern {

void check_site(const SiteSpec& site) {
  if (site.function) host::check_signature(site, *site.function);
}

}  // namespace postern
