// expect: ignoring return value of
#include <postern/postern.h>

#pragma GCC diagnostic error "-Wunused-result"

void f(postern::Tensor x) { postern::index_set(x, 0, 1.0f); }
