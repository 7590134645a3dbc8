// expect: a host function must be callable
#include <postern/postern.h>

struct NoFunction {};
postern::Tensor f(postern::Tensor x) { return postern::call(x.type(), NoFunction(), x); }
