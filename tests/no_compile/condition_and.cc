// expect: in place of a && b and a || b write a & b and a | b
#include <postern/postern.h>

postern::Tensor f(postern::Tensor x) { return (x > 0.0f) && (x < 1.0f); }
