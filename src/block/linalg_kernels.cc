// LAPACK kernels of the linear algebra blocks.
#include "block/registry.h"

namespace postern::blocks {

void add_builtin_overrides() {}

}  // namespace postern::blocks
