// Values of a program over processes, as one process has them while the program is rewritten: the
// whole, or this process's part of it. Parts move nowhere until something needs the whole.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/process_sharding.h"
#include "core/scoped.h"
#include "core/sharding.h"
#include "shard/processes.h"

namespace postern::internal {

using Names = std::vector<std::string>;

/// While it lives, what is rewritten on this thread tells whether its text depends on the number of
/// processes, or would be the same for any.
class ProcessCountScope : Scoped<ProcessCountScope*> {
 public:
  ProcessCountScope();
  bool depends() const { return depends_; }
  /// Notes, for the scope that there is on this thread, that the text depends on it.
  static void note_dependence();

 private:
  bool depends_ = false;
};

/// A mesh's axes of processes, and the mesh of the devices of one process.
struct Split {
  /// Throws TypeError where the cluster has other processes.
  explicit Split(const Mesh& global);
  bool is_across(const std::string& name) const;

  const Mesh mesh;
  std::vector<MeshAxis> across;
  const std::optional<Mesh> here;  // none: a process takes part with the device that it runs on
};
using SplitPtr = std::shared_ptr<const Split>;

/// Returns the collective along these axes of processes, and how many meet in it.
clusters::Collective across(const Split& split, clusters::Operation operation, const Names& names);
std::int64_t count_of(const clusters::Collective& collective);

/// The array's axes, as in CollectiveParams, and the place of who sends or gets it all.
struct CollectiveAt {
  std::int64_t axis = 0, concat_axis = 0;
  int root = 0;
};
/// Binds it as a call of the host. Throws TypeError for elements that it does not know.
Tensor bind_collective(clusters::Collective c, const char* name, const Tensor& x,
                       CollectiveAt = {});
/// Computes where this process is along these axes, and how many there are, s32[].
Tensor index_along(const Split& split, const Names& names);
Tensor count_along(const Split& split, const Names& names);

/// Where a value lies: global, or a shard of it on each process.
struct Placement {
  P spec = P();
  SplitPtr split = nullptr;  // null: the whole
  /// The value is a handle for a store, and what is in the store lies so.
  bool offloaded = false;

  Placement() = default;
  /// Means the whole where the sharding cuts along no axis of processes.
  Placement(SplitPtr over, const P& by);
  bool is_sharded() const { return split != nullptr; }
  bool operator==(const Placement& other) const;
  Sharding sharding() const { return {split->mesh, spec}; }
  /// Returns the type of this process's shard.
  Type shard_type(const Type& global) const;
};

struct Placed {
  Tensor tensor;
  Placement placement = {};
};

/// Sends it to all, or to the process of that rank alone: the others then have zeros.
Tensor global_of(const Placed& value, int rank = -1);
/// Cuts it as `placement` says, without a message. Throws TypeError for one that is cut otherwise.
Tensor shard_of(const Placed& value, const Placement& placement);

/// Says "f32[8] lies over processes, P(host) on mesh(host=2 processes)".
std::string placement_text(const Type& global, const Placement& placement);

}  // namespace postern::internal
