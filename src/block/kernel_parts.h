// Kernels of programs over several devices, each run on the parts of its operands.
#pragma once
#include <optional>
#include <vector>

#include "core/primitive.h"
#include "core/sharding.h"

namespace postern::internal::blocks {

/// Returns the program, whose inputs lie so, with a shard_map in the place of each block and target
/// that says how it may be cut and whose operands are: as far as it can be told without XLA.
ProgramPtr with_kernels_on_parts(const ProgramPtr& program,
                                 const std::vector<std::optional<Sharding>>& inputs);

}  // namespace postern::internal::blocks
