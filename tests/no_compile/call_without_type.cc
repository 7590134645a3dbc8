// expect: in place of call(f, x) write call(x.type(), f, x)
#include <postern/postern.h>

postern::Tensor f(postern::Tensor x) {
  return postern::call([](float v) { return v; }, x);
}
