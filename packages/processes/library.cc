// Joining a job of processes, for who asks first.
#include <postern/library.h>

#include "joined.h"

namespace clusters = postern::internal::clusters;

static void load() {
  clusters::set_join([](const clusters::Transport* transport) -> clusters::Cluster* {
    return clusters::JoinedCluster::join(transport);
  });
}

POSTERN_LIBRARY("postern_processes", "0.1", load)
