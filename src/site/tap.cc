// tap: a site whose results are its operands.
#include "site/tap.h"

#include "cluster/cluster.h"
#include "core/check.h"
#include "site/live_options.h"
#include "site/site.h"

namespace postern::detail {
using namespace internal;

void wrong_map(const std::type_info& takes, const std::type_info& tapped, const Place& place) {
  PlaceScope at(place);
  throw_type_error(fmt::format("tap: the map takes {}, what is tapped is {}", readable_name(takes),
                               readable_name(tapped)));
}

Tensors tap_as(SiteSpec::Kind kind, const TapOptions& options, const Shown& value,
               const Shown* mapped, const Callee* fn, const Place& place) {
  PlaceScope at(place);
  const char* const word = word_of(kind);
  const LiveOptions shown{.mode = options.mode,
                          .every = options.every,
                          .until = options.until,
                          .keep_last = options.keep_last};
  check_options(word, options.name, shown, "taps");
  check(options.process >= -1, "{} '{}': process must be a rank, or -1 for all, got {}", word,
        options.name, options.process);
  check(options.interval.count() >= 0, "{} '{}': interval must not be negative, got {} ns", word,
        options.name, options.interval.count());
  check(!options.one_order || options.ordered, "{} '{}': one_order is for ordered ones", word,
        options.name);
  const Shown& sent = mapped ? *mapped : value;
  SiteSpec s;
  s.kind = kind;
  s.name = options.name;
  s.place = place;
  if (options.live) s.tap.live = std::make_shared<Switch>();
  s.function = fn ? fn->function() : disabled();
  if (fn) s.named = fn->named();
  for (const Tensor& t : sent.leaves) s.operands.push_back({t.dtype(), t.dims()});
  s.trees.operand_structure = sent.structure;
  s.trees.operand_paths = sent.paths;
  s.effect = options.ordered ? Effect::ordered : Effect::unordered;
  set_options(s.tap, shown);
  if (options.interval.count() > 0) s.tap.options.set("interval", options.interval.count());
  s.tap.derivatives = options.derivatives;
  s.tap.process = options.process;
  if (s.tap.process >= 0) clusters::Cluster::get();  // which says which process this is
  s.shard.partitioned = options.partitioned;
  s.one_order = options.one_order;
  Tensors passed = at_site(std::move(s), sent.leaves);
  if (mapped) return value.leaves;
  return passed;
}

Tensors tap(const TapOptions& options, const Shown& value, const Shown* mapped, const Callee& fn) {
  PlaceScope at(fn.place());
  check(!options.live, "tap '{}': live is for hooks; a tap has its listener", options.name);
  return tap_as(SiteSpec::Kind::tap, options, value, mapped, &fn, fn.place());
}

}  // namespace postern::detail
