// Custom calls of programs from elsewhere as sites.
#include "core/check.h"
#include "foreign/foreign.h"
#include "guest/asked.h"

namespace postern::internal::foreign {

namespace {

/// A call that postern.jax has written: it says itself what it is.
std::shared_ptr<SiteSpec> guest_site(const ForeignCall& call) {
  guest::Asked asked;
  for (const auto& [name, value] : call.attributes.items()) asked.set(name, value);
  asked.require();
  std::shared_ptr<SiteSpec> s = guest::spec_of(asked, call.operands, call.results);
  if (asked.on_mesh()) s->mesh = std::make_shared<const Mesh>(asked.mesh_axes(), std::vector{0});
  return s;
}

std::shared_ptr<SiteSpec> plain_site(ForeignCall& call) {
  auto s = std::make_shared<SiteSpec>();
  s->name = call.target;
  s->place = call.place;
  s->named = {std::move(call.target), std::move(call.attributes)};
  s->operands = std::move(call.operands);
  s->results = std::move(call.results);
  s->operand_paths.resize(s->operands.size());
  s->result_paths.resize(s->results.size());
  return s;
}

}  // namespace

SitePtr site_of(ForeignCall call) {
  const std::shared_ptr<SiteSpec> s =
      call.target == guest::target ? guest_site(call) : plain_site(call);
  const std::vector<char> leaves(s->results.size(), '*');
  s->result_structure = fmt::format("({})", fmt::join(leaves, ","));
  s->effect = Effect::pure;
  if (call.side_effect) s->effect = Effect::unordered;
  if (call.ordered) s->effect = Effect::ordered;
  s->from_file = true;
  return s;
}

}  // namespace postern::internal::foreign
