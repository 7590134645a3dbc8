// Meshes and shardings.
#include "core/sharding.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>

#include "core/check.h"
#include "core/text.h"

namespace postern {
using namespace internal;

namespace {

constexpr std::int64_t most = 1 << 16;

std::vector<int> first_devices(const std::vector<MeshAxis>& axes) {
  std::int64_t count = 1;
  for (const MeshAxis& a : axes) {
    if (!a.of_processes) count *= std::clamp<std::int64_t>(a.size, 1, most);
    check(count <= most, "Mesh: it has more than {} devices", most);
  }
  std::vector<int> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// The grid coordinates of a position, row-major.
std::vector<std::int64_t> coordinates_at(const Mesh& mesh, std::int64_t position) {
  std::vector<std::int64_t> out(mesh.axes().size());
  for (std::size_t i = out.size(); i-- > 0;) {
    out[i] = position % mesh.axes()[i].size;
    position /= mesh.axes()[i].size;
  }
  return out;
}

std::size_t axis_number(const Mesh& mesh, const std::string& name) {
  for (std::size_t i = 0; i < mesh.axes().size(); ++i)
    if (mesh.axes()[i].name == name) return i;
  throw_type_error(fmt::format("{} has no axis '{}'", to_string(mesh), name));
}

std::string axis_text(const std::string& name) {
  if (name == "none") return internal::quoted(name);
  return word_or_quoted(name);
}

std::string part_text(const std::vector<std::string>& names) {
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
  std::int64_t count = 1, rows = 1;
  std::set<std::string> names;
  for (const MeshAxis& a : axes_) {
    check(a.size >= 1, "Mesh: axis '{}' must have 1 device or more, got {}", a.name, a.size);
    check(!a.name.empty(), "Mesh: axis '{}' needs a name", a.name);
    check(names.insert(a.name).second, "Mesh: axis '{}' is there twice", a.name);
    std::int64_t& of = a.of_processes ? rows : count;
    check(a.size <= most / of, "Mesh: it has more than {} {}", most,
          a.of_processes ? "processes" : "devices");
    of *= a.size;
  }
  check(count == std::ssize(devices_), "Mesh: the axes make a grid of {} devices, {} were given",
        count, devices_.size());
  for (const int d : devices_) {
    check(d >= 0, "Mesh: a device must be an ordinal of devices(), got {}", d);
    check(std::ranges::count(devices_, d) == 1, "Mesh: device {} is there twice", d);
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
  std::int64_t position = found - devices_.begin();
  std::vector<std::int64_t> out(axes_.size(), 0);
  for (std::size_t i = out.size(); i-- > 0;) {
    if (axes_[i].of_processes) continue;
    out[i] = position % axes_[i].size;
    position /= axes_[i].size;
  }
  return out;
}

namespace internal {

bool spans_processes(const Mesh& mesh) {
  return std::ranges::any_of(mesh.axes(), &MeshAxis::of_processes);
}
void refuse_processes(const Mesh& mesh, const char* what) {
  check(!spans_processes(mesh), "{}: {} has axes of processes", what, to_string(mesh));
}

}  // namespace internal

std::string to_string(const Mesh& mesh) {
  Separator comma;
  std::string out = "mesh(";
  for (const MeshAxis& axis : mesh.axes()) {
    out += fmt::format("{}{}={}", comma(), axis_text(axis.name), axis.size);
    if (axis.of_processes) out += " processes";
  }
  bool first_ones = true;
  for (std::size_t i = 0; i < mesh.devices().size(); ++i)
    first_ones = first_ones && mesh.devices()[i] == static_cast<int>(i);
  if (!first_ones) out += fmt::format("; devices {}", fmt::join(mesh.devices(), ","));
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
      axis_number(mesh_, name);
      check(used.insert(name).second, "{}: mesh axis '{}' cuts two axes", to_string(spec_), name);
    }
  // Axes left whole at the end say nothing.
  std::vector<std::vector<std::string>> parts = spec_.parts();
  while (!parts.empty() && parts.back().empty()) parts.pop_back();
  spec_ = P(std::move(parts));
}

bool Sharding::is_replicated() const {
  const std::vector<std::int64_t> nowhere(mesh_.axes().size(), 0);
  return std::ranges::all_of(spec_.parts(), [&](const auto& names) {
    return piece_at(mesh_, names, nowhere).second == 1;
  });
}

Type Sharding::part_type(const Type& whole, Place place) const {
  PlaceScope at(place);
  check(spec_.parts().size() <= whole.dims.size(), "{} names {} axes, {} has {}", to_string(spec_),
        spec_.parts().size(), to_string(whole), whole.dims.size());
  Type out = whole;
  const std::vector<std::int64_t> nowhere(mesh_.axes().size(), 0);
  for (std::size_t i = 0; i < spec_.parts().size(); ++i) {
    const std::int64_t count = piece_at(mesh_, spec_.parts()[i], nowhere).second;
    check(out.dims[i] % count == 0, "{} cuts axis {} of {} into {} parts, which must divide {}",
          to_string(*this), i, to_string(whole), count, out.dims[i]);
    out.dims[i] /= count;
  }
  return out;
}

// An array's axis that several mesh axes cut is cut by the first of them into large pieces, each of
// which the next one cuts. Mesh axes that cut nothing hold copies.
std::vector<IndexRange> internal::index_ranges(const Sharding& sharding, const Dims& whole,
                                               std::int64_t position) {
  const Mesh& mesh = sharding.mesh();
  const auto& parts = sharding.spec().parts();
  const std::vector<std::int64_t> place = coordinates_at(mesh, position);
  std::vector<IndexRange> out;
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::int64_t index = 0, count = 1;
    if (i < parts.size()) std::tie(index, count) = piece_at(mesh, parts[i], place);
    const std::int64_t size = whole[i] / count;
    out.push_back({index * size, (index + 1) * size});
  }
  return out;
}

std::vector<IndexRange> Sharding::part(const Dims& whole, std::int64_t position,
                                       Place place) const {
  PlaceScope at(place);
  check(position >= 0 && position < mesh_.size(), "{} has parts 0 to {}, got {}", to_string(*this),
        mesh_.size() - 1, position);
  part_type({DType::f32, whole});
  return index_ranges(*this, whole, position);
}

std::string to_string(const Sharding& sharding) {
  return fmt::format("{} on {}", to_string(sharding.spec()), to_string(sharding.mesh()));
}

std::string draw(const Sharding& sharding, const Dims& dims, Place place) {
  PlaceScope at(place);
  check(dims.size() == 1 || dims.size() == 2,
        "draw: only arrays of one or two axes can be drawn, got {}", dims_to_string(dims));
  sharding.part_type({DType::f32, dims});
  refuse_processes(sharding.mesh(), "draw");
  const bool flat = dims.size() == 1;
  std::set<std::int64_t> rows, columns;
  struct Cell {
    std::int64_t row, column;
    int device;
  };
  std::vector<Cell> cells;
  for (std::int64_t i = 0; i < sharding.mesh().size(); ++i) {
    const auto range = index_ranges(sharding, dims, i);
    std::int64_t row = 0;
    if (!flat) row = range[0].begin;
    cells.push_back(
        {row, range.back().begin, sharding.mesh().devices()[static_cast<std::size_t>(i)]});
    rows.insert(cells.back().row);
    columns.insert(cells.back().column);
  }
  std::vector<std::vector<std::string>> table;
  std::size_t width = 0;
  for (const std::int64_t r : rows) {
    table.emplace_back();
    for (const std::int64_t c : columns) {
      std::vector<int> devices;
      for (const Cell& cell : cells)
        if (cell.row == r && cell.column == c) devices.push_back(cell.device);
      table.back().push_back(fmt::format("{}", fmt::join(devices, ",")));
      width = std::max(width, table.back().back().size());
    }
  }
  std::string line = "+";
  for (std::size_t c = 0; c < columns.size(); ++c) line += std::string(width + 2, '-') + "+";
  std::string out = line + "\n";
  for (const auto& row : table) {
    out += "|";
    for (const std::string& cell : row) out += fmt::format(" {:^{}} |", cell, width);
    out += "\n" + line + "\n";
  }
  return out;
}

namespace internal {

Sharding on_one_device(int device) { return {Mesh({{"device", 1}}, {device}), P()}; }

std::vector<std::string> unnamed_axes(const Mesh& mesh, const P& spec) {
  std::vector<std::string> out;
  for (const MeshAxis& a : mesh.axes()) {
    const bool named = std::ranges::any_of(
        spec.parts(), [&](const auto& names) { return std::ranges::count(names, a.name) > 0; });
    if (!named) out.push_back(a.name);
  }
  return out;
}

std::vector<std::string> all_axes(const Mesh& mesh) { return unnamed_axes(mesh, P()); }

std::pair<std::int64_t, std::int64_t> piece_at(const Mesh& mesh,
                                               const std::vector<std::string>& names,
                                               const std::vector<std::int64_t>& place) {
  std::int64_t index = 0, count = 1;
  for (const std::string& name : names) {
    const std::size_t a = axis_number(mesh, name);
    index = index * mesh.axes()[a].size + place[a];
    count *= mesh.axes()[a].size;
  }
  return {index, count};
}

std::vector<std::vector<std::int64_t>> device_groups(const Mesh& mesh,
                                                     const std::vector<std::string>& names) {
  std::vector<std::vector<std::int64_t>> groups;
  std::vector<std::vector<std::int64_t>> keys;
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const std::vector<std::int64_t> place = coordinates_at(mesh, i);
    const auto [index, count] = piece_at(mesh, names, place);
    std::vector<std::int64_t> key = place;
    for (const std::string& name : names) key[axis_number(mesh, name)] = 0;
    const auto found = std::ranges::find(keys, key);
    const auto group = static_cast<std::size_t>(found - keys.begin());
    if (found == keys.end()) {
      keys.push_back(key);
      groups.emplace_back(static_cast<std::size_t>(count));
    }
    groups[group][static_cast<std::size_t>(index)] = i;
  }
  return groups;
}

std::string hlo_text(const Sharding& sharding, std::int64_t rank, const std::vector<int>& devices) {
  if (sharding.is_replicated()) return "{replicated}";
  const Mesh& mesh = sharding.mesh();
  std::vector<std::vector<std::string>> names = sharding.spec().parts();
  names.resize(static_cast<std::size_t>(rank));
  const std::vector<std::string> rest = unnamed_axes(mesh, sharding.spec());
  names.push_back(rest);
  std::vector<std::int64_t> tiles;
  const std::vector<std::int64_t> nowhere(mesh.axes().size(), 0);
  for (const auto& n : names) tiles.push_back(piece_at(mesh, n, nowhere).second);
  std::vector<std::int64_t> order(static_cast<std::size_t>(mesh.size()));
  for (std::int64_t i = 0; i < mesh.size(); ++i) {
    const std::vector<std::int64_t> place = coordinates_at(mesh, i);
    std::int64_t tile = 0;
    for (std::size_t d = 0; d < names.size(); ++d)
      tile = tile * tiles[d] + piece_at(mesh, names[d], place).first;
    order[static_cast<std::size_t>(tile)] = partition_of(mesh, i, devices);
  }
  const bool replicates = tiles.back() > 1;
  const auto copies = tiles.back();
  for (auto at = order.begin(); at != order.end(); at += copies)
    std::sort(at, at + copies);  // as XLA does; they hold the same
  if (!replicates) tiles.pop_back();
  return tiling_text(tiles, order, replicates);
}

std::string tiling_text(std::span<const std::int64_t> tiles, std::span<const std::int64_t> devices,
                        bool copies) {
  const char* last = "";
  if (copies) last = " last_tile_dim_replicate";
  return fmt::format("{{devices=[{}]{}{}}}", fmt::join(tiles, ","), fmt::join(devices, ","), last);
}

std::int64_t partition_of(const Mesh& mesh, std::int64_t position,
                          const std::vector<int>& devices) {
  return std::ranges::find(devices, mesh.devices()[static_cast<std::size_t>(position)]) -
         devices.begin();
}

}  // namespace internal

}  // namespace postern
