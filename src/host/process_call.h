// The host function that collectives over processes become when they are lowered: its maker is in
// shard/processes.h.
#pragma once
#include <postern/host.h>

namespace postern::host {

bool is_of_processes(const detail::HostFunction& function);

}  // namespace postern::host
