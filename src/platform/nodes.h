// The processes of a cluster as XLA's nodes: plug-ins for GPUs have collectives between them.
#pragma once
#include <vector>

#include "cluster/cluster.h"
#include "pjrt/client.h"
#include "pjrt/key_values.h"

namespace postern::internal::platforms {

struct Platform;

struct Nodes {
  int number = 0, count = 1;
  const pjrt::KeyValues* store = nullptr;  // lives as long as the process

  /// Returns what the plug-in is told: num_nodes, node_id.
  std::vector<pjrt::ClientOption> options() const;
};

/// Opens what joins a cluster; see ClusterAccess. Without it null, or PluginError if it is
/// `needed`.
clusters::Join* join_of_cluster(bool needed);

/// Joins the cluster, whose processes are the nodes.
Nodes nodes_of_cluster();

/// Has the clients that the platform makes from now on be nodes. Throws TypeError for one whose
/// plug-in knows nothing of other processes.
void join_nodes(const Platform& platform);
/// Returns null until then.
const Nodes* joined_nodes();

}  // namespace postern::internal::platforms
