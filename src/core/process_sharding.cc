// Whole arrays and parts, by the places of processes in a mesh.
#include "core/process_sharding.h"

#include <algorithm>

#include "core/check.h"
#include "core/lists.h"
#include "core/sharding.h"

namespace postern::internal {

namespace {

bool names_processes(const Mesh& mesh, const std::string& name) {
  return is_of_processes(*std::ranges::find(mesh.axes(), name, &MeshAxis::name));
}

/// Returns the axes of processes that cut this axis of an array. Throws unless they come first.
AxisList names_across(const Sharding& sharding, std::size_t axis) {
  if (axis >= sharding.spec().parts().size()) return {};
  const AxisList& names = sharding.spec().parts()[axis];
  const auto across = [&](auto& name) { return names_processes(sharding.mesh(), name); };
  const auto first_of_devices = std::ranges::find_if_not(names, across);
  const auto late = std::find_if(first_of_devices, names.end(), across);
  if (late != names.end())
    throw_type_error(
        fmt::format("{}: axis '{}' is one of processes and must come before '{}', one of devices",
                    to_string(sharding.spec()), *late, *first_of_devices));
  return {names.begin(), first_of_devices};
}

}  // namespace

bool is_sharded_over_processes(const Sharding& sharding) {
  return std::ranges::any_of(sharding.spec().parts(), [&](const auto& names) {
    return std::ranges::any_of(names, [&](const std::string& name) {
      return names_processes(sharding.mesh(), name) && sharding.mesh().size(name) > 1;
    });
  });
}

std::int64_t position_on(const Mesh& mesh, std::size_t device, int rank) {
  const auto number = static_cast<std::int64_t>(device);
  const auto of_process = coordinates_along(mesh, rank, is_of_processes);
  const auto of_device = coordinates_along(mesh, number, is_of_devices);
  std::int64_t position = 0;
  for (std::size_t i = 0; i < mesh.axes().size(); ++i)  // an axis is of one kind: one of them is 0
    position = position * mesh.axes()[i].size + of_process[i] + of_device[i];
  return position;
}

std::vector<IndexRange> addressable_ranges(const Sharding& sharding, const Dims& global, int rank) {
  const Coordinates place = coordinates_along(sharding.mesh(), rank, is_of_processes);
  std::vector<IndexRange> ranges;
  for (std::size_t i = 0; i < global.size(); ++i) {
    const auto [index, count] = piece_at(sharding.mesh(), names_across(sharding, i), place);
    const std::int64_t extent = global[i] / count;
    ranges.push_back({index * extent, (index + 1) * extent});
  }
  return ranges;
}

Type addressable_type(const Sharding& sharding, const Type& global) {
  Type part = global;  // of process 0, as of all: parts are of one size
  const std::vector<IndexRange> ranges = addressable_ranges(sharding, global.dims, 0);
  for (std::size_t i = 0; i < ranges.size(); ++i) part.dims[i] = ranges[i].end - ranges[i].begin;
  return part;
}

Type global_type(const Sharding& sharding, const Type& part) {
  Type global = part;
  for (std::size_t i = 0; i < global.dims.size(); ++i)
    global.dims[i] *= piece_count(sharding.mesh(), names_across(sharding, i));
  return global;
}

std::optional<Mesh> mesh_on_each_process(const Mesh& mesh) {
  std::vector<MeshAxis> axes;
  for (const MeshAxis& a : mesh.axes())
    if (!a.of_processes) axes.push_back(a);
  if (axes.empty()) {
    if (mesh.devices() == std::vector<int>{0}) return {};
    axes.emplace_back("device", 1);
  }
  return Mesh(std::move(axes), mesh.devices());
}

std::optional<Sharding> on_each_process(const Sharding& sharding) {
  std::vector<AxisList> parts;
  for (std::size_t i = 0; i < sharding.spec().parts().size(); ++i) {
    const AxisList& names = sharding.spec().parts()[i];
    parts.push_back(tail(names, names_across(sharding, i).size()));
  }
  std::optional<Mesh> here = mesh_on_each_process(sharding.mesh());
  if (!here) return {};
  return Sharding(std::move(*here), P(std::move(parts)));
}

}  // namespace postern::internal
