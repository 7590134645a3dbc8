// shard_map and what looks for it: the mesh that is being traced over, and the devices that a
// program needs.
#pragma once
#include "core/primitive.h"
#include "core/scoped.h"
#include "core/sharding.h"
#include "lower/collectives.h"

namespace postern::internal {

extern const Primitive shard_map_p, constrain_p, axis_index_p;

/// Returns the mesh whose parts are being traced on this thread; null outside of shard_map.
const Mesh* current_mesh();
class MeshScope : Scoped<const Mesh*> {
 public:
  explicit MeshScope(const Mesh& mesh);
};

struct ShardMapParams {
  Mesh mesh;
  std::vector<P> in, out;
  ProgramPtr body;
  auto fields(Fields sink) const {
    auto specs = [](const std::vector<P>& list) {
      std::vector<std::string> texts;
      for (const P& spec : list) texts.push_back(to_string(spec));
      return fmt::format("{}", fmt::join(texts, ", "));
    };
    return sink.field("mesh", to_string(mesh))
        .field("in", specs(in))
        .field("out", specs(out))
        .field("body", body);
  }
};

/// Returns the meshes that a program's own equations are spread over.
std::vector<Mesh> meshes_of(const Program& program);

/// Returns whether the primitive is somewhere in it.
bool uses(const Program& program, const Primitive& primitive);
/// Returns the axes that a collective or axis_index is about.
const std::vector<std::string>& collective_axes(const Equation& equation);
/// Throws where devices meet in a branch or loop of a shard_map's body and may not all come there.
void refuse_different_ways(const Program& body, const Mesh& mesh, const std::vector<P>& in);
/// Throws for a place with one order over all devices that they might pass a different number of
/// times, and then wait for each other for ever. `inside`: what of the program it is in.
void refuse_one_order(const Program& body, const char* inside = nullptr);
/// Returns by output of a shard_map's body: axes along which devices may differ.
std::vector<std::vector<std::string>> axes_that_differ(const Program& body, const Mesh& mesh,
                                                       const std::vector<P>& in);
/// Binds what device_put is in a trace, and returns the sharding that such an equation is about.
const Sharding& constraint_of(const Equation& equation);
Tensor constrained(const Tensor& x, const Sharding& sharding);

/// Returns the body of a shard_map whose sites say of which whole their first operand is a part
/// (SiteSpec::cut), where that can be told.
ProgramPtr with_parts(const ProgramPtr& body, const Mesh& mesh, const std::vector<P>& in);

/// Sums over mesh axes, in that mesh's shard_map; unlike the public one it is given the mesh.
Tensor sum_over(const Mesh& mesh, const std::vector<std::string>& axes, const Tensor& x);

}  // namespace postern::internal
