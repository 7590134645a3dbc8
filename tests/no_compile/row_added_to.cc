// expect: x = pn::index_add(x, i, y)
#include <postern/postern.h>

void f(postern::Tensor x) { x[1] += 1.0f; }
