// In place of driver.cc where the CUDA toolkit was not there when Postern was built.
#include "cuda/driver.h"

namespace postern::cuda {

const Driver& load_driver() {
  throw PluginError(ErrorCode::unimplemented,
                    "this build of Postern has no GPU part: it is built where the CUDA toolkit "
                    "(cuda.h) is installed");
}

}  // namespace postern::cuda
