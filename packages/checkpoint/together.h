// A checkpoint that all processes of a job write to a folder that they share.
//
// What is to become it is gathering-<job>-<firing>/. Each process puts its files there, and when
// they are on disk piece-<rank>, its part of the manifest. Process 0 waits for all pieces and
// renames the folder to ...-closed, from where nobody takes anything back. It makes the manifest of
// the pieces and renames the folder once more: then it counts, and the others, which wait for the
// folder to go, know. A process that fails leaves failed-<rank> with the reason and takes its files
// back, its piece first; process 0 then does the same, and so all fail. No wait is longer than
// Together::patience after the last byte that came, or a second where the run has failed. There are
// no messages, so a run's collectives and its checkpoints do not meet.
#pragma once
#include <functional>

#include "folder.h"

namespace postern::internal::checkpoints {

/// Writes it; called by all processes with snapshots of the same invocation. `turn`: how many there
/// were before it of the same words. `place` says, on process 0, what the checkpoint is to be
/// called. Throws Error.
void write_together(const std::filesystem::path& folder, const Snapshot& snapshot, std::size_t turn,
                    const std::function<std::filesystem::path()>& place);

/// Removes what other jobs left. For who has the folder's lock.
void sweep_gatherings(const std::filesystem::path& folder);

}  // namespace postern::internal::checkpoints
