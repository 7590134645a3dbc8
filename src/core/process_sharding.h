// Shardings over processes, seen from one of them. In a spec for a mesh that spans processes, axes
// of processes come before those of devices. Processes are numbered row-major along the mesh's axes
// of them.
#pragma once
#include <postern/sharding.h>

#include <optional>
#include <vector>

namespace postern::internal {

/// Returns whether some part of an array is on one process and not on another.
bool is_sharded_over_processes(const Sharding& sharding);
/// Returns the position in the mesh of device number `device` of those that it names, on this
/// process.
std::int64_t position_on(const Mesh& mesh, std::size_t device, int rank);
/// Returns what the devices of a process hold together, its type, and that of the whole it is a
/// part of.
std::vector<IndexRange> addressable_ranges(const Sharding& sharding, const Dims& global, int rank);
Type addressable_type(const Sharding& sharding, const Type& global);
Type global_type(const Sharding& sharding, const Type& part);
/// Returns the mesh of the devices of a process; none where each has the one that it runs on.
std::optional<Mesh> mesh_on_each_process(const Mesh& mesh);
/// Returns how the part lies there.
std::optional<Sharding> on_each_process(const Sharding& sharding);

}  // namespace postern::internal
