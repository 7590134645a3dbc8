// shard_map and what looks for it: the mesh that is being traced over, and the devices that a program needs.
#pragma once
#include "core/primitive.h"
#include "core/sharding.h"
#include "lower/lowering.h"

namespace postern {

extern const Primitive shard_map_p, constrain_p, axis_index_p;

/// The mesh whose parts are being traced on this thread; null outside of shard_map.
const Mesh* current_mesh();
class MeshScope {
 public:
  explicit MeshScope(const Mesh& mesh);
  ~MeshScope();
  MeshScope(const MeshScope&) = delete;

 private:
  const Mesh* outer_;
};

/// The meshes that a program's own equations are spread over.
std::vector<Mesh> meshes_of(const Program& program);

/// Whether the primitive is somewhere in it.
bool uses(const Program& program, const Primitive& primitive);
/// Whether devices meet in it.
bool has_collective(const Program& program);

/// Whether the run goes on, pred[], as `told` by one of its functions (-1: as it is now); `together`: as all devices have it.
Ssa goes_on(Lowering& out, Ssa told, bool together);

/// Sum over mesh axes, inside of that mesh's shard_map; unlike the public one it does not look for the mesh.
Tensor sum_over(const Mesh& mesh, const std::vector<std::string>& axes, const Tensor& x);

}  // namespace postern
