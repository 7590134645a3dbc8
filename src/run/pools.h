// Pools of simulators, which are a package: how it is opened.
#pragma once
#include <postern/pool.h>

namespace postern::internal::pools {

using Make = std::shared_ptr<detail::PoolCalls>(std::unique_ptr<detail::Simulators> simulators,
                                                const SimulatorOptions& options, Place place);
/// Takes the package's function, while it is loaded.
POSTERN_API void set_maker(Make* make);

}  // namespace postern::internal::pools
