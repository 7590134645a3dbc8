// expect: not a container
#include <postern/postern.h>

#include <set>

struct Odd {
  postern::Tensor w;
  std::set<int> unsupported;
};
Odd f(Odd x) {
  return postern::jit([](Odd y) { return y; })(x);
}
