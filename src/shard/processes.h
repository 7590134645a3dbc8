// Programs over processes. XLA knows nothing of other processes: before a program is lowered, each
// shard_map over a mesh with axes of processes becomes one over this process's devices, what it
// takes is cut, and collectives along such axes become calls of the host.
#pragma once
#include <postern/attributes.h>
#include <postern/host.h>

#include <memory>
#include <span>

#include "cluster/collectives.h"
#include "core/primitive.h"

namespace postern {

/// The program without axes of processes, the same on all of them. It ends with a call at which all
/// have come to their end. Throws TypeError where a mesh is not for this cluster, and for what
/// cannot be done over processes.
ProgramPtr with_processes_expanded(const ProgramPtr& program);

/// A call of the host for a collective: site/processes.cc. Without an operand for what takes none.
Tensors at_processes(const clusters::Collective& collective, const std::string& name,
                     std::span<const Tensor> x, const Types& results);

/// The host's function behind them: saved programs know it by this name, and the collective by its
/// attributes. Throws TypeError for attributes that are none: host/process_call.cc.
inline constexpr const char* process_call = "postern.processes";
Attributes process_attributes(const clusters::Collective& collective);
std::shared_ptr<const detail::HostFunction> process_function(const Attributes& attributes);

}  // namespace postern
