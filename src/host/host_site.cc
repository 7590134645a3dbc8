// Preparing sites, and checking that a function can take what a site gives.
#include "host/host_site.h"

#include <algorithm>

#include "cluster/cluster.h"
#include "core/lists.h"
#include "core/process_sharding.h"
#include "core/sharding.h"
#include "core/value.h"
#include "host/call_handle.h"
#include "host/process_call.h"
#include "host/residual_store.h"
#include "host/stage.h"

namespace postern::internal::host {

namespace {

/// Enters a HostFunction. What it fills in may be a mask of other bytes than XLA's.
void enter_and_make_booleans(void* function, const detail::Firing& f) {
  const auto& entered = *static_cast<const detail::HostFunction*>(function);
  entered.invoke(entered.object.get(), f);
  for (std::size_t i = f.operands; i < f.operands + f.results; ++i)
    if (f.leaves[i].dtype == DType::pred)
      detail::make_booleans(f.data[i], size_of(f.leaves[i].size));
}

/// Returns what the device at that position of the site's mesh is told of itself. A partitioned tap
/// shows equal parts once: by the first device that has one.
HostSite::Position position_on_mesh(const HostSite& site, std::int64_t number) {
  const SiteShard& shard = site.spec->shard;
  const auto device = size_of(number);
  HostSite::Position out{shard.mesh->coordinates(shard.mesh->devices()[device]),
                         site.part_over_processes(device)};
  if (shard.spec && !shard.over_processes)
    out.part = index_ranges(Sharding(*shard.mesh, *shard.spec), shard.global_dims, number);
  const auto is_shown_before = [&] {
    const auto same = std::ranges::find(site.positions, out.part, &HostSite::Position::part);
    return same != site.positions.end();
  };
  out.repeats =
      site.here.repeats || (shard.partitioned && site.spec->is_tap() && is_shown_before());
  return out;
}

/// Appends leaves of these types. Their dims stay the types'.
void add_leaves(const std::vector<Type>& types, std::vector<detail::LeafLayout>& leaves,
                std::vector<std::size_t>& bytes) {
  for (const Type& t : types) {
    leaves.push_back({t.dtype, t.dims.data(), t.dims.size(), t.size()});
    bytes.push_back(t.byte_size());
  }
}

}  // namespace

// Works out all that an invocation needs and that no invocation changes, in this order: what each
// device of the mesh is told of itself, and which of them repeat a tap that another fires; the
// leaves of one invocation with their sizes; the sizes of the equation's buffers; and the stages of
// what is special about the site. Afterwards the site can be fired, or, if `fn` is null, once
// serve() has given it a function. Throws only for lack of memory.
HostSite::HostSite(SitePtr s, std::shared_ptr<const detail::HostFunction> fn)
    : spec(std::move(s)),
      declared{&spec->named.attributes, &spec->trees.result_structure, &spec->trees.result_paths},
      function(std::move(fn)) {
  operands = spec->operands.size();
  results = spec->results.size();
  here.repeats = spec->tap.process >= 0 && spec->tap.process != clusters::rank_now();
  here.part = part_over_processes(0);
  for (std::int64_t i = 0; spec->shard.mesh && i < spec->shard.mesh->size(); ++i)
    positions.push_back(position_on_mesh(*this, i));
  inputs = operands + spec->batch.masked;
  buffers = inputs + results;
  add_leaves(spec->operands, leaves, leaf_bytes);
  add_leaves(spec->results, leaves, leaf_bytes);
  if (spec->call.role == SiteCall::Role::start) {  // whose own result is a handle
    add_leaves(spec->operands, called, called_bytes);
    add_leaves(spec->call.later, called, called_bytes);
    place_number = host::place_number(*spec);
  } else {
    called = leaves;
    called_bytes = leaf_bytes;
  }
  buffer_bytes = leaf_bytes;
  for (const BatchLevel& level : spec->batch.levels)
    for (std::size_t i = 0; i < leaves.size(); ++i)
      if (i >= operands || level.mapped[i]) buffer_bytes[i] *= size_of(level.size);
  make_stages(*this);
  if (function) serve(function);
}

void HostSite::serve(std::shared_ptr<const detail::HostFunction> found) {
  function = std::move(found);
  invoke = function->invoke;
  object = function->object.get();
  const auto is_pred = [](const Type& t) { return t.dtype == DType::pred; };
  const bool gives_booleans =
      std::ranges::any_of(spec->results, is_pred) || std::ranges::any_of(spec->call.later, is_pred);
  if (gives_booleans && spec->memory == Memory::host) {
    invoke = enter_and_make_booleans;
    object = const_cast<detail::HostFunction*>(function.get());
  }
  is_ours = is_of_residuals(*function) || is_of_processes(*function);
  const bool has_own_listener = function != disabled();
  enabled = spec->tap.live && !has_own_listener ? &spec->tap.live->on : nullptr;
  wants_info = function->wants_call_info || function->wants_tap_info;
  fast_path = direct && !wants_info && !spec->from_file && buffers <= few;
}

std::size_t HostSite::position_of(int device) const {
  if (positions.size() < 2) return 0;  // a mesh of one device: whichever that is now
  const std::vector<int>& devices = spec->shard.mesh->devices();
  return size_of(std::ranges::find(devices, device) - devices.begin());
}

const HostSite::Position& HostSite::position(int device) const {
  const std::size_t i = position_of(device);
  return i < positions.size() ? positions[i] : here;
}

TapInfo HostSite::info(int device, detail::StopState* stop) const {
  const Position& its = position(device);
  CallInfo call{
      .name = spec->name, .device = device, .place = spec->place, .stop = StopToken(stop)};
  call.run_state = stop;
  call.coordinates = its.coordinates;
  call.part = its.part;
  call.process = clusters::rank_now();
  return {call, spec->tap.transforms, spec->trees.operand_paths, spec->tap.recomputed, {}, 0};
}

/// Returns which part of the whole a device of this process has; nothing where that is not known.
std::vector<IndexRange> HostSite::part_over_processes(std::size_t device) const {
  const SiteShard& shard = spec->shard;
  if (!shard.over_processes) return {};
  const Mesh& mesh = shard.over_processes->mesh();
  std::int64_t processes = 1;
  for (const MeshAxis& a : mesh.axes())
    if (a.of_processes) processes *= a.size;
  if (processes != clusters::size_now()) return {};  // the program was made by others
  return index_ranges(*shard.over_processes, shard.process_dims,
                      position_on(mesh, device, clusters::rank_now()));
}

}  // namespace postern::internal::host
