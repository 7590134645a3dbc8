// Shardings as XLA and the collectives see them. The partitions of a program are numbered along its
// list of devices.
#pragma once
#include <postern/sharding.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace postern::internal {

using AxisList = std::vector<std::string>;      // of a mesh
using Coordinates = std::vector<std::int64_t>;  // in a mesh, by axis

/// Returns the sharding of what lies on one device alone: on a mesh of that one.
Sharding on_one_device(int device);

/// Returns whether it has axes of processes, and throws a TypeError if so.
bool spans_processes(const Mesh& mesh);
void refuse_processes(const Mesh& mesh, const char* what);

/// Returns the mesh axes that a spec does not cut by: along these, devices hold the same.
AxisList unnamed_axes(const Mesh& mesh, const P& spec);
AxisList all_axes(const Mesh& mesh);

/// Takes a row-major number apart: its coordinate along each axis of the mesh that `counts`
/// accepts, 0 along the others.
Coordinates coordinates_along(const Mesh& mesh, std::int64_t number,
                              bool (*counts)(const MeshAxis&));
inline bool is_of_processes(const MeshAxis& axis) { return axis.of_processes; }
inline bool is_of_devices(const MeshAxis& axis) { return !axis.of_processes; }

/// Returns how many pieces these axes make.
std::int64_t piece_count(const Mesh& mesh, const AxisList& names);
/// Returns which of the pieces that these axes make a device or process at `place` has, and how
/// many there are. A place says where in the mesh it is, by axis.
std::pair<std::int64_t, std::int64_t> piece_at(const Mesh& mesh, const AxisList& names,
                                               const Coordinates& place);

/// Does as Sharding::part, for arrays that are known to fit.
std::vector<IndexRange> index_ranges(const Sharding& sharding, const Dims& whole,
                                     std::int64_t position);

/// Returns the positions in the mesh that meet in a collective along these axes: groups, each in
/// the order of the axes.
std::vector<std::vector<std::int64_t>> device_groups(const Mesh& mesh, const AxisList& names);

/// Returns the partition at a position of the mesh, in a program over `devices`.
std::int64_t partition_of(const Mesh& mesh, std::int64_t position, const std::vector<int>& devices);

/// Writes it as XLA's mhlo.sharding says it: "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}".
std::string tiling_text(std::span<const std::int64_t> tiles, std::span<const std::int64_t> devices,
                        bool copies);
std::string hlo_text(const Sharding& sharding, std::int64_t rank, const std::vector<int>& devices);

}  // namespace postern::internal
