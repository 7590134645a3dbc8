// Nodes speak by the store of the cluster until their plug-ins speak for themselves.
#include "platform/nodes.h"

#include <atomic>

#include "core/check.h"
#include "platform/package.h"
#include "platform/platform.h"

namespace postern::internal::platforms {

static std::atomic<const Nodes*> joined{nullptr};

std::vector<pjrt::ClientOption> Nodes::options() const {
  return {{"num_nodes", std::int64_t{count}}, {"node_id", std::int64_t{number}}};
}

clusters::Join* join_of_cluster(bool needed) {
  const bool is_loaded = load_package("processes", "cluster");
  clusters::Join* const join = clusters::join_of_package();
  if (needed && !(is_loaded && join)) refuse_without("processes", "cluster: ");
  return join;
}

Nodes nodes_of_cluster() {
  static const auto* const store = new pjrt::KeyValues{
      [](const std::string& key, const std::string& value) {
        clusters::Store::get().put(key, value);
      },
      [](const std::string& key) { return clusters::Store::get().try_get(key); },
      [](const std::string& key, std::chrono::milliseconds limit) {
        return clusters::Store::get().get(key, limit);
      }};
  const clusters::Cluster& cluster = clusters::Cluster::get();
  clusters::Store::get();  // process 0 answers from now on
  return {cluster.rank(), cluster.size(), store};
}

void join_nodes(const Platform& platform) {
  check(!platform.on_host,
        "Config::processes: the {} plug-in knows nothing of other processes; there shard_map over "
        "a mesh with an axis of `processes` is what spreads programs over them",
        platform.name);
  joined = new Nodes(nodes_of_cluster());
}
const Nodes* joined_nodes() { return joined.load(); }

}  // namespace postern::internal::platforms
