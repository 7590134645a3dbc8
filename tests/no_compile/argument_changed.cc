// expect: [](pn::Tensor& x) write [](pn::Tensor x), and return what comes out
#include <postern/postern.h>

void f(postern::Tensor x) {
  postern::jit([](postern::Tensor& y) { y += 1.0f; })(x);
}
