// Programs from elsewhere: opening their package, and their custom calls as sites.
#include "file/import.h"

#include <algorithm>

#include "core/check.h"
#include "core/site_spec.h"
#include "guest/call_attributes.h"
#include "host/run_state.h"
#include "lower/lowering.h"
#include "platform/package.h"
#include "platform/platform.h"
#include "run/library.h"
#include "run/runtime.h"
#include "site/own_functions.h"
#include "site/site.h"
#include "trace/trace.h"

namespace postern::internal::imported {

namespace {

/// A call that postern.jax has written: it says itself what it is.
std::shared_ptr<SiteSpec> guest_site(const ImportedCall& call) {
  guest::CallAttributes attributes;
  for (const auto& [name, value] : call.attributes.items()) attributes.set(name, value);
  attributes.require();
  std::shared_ptr<SiteSpec> s = guest::spec_of(attributes, call.operands, call.results);
  if (attributes.on_mesh())
    s->shard.mesh = std::make_shared<const Mesh>(attributes.mesh_axes(), std::vector{0});
  return s;
}

std::shared_ptr<SiteSpec> plain_site(ImportedCall& call) {
  auto s = std::make_shared<SiteSpec>();
  s->name = call.target;
  s->place = call.place;
  s->named = {std::move(call.target), std::move(call.attributes)};
  s->operands = std::move(call.operands);
  s->results = std::move(call.results);
  s->trees.operand_paths.resize(s->operands.size());
  s->trees.result_paths.resize(s->results.size());
  return s;
}

}  // namespace

SitePtr site_of(ImportedCall call) {
  const std::shared_ptr<SiteSpec> s =
      call.target == guest::target ? guest_site(call) : plain_site(call);
  const std::vector<char> leaves(s->results.size(), '*');
  s->trees.result_structure = fmt::format("({})", fmt::join(leaves, ","));
  s->effect = Effect::pure;
  if (call.side_effect) s->effect = Effect::unordered;
  if (call.ordered) s->effect = Effect::ordered;
  s->from_file = true;
  return s;
}

static std::atomic<const Reader*> the_reader{nullptr};

const Reader& reader_for(const std::string& name) {
  const std::string refusal = fmt::format("load: {}: this is no saved program, and ", name);
  return *platforms::brought_by(the_reader, "import", "load", refusal);
}

void set_reader(const Reader& reader) { the_reader = new Reader(reader); }

AtOnce::AtOnce() : untraced_(std::make_unique<Untraced>()) {}
AtOnce::~AtOnce() = default;

bool is_tap(const SiteSpec& site) { return site.is_tap(); }

bool is_known(const Tensor& x) {
  using Kind = detail::Value::Kind;
  const detail::Value* const value = detail::Access::value(x);
  return value && (value->kind == Kind::host || value->kind == Kind::device);
}

std::vector<Tensor> at_site_of(const SiteSpec& site, std::span<const Tensor> operands) {
  const bool overlaps = site.call.role != SiteCall::Role::whole;  // is started, or waited for
  const bool uses_store = own_functions.of_residuals(site.named.name) != nullptr;
  if (overlaps || uses_store)
    throw Error(ErrorCode::unimplemented,
                fmt::format("{}: what a saved program starts, or keeps for its way back, cannot be "
                            "part of another program, nor run in stages",
                            host::describe(site)));
  // A call of postern.jax on a mesh has its position there as a last operand, which its site does
  // not count (guest::spec_of). The program runs on one device, so there is but one.
  const std::size_t own = site.operands.size() + std::size_t{site.batch.masked};
  if (site.shard.mesh) operands = operands.first(std::min(operands.size(), own));
  return at_site(site, operands);
}

bool has_handler(const std::string& target) {
  return run::has_handler(target, platforms::current());
}

std::string_view platform_name() { return platforms::current().name; }

std::optional<std::size_t> platform_position(std::span<const std::string> names) {
  return platforms::position(platforms::current(), names);
}

// XLA is asked to compile for more devices than there ever are. It objects to a text that it cannot
// read, and to the number of devices only behind that, before it compiles anything. Where there is
// no runtime to ask, the run will say it.
std::string objection_to(const std::string& text) {
  constexpr int too_many = 10'000;
  try {
    const run::Backend& backend = *run::Runtime::get().backends().front();
    if (backend.platform().on_host)
      static_cast<void>(backend.clients[0].compile(text, {.num_replicas = too_many}));
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

std::string mlir_text(const Type& type) { return Lowering::type(type); }
std::string mlir_layout(std::int64_t rank) { return Lowering::layout(rank); }
std::string mlir_quoted(std::string_view text) { return Lowering::string(text); }

}  // namespace postern::internal::imported
