// The calls that collectives over processes become: what shard/processes.h says of them.
#pragma once
#include "shard/processes.h"

namespace postern::internal {

Tensors at_processes(const clusters::Collective& collective, const std::string& name, TensorSpan x,
                     const Types& results);

}  // namespace postern::internal
