// Meshes of devices, and how arrays are spread over them.
#pragma once
#include <postern/detail/api.h>
#include <postern/type.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace postern {

/// Names of mesh axes: "x", or {"x", "y"}, the first of which is the slowest to change. No member
/// throws: what names no axis is found where it is used.
class AxisNames {
 public:
  /// Takes one name, or a list.
  AxisNames(const char* name) : names_{name} {}
  AxisNames(std::string name) : names_{std::move(name)} {}
  AxisNames(std::initializer_list<std::string> names) : names_(names) {}
  AxisNames(std::vector<std::string> names) : names_(std::move(names)) {}
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
};

/// The size of a mesh axis along which processes lie: `processes` for all of the cluster,
/// `processes(2)` for so many where several axes share them.
struct Processes {
  std::int64_t count = 0;  // 0: all
  /// Makes so many. Throws nothing.
  constexpr Processes operator()(std::int64_t n) const { return {n}; }
};
inline constexpr Processes processes;

struct MeshAxis {
  std::string name;
  std::int64_t size;
  bool of_processes = false;
  /// Names an axis along which so many devices lie. Throws nothing: Mesh says what sizes there are.
  MeshAxis(std::string axis, std::int64_t devices) : name(std::move(axis)), size(devices) {}
  /// Joins the cluster, which says how many there are; throws as `cluster` of cluster.h does.
  POSTERN_API MeshAxis(std::string axis, Processes count);
  bool operator==(const MeshAxis&) const = default;
};

/// Devices in a grid whose axes have names, row-major. Axes of processes (`{"host", processes}`)
/// say which process has a device, the others which one of that process it is. As P and Sharding, a
/// value that several threads may read at once. No member throws unless it is said.
class Mesh {
 public:
  /// Takes the first devices of `devices()`: `Mesh({{"x", 2}, {"y", 4}})` has eight. Throws
  /// TypeError for sizes below 1 and names that are empty or given twice; whether there are so many
  /// devices is asked where it is used. Axes of processes need no devices.
  POSTERN_API Mesh(std::vector<MeshAxis> axes, Caller caller = Caller(Place::current()));
  /// Takes these devices, by ordinal. Throws TypeError as that does, when their number is not that
  /// of the grid, when one comes twice, and when one is negative.
  POSTERN_API Mesh(std::vector<MeshAxis> axes, std::vector<int> devices,
                   Place place = Place::current());

  /// Returns them as they were given.
  const std::vector<MeshAxis>& axes() const { return axes_; }
  /// Returns those of this process.
  const std::vector<int>& devices() const { return devices_; }
  /// Counts those of all processes.
  POSTERN_API std::int64_t size() const;
  /// Returns that of an axis; throws TypeError for a name that the mesh does not have.
  POSTERN_API std::int64_t size(const std::string& axis, Place place = Place::current()) const;
  /// Returns where a device is, by axis; empty when it is not in the mesh. Along axes of processes:
  /// 0.
  POSTERN_API std::vector<std::int64_t> coordinates(int device) const;
  bool operator==(const Mesh&) const = default;

 private:
  std::vector<MeshAxis> axes_;
  std::vector<int> devices_;
};
/// Returns "mesh(x=2, y=4)", with its devices where they are not the first ones; "host=2 processes"
/// for an axis of processes. Throws nothing.
POSTERN_API std::string to_string(const Mesh& mesh);

/// Which mesh axes cut which axes of an array: `P("x")` cuts the first, `P(nullopt, "y")` the
/// second, `P(AxisNames{"x", "y"})` the first by both; axes that are not named are whole. JAX's
/// PartitionSpec. No member throws: what does not fit a mesh is found by Sharding.
class P {
 public:
  class Part {
   public:
    /// Names the mesh axes that cut one axis of the array; nullopt: none.
    Part(std::nullopt_t) {}
    Part(const char* name) : names_{name} {}
    Part(std::string name) : names_{std::move(name)} {}
    Part(const AxisNames& names) : names_(names.names()) {}
    const std::vector<std::string>& names() const { return names_; }

   private:
    std::vector<std::string> names_;
  };

  /// Takes one part for each axis of the array, from the first on.
  template <class... Parts>
  requires(std::is_convertible_v<Parts, Part>&&...) explicit P(Parts... parts)
      : parts_{Part(std::move(parts)).names()...} {}
  explicit P(std::vector<std::vector<std::string>> parts) : parts_(std::move(parts)) {}

  /// Returns them by axis of the array; fewer than it has axes where the last ones are whole.
  const std::vector<std::vector<std::string>>& parts() const { return parts_; }
  bool operator==(const P&) const = default;

 private:
  std::vector<std::vector<std::string>> parts_;
};
/// Returns it as it prints: "P(x, none, (y, z))". Throws nothing.
POSTERN_API std::string to_string(const P& spec);

/// Indices `begin` to `end` - 1.
struct IndexRange {
  std::int64_t begin, end;
  bool operator==(const IndexRange&) const = default;
};

/// How an array lies on the devices of a mesh. Devices along axes that the spec does not name hold
/// the same. May be read by several threads at once. No member throws unless it is said.
///
///   const pn::Mesh mesh({{"x", 2}});
///   const pn::Sharding rows(mesh, pn::P("x"));
///   const pn::Type part = rows.part_type(pn::type<float>({8, 3}));  // f32[4,3]
class Sharding {
 public:
  /// Throws TypeError for names that the mesh does not have, and names used twice.
  POSTERN_API Sharding(Mesh mesh, P spec, Place place = Place::current());
  /// Returns them as they were given.
  const Mesh& mesh() const { return mesh_; }
  const P& spec() const { return spec_; }

  /// Returns the type of one part. Throws TypeError when the spec has more entries than the array
  /// has axes or does not divide its extents.
  POSTERN_API Type part_type(const Type& whole, Place place = Place::current()) const;
  /// Returns the part of `whole` that the mesh's device number `position` holds, by axis. Throws
  /// TypeError as part_type does, and for a position that the mesh does not have.
  POSTERN_API std::vector<IndexRange> part(const Dims& whole, std::int64_t position,
                                           Place place = Place::current()) const;
  /// Returns whether every device holds all of it.
  POSTERN_API bool is_replicated() const;
  bool operator==(const Sharding&) const = default;

 private:
  Mesh mesh_;
  P spec_;
};
/// Returns the mesh and the spec, as they print. Throws nothing.
POSTERN_API std::string to_string(const Sharding& sharding);

/// Returns what lies where, drawn as text: a grid with the devices of each part, for arrays of one
/// or two axes. Throws TypeError for others, for extents that are not divided evenly, and for
/// meshes over processes.
POSTERN_API std::string draw(const Sharding& sharding, const Dims& dims,
                             Place place = Place::current());

}  // namespace postern
