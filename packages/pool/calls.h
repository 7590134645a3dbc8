// Pools as calls: what a program asks of them.
#pragma once
#include <postern/pool.h>

namespace postern::internal::pools {

/// Makes what a Pool has. Throws TypeError, and as register_state does.
std::shared_ptr<detail::PoolCalls> make(std::unique_ptr<detail::Simulators> simulators,
                                        const SimulatorOptions& options, Place place);

}  // namespace postern::internal::pools
