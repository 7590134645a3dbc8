// Two layers of one shape, each ending in a call, run twice in stages.
#include <postern/postern.h>

namespace pn = postern;

int main() {
  auto layer = [](pn::Tensor x, pn::Tensor w) {
    const pn::Tensor y = pn::tanh(pn::matmul(x, w));
    return pn::call(
        y.type(),
        [](pn::View<const float> in, pn::View<float> out) {
          std::copy(in.begin(), in.end(), out.begin());
        },
        y);
  };
  auto f =
      pn::jit([&](pn::Tensor x, pn::Tensor w1, pn::Tensor w2) { return layer(layer(x, w1), w2); },
              {.mode = pn::Mode::staged});
  const pn::Tensor x(pn::type<float>({2, 2}), std::vector<float>{1, 2, 3, 4}.data()),
      w(pn::type<float>({2, 2}), std::vector<float>{1, 0, 0, 1}.data());
  for (int i = 0; i < 2; ++i) f(x, w, x).block_until_ready();
  return f.stages(x, w, x).size() == 4 ? 0 : 1;
}
