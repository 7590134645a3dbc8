// What goes on beside runs over processes: a thread that hears of others' failures while this
// process computes, and what is left in the log when the job is ended from outside.
#pragma once

namespace postern::internal::clusters {

class JoinedCluster;

/// Begins once, for the cluster that was joined.
void begin_watching(JoinedCluster& cluster);
/// Wakes it: a run has begun.
void wake_watcher();

}  // namespace postern::internal::clusters
