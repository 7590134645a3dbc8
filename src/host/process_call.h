// The host function that collectives over processes become when they are lowered.
#pragma once
#include <postern/attributes.h>
#include <postern/host.h>

#include <memory>

#include "core/site_spec.h"

namespace postern::internal::host {

class RunState;

/// Throws TypeError for attributes that are no collective's: see shard/processes.h.
std::shared_ptr<const detail::HostFunction> process_function(const Attributes& attributes);

/// Throws TypeError where a site of one, from a file, has not the types that it reads and writes.
void check_process_site(const SiteSpec& site);

/// Waits, in a run with such collectives that the host drives, for the end of its own functions and
/// then for all processes: what fails before that fails the run everywhere. Throws its failure.
void meet_at_end(RunState& run);

bool is_of_processes(const detail::HostFunction& function);

}  // namespace postern::internal::host
