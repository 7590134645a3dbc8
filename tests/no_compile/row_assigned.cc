// expect: write x = pn::index_set(x, i, y)
#include <postern/postern.h>

void f(postern::Tensor x, postern::Tensor y) { x[0] = y; }
