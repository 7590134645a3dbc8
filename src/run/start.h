// Runs that were started: on a host thread, watched by whoever waits.
#pragma once
#include <postern/run.h>

#include "run/compiled.h"

namespace postern::detail {

std::shared_ptr<StartedRun> start_run(std::shared_ptr<const internal::run::CompiledProgram> program,
                                      std::vector<Tensor> arguments, const RunOptions& options,
                                      std::span<const internal::SitePtr> sites);
/// Starts a run of any kind: `body` does it, with `state`. `sites`: of the program.
std::shared_ptr<StartedRun> start_run(std::shared_ptr<internal::host::RunState> state,
                                      std::function<std::vector<Tensor>()> body,
                                      const RunOptions& options,
                                      std::span<const internal::SitePtr> sites);

/// Keeps `thing` until the program's run is over, and nobody has its handle any more.
void keep_with(StartedRun& run, std::shared_ptr<const void> thing);

}  // namespace postern::detail
