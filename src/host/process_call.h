// The host function that collectives over processes become when they are lowered.
#pragma once
#include <postern/attributes.h>
#include <postern/host.h>

#include <memory>

namespace postern::internal::host {

/// Throws TypeError for attributes that are no collective's: see shard/processes.h.
std::shared_ptr<const detail::HostFunction> process_function(const Attributes& attributes);

bool is_of_processes(const detail::HostFunction& function);

}  // namespace postern::internal::host
