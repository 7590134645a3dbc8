// The processes of a job: how many there are, and which one this is. Meshes with axes of
// `processes` spread a program over them. See docs/processes.md.
#pragma once
#include <postern/detail/api.h>

#include <string>

namespace postern {

/// What `cluster` tells: this process among all of the job.
struct Cluster {
  int rank = 0, size = 1;
  std::string transport;  // "Open MPI v4.1.4, ..."; empty where the process is alone
};

/// Returns the cluster that Config::cluster or POSTERN_CLUSTER names, which the process joins when
/// it is first asked for, here or by a mesh: all processes of the job must do so. MPI is begun
/// then, unless the application has done it, and ended with the process, unless the application
/// does that. Throws PluginError when the library cannot be loaded or MPI not be used by several
/// threads.
POSTERN_API Cluster cluster();

}  // namespace postern
