// expect: write jit([&net](pn::Tensor x) { return net.forward(x); })
#include <postern/postern.h>

struct Net {
  postern::Tensor forward(postern::Tensor x) const { return x; }
};
postern::Tensor f(const Net& net, postern::Tensor x) { return postern::jit(&Net::forward)(net, x); }
