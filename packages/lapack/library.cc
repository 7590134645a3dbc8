// Postern's kernels by LAPACK, in a library as anybody may bring one: it includes public headers
// alone and is opened by load_library, when a program first needs it.
#include "library.h"

#include <postern/library.h>

static void load() {
  postern_lapack::add_kernels();
  postern_lapack::add_targets();
}

POSTERN_LIBRARY("postern_lapack", "0.1", load)
