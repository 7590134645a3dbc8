// In place of driver.cc where the CUDA toolkit was not there when Postern was built.
#include <postern/error.h>

#include "platform/cuda/cuda.h"

namespace postern::internal::platforms {

const gpu::Driver& load_cuda_driver() {
  throw PluginError(ErrorCode::unimplemented,
                    "this build of Postern has no GPU part: it is built where the CUDA toolkit "
                    "(cuda.h) is installed");
}

}  // namespace postern::internal::platforms
