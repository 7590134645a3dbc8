// Collectives over processes, on arrays in memory.
#pragma once
#include "rendezvous.h"

namespace postern::internal::clusters {

/// Runs it on `x`, row-major, this process's; the result goes to `y`. `device`: its number, of
/// `relay`. Throws as Rendezvous does.
void run_collective(const Collective& c, const Collective::Group& group, const Type& x_type,
                    const void* x, void* y, Rendezvous& rendezvous, std::int32_t device = 0);

}  // namespace postern::internal::clusters
