// Torch and Postern in each other, where libtorch is there: a program of its own.
#include "harness.h"

namespace bench {

#ifdef POSTERN_BENCH_TORCH
void torch(Report& report) { report.add_output_of("'" POSTERN_BENCH_TORCH "'"); }
#else
void torch(Report&) {}  // scripts/bootstrap --torch gets what it needs
#endif

}  // namespace bench
