// Programs over processes. XLA knows nothing of other processes: before a program is lowered, each
// shard_map over a mesh with axes of processes becomes one over this process's devices, what it
// takes is cut, and collectives along such axes become calls of the host. What lies over processes
// stays so, as the part that this process has, from argument to result.
#pragma once
#include <postern/attributes.h>
#include <postern/host.h>

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "cluster/collectives.h"
#include "core/primitive.h"
#include "core/sharding.h"

namespace postern::internal {

/// A program on its way to text, and how its inputs are given and its outputs wanted.
struct Expanded {
  using Shardings = std::vector<std::optional<Sharding>>;

  ProgramPtr program;
  Shardings inputs, outputs;
  // By input and output of the whole program: how it lies over processes. None: as anything that
  // is on this process alone.
  Shardings global_inputs = {}, global_outputs = {};
  bool any_global = false;
  bool any_number = false;  // the text is the same for any number of processes
};

/// Makes it a program without axes of processes, of the parts that this process has, the same on
/// all of them. It ends with a call at which all have come to their end. Throws TypeError where a
/// mesh is not for this cluster, and for what cannot be done over processes.
void expand_processes(Expanded& expanded);

extern const Primitive collect_p;

/// What has processes meet. A room further down can: `src/wiring.cc` names it.
struct ProcessAccess {
  /// A call of the host for a collective. Without an operand for what takes none.
  Tensors (*call)(const clusters::Collective& collective, const std::string& name, TensorSpan x,
                  const Types& results);
};
extern const ProcessAccess process_access;

/// Saved programs know the host's function behind such calls by this name, and the collective by
/// its attributes.
inline constexpr const char* process_call = "postern.processes";
Attributes process_attributes(const clusters::Collective& collective);

}  // namespace postern::internal
