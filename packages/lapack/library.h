// What the library brings.
#pragma once

namespace postern_lapack {

void add_kernels();  // overrides of the linear algebra blocks
void add_targets();  // FFI handlers that programs exported by JAX call

}  // namespace postern_lapack
