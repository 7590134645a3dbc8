// What collectives are given: axes of the mesh that is traced over, or of vmaps, by name.
#pragma once
#include <postern/shard.h>

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "core/params.h"
#include "shard/shard_map.h"
#include "transform/axis.h"

namespace postern::internal {

struct CollectiveParams {
  Mesh mesh;
  std::vector<std::string> axes;
  // Of the array: what is gathered or scattered, and what all_to_all splits.
  std::int64_t axis = 0;
  std::int64_t concat_axis = 0;                 // what all_to_all joins; "other" in texts
  std::vector<std::pair<int, int>> pairs = {};  // of ppermute
  int root = 0;             // the place of the one that sends or gets, of broadcast and its like
  bool user_knows = false;  // of axis_count: its number is one of the program's
  auto fields(Fields sink) const {
    std::string text;
    for (const auto& [from, to] : pairs)
      text += fmt::format("{}{}>{}", text.empty() ? "" : " ", from, to);
    return sink.field("mesh", to_string(mesh))
        .field("axes", axes)
        .field("axis", axis)
        .field("other", concat_axis)
        .when(!pairs.empty(), "pairs", text)
        .when(root != 0, "root", root)
        .when(user_knows, "user_knows", user_knows);
  }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (const std::string& a : axes) n *= mesh.size(a);
    return n;
  }
};

/// The axes that a collective names, each of a vmap or of the mesh that is traced over.
class NamedAxes {
 public:
  NamedAxes(const char* op, const AxisNames& axes) : op_(op), names_(axes.names()) {
    const std::vector<BatchAxisPtr> batches = AxisScope::all();
    const Mesh* mesh = current_mesh();
    for (const std::string& name : names_) {
      const auto batch = std::ranges::find(batches, name, &BatchAxis::name);
      const bool batched = batch != batches.end(), meshed = mesh && has(*mesh, name);
      if (!batched && !meshed) refuse_unknown(name, batches, mesh);
      check(!batched || !meshed, "{}: '{}' is an axis of the mesh here and of a vmap", op, name);
      check(std::ranges::count(names_, name) == 1, "{}: axis '{}' is named twice", op, name);
      batches_.push_back(batched ? *batch : nullptr);
    }
    if (mesh) mesh_ = *mesh;
    if (names_.empty() && !mesh) refuse_unknown("", batches, mesh);
  }

  std::size_t size() const { return names_.size(); }
  bool of_mesh() const {
    return std::ranges::none_of(batches_, [](auto& batch) { return batch != nullptr; });
  }
  bool of_batches() const {
    return !names_.empty() &&
           std::ranges::all_of(batches_, [](auto& batch) { return batch != nullptr; });
  }
  /// Returns the axis of the i-th: null for one of the mesh.
  const BatchAxisPtr& batch(std::size_t i) const { return batches_[i]; }
  /// Returns the parameters of a collective along the i-th, or along all that are of the mesh;
  /// `axis`: the array's.
  CollectiveParams of_mesh(std::size_t i, std::int64_t axis = 0) const {
    return {mesh_.value(), {names_[i]}, axis};
  }
  CollectiveParams all_of_mesh(std::int64_t axis = 0) const {
    CollectiveParams p{mesh_.value(), {}, axis};
    for (std::size_t i = 0; i < size(); ++i)
      if (!batches_[i]) p.axes.push_back(names_[i]);
    return p;
  }
  std::int64_t count(std::size_t i) const {
    return batches_[i] ? batches_[i]->size : mesh_.value().size(names_[i]);
  }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (std::size_t i = 0; i < size(); ++i) n *= count(i);
    return n;
  }
  /// Returns the only one, for what can be done along one axis of a vmap alone.
  const BatchAxisPtr& only() const {
    check(size() == 1, "{}: over '{}', of which one is of a vmap; name one alone", op_,
          fmt::join(names_, "', '"));
    return batches_[0];
  }

 private:
  static bool has(const Mesh& mesh, const std::string& name) {
    return std::ranges::find(mesh.axes(), name, &MeshAxis::name) != mesh.axes().end();
  }
  [[noreturn]] void refuse_unknown(const std::string& name,
                                   const std::vector<BatchAxisPtr>& batches,
                                   const Mesh* mesh) const {
    std::vector<std::string> known;
    for (const BatchAxisPtr& b : batches)
      known.push_back(fmt::format("'{}' ({} of a vmap)", b->name, b->size));
    if (mesh) known.push_back(to_string(*mesh));
    check(!known.empty(),
          "{}: there is no mesh axis '{}' here; collectives work on the parts inside shard_map and "
          "pmap, and on the elements inside vmap with an axis_name",
          op_, name);
    throw_type_error(fmt::format("{}: there is no axis '{}' here; there are {}", op_, name,
                                 fmt::join(known, ", ")));
  }

  const char* op_;
  std::vector<std::string> names_;
  std::vector<BatchAxisPtr> batches_;
  std::optional<Mesh> mesh_;
};

}  // namespace postern::internal
