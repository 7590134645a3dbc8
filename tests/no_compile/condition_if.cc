// expect: in place of if (c) and c ? a : b write pn::where(c, a, b)
#include <postern/postern.h>

postern::Tensor f(postern::Tensor x) {
  if (x > 0.0f) return x;
  return -x;
}
