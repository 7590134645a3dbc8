// Whole arrays and parts, by the places of processes in a mesh.
#include "core/process_sharding.h"

#include <algorithm>

#include "core/check.h"
#include "core/sharding.h"

namespace postern::internal {

namespace {

bool is_of_processes(const Mesh& mesh, const std::string& name) {
  return std::ranges::find(mesh.axes(), name, &MeshAxis::name)->of_processes;
}

/// The names of one entry of a spec that are of processes, which come first.
std::vector<std::string> names_across(const Sharding& s, std::size_t axis) {
  if (axis >= s.spec().parts().size()) return {};
  const std::vector<std::string>& names = s.spec().parts()[axis];
  const auto across = [&](const std::string& name) { return is_of_processes(s.mesh(), name); };
  const auto end = std::ranges::find_if_not(names, across);
  const auto late = std::find_if(end, names.end(), across);
  check(late == names.end(),
        "{}: axis '{}' is one of processes and must come before '{}', one of devices",
        to_string(s.spec()), late == names.end() ? "" : *late, end == names.end() ? "" : *end);
  return {names.begin(), end};
}

/// Where a process is, by axis of the mesh; along axes of devices: 0.
std::vector<std::int64_t> place_of_process(const Mesh& mesh, int rank) {
  std::vector<std::int64_t> out(mesh.axes().size(), 0);
  std::int64_t rest = rank;
  for (std::size_t i = out.size(); i-- > 0;) {
    if (!mesh.axes()[i].of_processes) continue;
    out[i] = rest % mesh.axes()[i].size;
    rest /= mesh.axes()[i].size;
  }
  return out;
}

}  // namespace

bool is_sharded_over_processes(const Sharding& sharding) {
  return std::ranges::any_of(sharding.spec().parts(), [&](const auto& names) {
    return std::ranges::any_of(names, [&](const std::string& name) {
      return is_of_processes(sharding.mesh(), name) && sharding.mesh().size(name) > 1;
    });
  });
}

std::int64_t position_on(const Mesh& mesh, std::size_t device, int rank) {
  std::vector<std::int64_t> place = place_of_process(mesh, rank);
  auto rest = static_cast<std::int64_t>(device);
  for (std::size_t i = place.size(); i-- > 0;) {
    if (mesh.axes()[i].of_processes) continue;
    place[i] = rest % mesh.axes()[i].size;
    rest /= mesh.axes()[i].size;
  }
  std::int64_t out = 0;
  for (std::size_t i = 0; i < place.size(); ++i) out = out * mesh.axes()[i].size + place[i];
  return out;
}

std::vector<IndexRange> addressable_ranges(const Sharding& sharding, const Dims& global, int rank) {
  const std::vector<std::int64_t> place = place_of_process(sharding.mesh(), rank);
  std::vector<IndexRange> out;
  for (std::size_t i = 0; i < global.size(); ++i) {
    const auto [index, count] = piece_at(sharding.mesh(), names_across(sharding, i), place);
    out.push_back({index * (global[i] / count), (index + 1) * (global[i] / count)});
  }
  return out;
}

Type addressable_type(const Sharding& sharding, const Type& global) {
  Type out = global;
  const std::vector<IndexRange> first = addressable_ranges(sharding, global.dims, 0);
  for (std::size_t i = 0; i < first.size(); ++i) out.dims[i] = first[i].end - first[i].begin;
  return out;
}

Type global_type(const Sharding& sharding, const Type& part) {
  const std::vector<std::int64_t> nowhere(sharding.mesh().axes().size(), 0);
  Type out = part;
  for (std::size_t i = 0; i < out.dims.size(); ++i)
    out.dims[i] *= piece_at(sharding.mesh(), names_across(sharding, i), nowhere).second;
  return out;
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
  std::vector<std::vector<std::string>> parts;
  for (std::size_t i = 0; i < sharding.spec().parts().size(); ++i) {
    const auto across = static_cast<std::ptrdiff_t>(names_across(sharding, i).size());
    const std::vector<std::string>& names = sharding.spec().parts()[i];
    parts.emplace_back(names.begin() + across, names.end());
  }
  std::optional<Mesh> here = mesh_on_each_process(sharding.mesh());
  if (!here) return {};
  return Sharding(std::move(*here), P(std::move(parts)));
}

}  // namespace postern::internal
