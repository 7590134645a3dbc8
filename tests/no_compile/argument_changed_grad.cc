// expect: [](pn::Tensor& x) write [](pn::Tensor x), and return what comes out
#include <postern/postern.h>

postern::Tensor f(postern::Tensor x) {
  return postern::grad([](postern::Tensor& y) { return y * y; })(x);
}
