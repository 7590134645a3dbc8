// Where parts lie: by the site's sharding and this process's devices.
#include "host/part_shown.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/rank.h"
#include "core/process_sharding.h"
#include "core/sharding.h"
#include "host/run_state.h"

namespace postern::internal::host {

namespace {

PartShown whole(std::vector<std::pair<std::string, Type>> leaves) {
  PartShown out{std::move(leaves), {}};
  for (const auto& [name, type] : out.wholes) out.begins.emplace_back(type.dims.size(), 0);
  return out;
}

/// The positions in the mesh of this process's devices.
std::vector<std::int64_t> positions_here(const Mesh& mesh) {
  std::vector<std::int64_t> out;
  const std::size_t devices = std::max<std::size_t>(mesh.devices().size(), 1);
  for (std::size_t i = 0; i < devices; ++i)
    out.push_back(position_on(mesh, i, clusters::rank_now()));
  return out;
}

/// Adds a leaf, of which the device at that position has a part of this type.
void add_leaf(PartShown& out, const Sharding& sharding, std::int64_t position, std::string name,
              const Type& part) {
  Dims dims = part.dims;
  const auto& cuts = sharding.spec().parts();
  for (std::size_t axis = 0; axis < std::min(dims.size(), cuts.size()); ++axis)
    for (const std::string& mesh_axis : cuts[axis]) dims[axis] *= sharding.mesh().size(mesh_axis);
  Dims& begin = out.begins.emplace_back();
  for (const IndexRange& range : index_ranges(sharding, dims, position))
    begin.push_back(range.begin);
  out.wholes.emplace_back(std::move(name), make_type(part.dtype, std::move(dims)));
}

/// Finds out who gives what: of equal parts the first in the mesh, and of each process the first
/// device in any case, if only its states. `here`: the positions of this process's devices.
void find_givers(PartShown& out, const Sharding& sharding, std::int64_t position,
                 const std::vector<std::int64_t>& here) {
  std::vector<std::vector<IndexRange>> seen;
  out.givers = 0;
  for (std::int64_t p = 0; p < sharding.mesh().size(); ++p) {
    auto part = index_ranges(sharding, out.wholes[0].second.dims, p);
    const bool repeats = std::ranges::find(seen, part) != seen.end();
    const bool gives = !repeats || p == here[0];
    const bool is_here = std::ranges::find(here, p) != here.end();
    if (gives && is_here) ++out.givers;
    if (p == position) {
      out.repeats = repeats;
      out.gives = gives;
    }
    if (!repeats) seen.push_back(std::move(part));
  }
}

PartShown spread_of(const char* who, const SiteSpec* site, int device,
                    std::vector<std::pair<std::string, Type>> leaves) {
  const bool over_processes = site && site->shard.over_processes;
  const bool in_shard_map = site && site->shard.mesh && site->shard.mesh->size() != 1;
  if (!over_processes && !in_shard_map) return whole(std::move(leaves));
  const Mesh& mesh = over_processes ? site->shard.over_processes->mesh() : *site->shard.mesh;
  const bool first_is_known = over_processes || site->shard.spec;
  if (!first_is_known || (!site->shard.partitioned && leaves.size() > 1))
    throw Error(ErrorCode::failed_precondition,
                fmt::format("{}: in shard_map the place of a device's parts in the whole is known "
                            "of a tap's first leaf at most; tap outside of it, or each leaf alone "
                            "into a folder of its own",
                            who));
  const auto devices = static_cast<std::int64_t>(std::max<std::size_t>(mesh.devices().size(), 1));
  if (over_processes && mesh.size() != devices * clusters::size_now())
    throw Error(ErrorCode::failed_precondition,
                fmt::format("{}: the program lies over {}, and the cluster has {} processes", who,
                            to_string(mesh), clusters::size_now()));
  const Sharding sharding(mesh,
                          over_processes ? site->shard.over_processes->spec() : *site->shard.spec);
  const std::vector<std::int64_t> here = positions_here(mesh);
  const auto found = std::ranges::find(mesh.devices(), device);
  const bool is_named = found != mesh.devices().end();  // else each process has one device
  const std::int64_t position =
      is_named ? here.at(size_of(found - mesh.devices().begin())) : here[0];
  PartShown out;
  for (auto& [name, type] : leaves) add_leaf(out, sharding, position, std::move(name), type);
  find_givers(out, sharding, position, here);
  return out;
}

}  // namespace

PartShown part_shown(const char* who, int device,
                     std::vector<std::pair<std::string, Type>> leaves) {
  const Nesting* const here = nesting();
  const SiteSpec* const site = here && here->site ? here->site->spec.get() : nullptr;
  PartShown out = spread_of(who, site, device, std::move(leaves));
  out.on_several = site && site->shard.over_processes && clusters::size_now() > 1;
  if (out.on_several && here->run) out.job_run = here->run->job_run();
  return out;
}

}  // namespace postern::internal::host
