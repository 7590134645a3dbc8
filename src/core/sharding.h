// Shardings as XLA and the collectives see them. The partitions of a program are numbered along its
// list of devices.
#pragma once
#include <postern/sharding.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace postern::internal {

/// Of what lies on one device alone: on a mesh of that one.
Sharding on_one_device(int device);

/// Whether it has axes of processes, and a TypeError if so.
bool spans_processes(const Mesh& mesh);
void refuse_processes(const Mesh& mesh, const char* what);

/// The mesh axes that a spec does not cut by: along these, devices hold the same.
std::vector<std::string> unnamed_axes(const Mesh& mesh, const P& spec);
std::vector<std::string> all_axes(const Mesh& mesh);

/// Which of the pieces that these axes make a device or process at `place` has, and how many there
/// are. A place says where in the mesh it is, by axis.
std::pair<std::int64_t, std::int64_t> piece_at(const Mesh& mesh,
                                               const std::vector<std::string>& names,
                                               const std::vector<std::int64_t>& place);

/// Sharding::part for arrays that are known to fit.
std::vector<IndexRange> index_ranges(const Sharding& sharding, const Dims& whole,
                                     std::int64_t position);

/// The positions in the mesh that meet in a collective along these axes: groups, each in the order
/// of the axes.
std::vector<std::vector<std::int64_t>> device_groups(const Mesh& mesh,
                                                     const std::vector<std::string>& names);

/// The partition at a position of the mesh, in a program over `devices`.
std::int64_t partition_of(const Mesh& mesh, std::int64_t position, const std::vector<int>& devices);

/// As XLA's mhlo.sharding says it: "{devices=[2,1,2]0,1,2,3 last_tile_dim_replicate}".
std::string tiling_text(std::span<const std::int64_t> tiles, std::span<const std::int64_t> devices,
                        bool copies);
std::string hlo_text(const Sharding& sharding, std::int64_t rank, const std::vector<int>& devices);

}  // namespace postern::internal
