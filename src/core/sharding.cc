// Meshes and shardings.
#include "core/sharding.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "core/check.h"
#include "core/lists.h"
#include "core/text.h"

namespace postern {
using namespace internal;

namespace {

constexpr std::int64_t most = 1 << 16;  // devices, and processes

/// Returns devices 0, 1, ... of a mesh that names none. The constructor refuses bad sizes.
std::vector<int> first_devices(const std::vector<MeshAxis>& axes) {
  std::int64_t count = 1;
  for (const MeshAxis& a : axes) {
    if (!a.of_processes) count *= std::clamp<std::int64_t>(a.size, 1, most);
    check(count <= most, "Mesh: it has more than {} devices", most);
  }
  std::vector<int> devices(size_of(count));
  std::iota(devices.begin(), devices.end(), 0);
  return devices;
}

/// Returns the coordinates of a position, along axes of processes and of devices.
Coordinates coordinates_at(const Mesh& mesh, std::int64_t position) {
  return coordinates_along(mesh, position, [](const MeshAxis&) { return true; });
}

std::size_t axis_number(const Mesh& mesh, const std::string& name) {
  for (std::size_t i = 0; i < mesh.axes().size(); ++i)
    if (mesh.axes()[i].name == name) return i;
  throw_type_error(fmt::format("{} has no axis '{}'", to_string(mesh), name));
}

std::string axis_text(const std::string& name) {
  if (name == "none") return internal::quoted(name);  // not what part_text says of no axis
  return word_or_quoted(name);
}

std::string part_text(const AxisList& names) {
  if (names.empty()) return "none";
  if (names.size() == 1) return axis_text(names[0]);
  std::vector<std::string> texts;
  for (const std::string& name : names) texts.push_back(axis_text(name));
  return fmt::format("({})", fmt::join(texts, ", "));
}

}  // namespace

Mesh::Mesh(std::vector<MeshAxis> axes, Caller caller)
    : Mesh(axes, first_devices(axes), caller.place) {}

Mesh::Mesh(std::vector<MeshAxis> axes, std::vector<int> devices, Place place)
    : axes_(std::move(axes)), devices_(std::move(devices)) {
  PlaceScope at(place);
  std::int64_t device_count = 1, process_count = 1;
  std::set<std::string> names;
  for (const MeshAxis& a : axes_) {
    check(a.size >= 1, "Mesh: axis '{}' must have 1 device or more, got {}", a.name, a.size);
    check(!a.name.empty(), "Mesh: axis '{}' needs a name", a.name);
    check(names.insert(a.name).second, "Mesh: axis '{}' is there twice", a.name);
    std::int64_t& count = a.of_processes ? process_count : device_count;
    check(a.size <= most / count, "Mesh: it has more than {} {}", most,
          a.of_processes ? "processes" : "devices");
    count *= a.size;
  }
  check(device_count == std::ssize(devices_),
        "Mesh: the axes make a grid of {} devices, {} were given", device_count, devices_.size());
  std::set<int> seen;
  for (const int device : devices_) {
    check(device >= 0, "Mesh: a device must be an ordinal of devices(), got {}", device);
    check(seen.insert(device).second, "Mesh: device {} is there twice", device);
  }
}

std::int64_t Mesh::size() const {
  std::int64_t count = 1;
  for (const MeshAxis& a : axes_) count *= a.size;
  return count;
}

std::int64_t Mesh::size(const std::string& axis, Place place) const {
  PlaceScope at(place);
  return axes_[axis_number(*this, axis)].size;
}

std::vector<std::int64_t> Mesh::coordinates(int device) const {
  const auto found = std::ranges::find(devices_, device);
  if (found == devices_.end()) return {};
  return coordinates_along(*this, found - devices_.begin(), is_of_devices);
}

bool internal::spans_processes(const Mesh& mesh) {
  return std::ranges::any_of(mesh.axes(), &MeshAxis::of_processes);
}
void internal::refuse_processes(const Mesh& mesh, const char* what) {
  check(!spans_processes(mesh), "{}: {} has axes of processes", what, to_string(mesh));
}

std::string to_string(const Mesh& mesh) {
  Separator comma;
  std::string out = "mesh(";
  for (const MeshAxis& axis : mesh.axes()) {
    out += fmt::format("{}{}={}", comma(), axis_text(axis.name), axis.size);
    if (axis.of_processes) out += " processes";
  }
  if (mesh.devices() != first_devices(mesh.axes()))
    out += fmt::format("; devices {}", fmt::join(mesh.devices(), ","));
  return out + ")";
}

std::string to_string(const P& spec) {
  std::vector<std::string> parts;
  for (const auto& names : spec.parts()) parts.push_back(part_text(names));
  return fmt::format("P({})", fmt::join(parts, ", "));
}

Sharding::Sharding(Mesh mesh, P spec, Place place)
    : mesh_(std::move(mesh)), spec_(std::move(spec)) {
  PlaceScope at(place);
  std::set<std::string> used;
  for (const auto& names : spec_.parts())
    for (const std::string& name : names) {
      axis_number(mesh_, name);  // throws where there is none
      check(used.insert(name).second, "{}: mesh axis '{}' cuts two axes", to_string(spec_), name);
    }
  // Axes left whole at the end say nothing.
  std::vector<AxisList> parts = spec_.parts();
  while (!parts.empty() && parts.back().empty()) parts.pop_back();
  spec_ = P(std::move(parts));
}

bool Sharding::is_replicated() const {
  return std::ranges::all_of(spec_.parts(),
                             [&](const auto& names) { return piece_count(mesh_, names) == 1; });
}

Type Sharding::part_type(const Type& whole, Place place) const {
  PlaceScope at(place);
  check(spec_.parts().size() <= whole.dims.size(), "{} names {} axes, {} has {}", to_string(spec_),
        spec_.parts().size(), to_string(whole), whole.dims.size());
  Type part = whole;
  for (std::size_t i = 0; i < spec_.parts().size(); ++i) {
    const std::int64_t count = piece_count(mesh_, spec_.parts()[i]);
    check(part.dims[i] % count == 0, "{} cuts axis {} of {} into {} parts, which must divide {}",
          to_string(*this), i, to_string(whole), count, part.dims[i]);
    part.dims[i] /= count;
  }
  return part;
}

// An array's axis that several mesh axes cut is cut by the first of them into large pieces, each of
// which the next one cuts. Mesh axes that cut nothing hold copies.
std::vector<IndexRange> internal::index_ranges(const Sharding& sharding, const Dims& whole,
                                               std::int64_t position) {
  const Mesh& mesh = sharding.mesh();
  const auto& parts = sharding.spec().parts();
  const Coordinates place = coordinates_at(mesh, position);
  std::vector<IndexRange> ranges;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::int64_t index = 0, count = 1;  // of an axis that the spec does not mention: it is whole
    if (i < parts.size()) std::tie(index, count) = piece_at(mesh, parts[i], place);
    const std::int64_t size = whole[i] / count;
    ranges.push_back({index * size, (index + 1) * size});
  }
  return ranges;
}

std::vector<IndexRange> Sharding::part(const Dims& whole, std::int64_t position,
                                       Place place) const {
  PlaceScope at(place);
  check(position >= 0 && position < mesh_.size(), "{} has parts 0 to {}, got {}", to_string(*this),
        mesh_.size() - 1, position);
  part_type({DType::f32, whole});  // throws where they do not fit
  return index_ranges(*this, whole, position);
}

std::string to_string(const Sharding& sharding) {
  return fmt::format("{} on {}", to_string(sharding.spec()), to_string(sharding.mesh()));
}

/// Frames cells of one width; each row has as many.
static std::string framed(const std::vector<std::vector<std::string>>& table, std::size_t width) {
  std::string line = "+";
  for (std::size_t c = 0; c < table[0].size(); ++c) line += std::string(width + 2, '-') + "+";
  std::string text = line + "\n";
  for (const auto& row : table) {
    text += "|";
    for (const std::string& cell : row) text += fmt::format(" {:^{}} |", cell, width);
    text += "\n" + line + "\n";
  }
  return text;
}

std::string draw(const Sharding& sharding, const Dims& dims, Place place) {
  PlaceScope at(place);
  check(dims.size() == 1 || dims.size() == 2,
        "draw: only arrays of one or two axes can be drawn, got {}", dims_to_string(dims));
  sharding.part_type({DType::f32, dims});  // throws where they do not fit
  refuse_processes(sharding.mesh(), "draw");
  // The devices that hold a piece, by the row and the column in which it begins.
  std::map<std::int64_t, std::map<std::int64_t, std::vector<int>>> holders;
  for (std::int64_t i = 0; i < sharding.mesh().size(); ++i) {
    const std::vector<IndexRange> piece = index_ranges(sharding, dims, i);
    const std::int64_t row = dims.size() == 1 ? 0 : piece[0].begin;
    holders[row][piece.back().begin].push_back(sharding.mesh().devices()[size_of(i)]);
  }
  std::vector<std::vector<std::string>> table;
  std::size_t width = 0;
  for (const auto& [row, columns] : holders) {
    table.emplace_back();
    for (const auto& [column, devices] : columns) {
      table.back().push_back(fmt::format("{}", fmt::join(devices, ",")));
      width = std::max(width, table.back().back().size());
    }
  }
  return framed(table, width);
}

namespace internal {

Sharding on_one_device(int device) { return {Mesh({{"device", 1}}, {device}), P()}; }

AxisList unnamed_axes(const Mesh& mesh, const P& spec) {
  AxisList unnamed;
  for (const MeshAxis& a : mesh.axes()) {
    const bool is_named = std::ranges::any_of(
        spec.parts(), [&](const auto& names) { return std::ranges::count(names, a.name) > 0; });
    if (!is_named) unnamed.push_back(a.name);
  }
  return unnamed;
}

AxisList all_axes(const Mesh& mesh) { return unnamed_axes(mesh, P()); }

Coordinates coordinates_along(const Mesh& mesh, std::int64_t number,
                              bool (*counts)(const MeshAxis&)) {
  Coordinates coordinates(mesh.axes().size(), 0);
  for (std::size_t i = coordinates.size(); i-- > 0;) {  // the last axis moves fastest
    if (!counts(mesh.axes()[i])) continue;
    coordinates[i] = number % mesh.axes()[i].size;
    number /= mesh.axes()[i].size;
  }
  return coordinates;
}

std::int64_t piece_count(const Mesh& mesh, const AxisList& names) {
  std::int64_t count = 1;
  for (const std::string& name : names) count *= mesh.size(name);
  return count;
}

std::pair<std::int64_t, std::int64_t> piece_at(const Mesh& mesh, const AxisList& names,
                                               const Coordinates& place) {
  std::int64_t index = 0, count = 1;
  for (const std::string& name : names) {
    const std::size_t axis = axis_number(mesh, name);
    index = index * mesh.axes()[axis].size + place[axis];
    count *= mesh.axes()[axis].size;
  }
  return {index, count};
}

std::vector<std::vector<std::int64_t>> device_groups(const Mesh& mesh, const AxisList& names) {
  // Positions meet that differ along `names` alone: at 0 along these they are the same, which is
  // their group's origin. A position's place in its group is its piece by `names`.
  std::vector<std::vector<std::int64_t>> groups;
  std::vector<Coordinates> origins;  // by group
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    Coordinates origin = coordinates_at(mesh, i);
    const auto [index, count] = piece_at(mesh, names, origin);
    for (const std::string& name : names) origin[axis_number(mesh, name)] = 0;
    const auto found = std::ranges::find(origins, origin);
    const auto group = size_of(found - origins.begin());
    if (found == origins.end()) {  // the first of its group
      origins.push_back(origin);
      groups.emplace_back(size_of(count));
    }
    groups[group][size_of(index)] = i;
  }
  return groups;
}

// Mesh axes that cut nothing count copies: to XLA they cut one more axis, behind the array's own.
// `tiles` counts the cuts of each axis, and `order` has the partition of each tile, row-major.
std::string hlo_text(const Sharding& sharding, std::int64_t rank, const std::vector<int>& devices) {
  if (sharding.is_replicated()) return "{replicated}";
  const Mesh& mesh = sharding.mesh();
  std::vector<AxisList> cuts = sharding.spec().parts();  // mesh axes, by axis
  cuts.resize(size_of(rank));
  cuts.push_back(unnamed_axes(mesh, sharding.spec()));
  std::vector<std::int64_t> tiles;
  for (const auto& names : cuts) tiles.push_back(piece_count(mesh, names));
  std::vector<std::int64_t> order(size_of(mesh.size()));
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const Coordinates place = coordinates_at(mesh, i);
    std::int64_t tile = 0;
    for (std::size_t axis = 0; axis < cuts.size(); ++axis)
      tile = tile * tiles[axis] + piece_at(mesh, cuts[axis], place).first;
    order[size_of(tile)] = partition_of(mesh, i, devices);
  }
  const std::int64_t copies = tiles.back();
  for (auto same = order.begin(); same != order.end(); same += copies)
    std::sort(same, same + copies);  // as XLA does; they hold the same
  if (copies == 1) tiles.pop_back();
  return tiling_text(tiles, order, copies > 1);
}

std::string tiling_text(std::span<const std::int64_t> tiles, std::span<const std::int64_t> devices,
                        bool copies) {
  const char* last = "";
  if (copies) last = " last_tile_dim_replicate";
  return fmt::format("{{devices=[{}]{}{}}}", fmt::join(tiles, ","), fmt::join(devices, ","), last);
}

std::int64_t partition_of(const Mesh& mesh, std::int64_t position,
                          const std::vector<int>& devices) {
  return std::ranges::find(devices, mesh.devices()[size_of(position)]) - devices.begin();
}

}  // namespace internal

}  // namespace postern
