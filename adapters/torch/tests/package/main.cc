// A user's program, built against an installation.
#include <ATen/ops/exp.h>
#include <postern/postern.h>
#include <postern/torch.h>

namespace pn = postern;

int main() {
  const auto f = pn::jit([](pn::Tensor x) {
    return pn::torch::call(
        x.type(), [](at::Tensor t) { return at::exp(t); }, x);
  });
  return f(pn::Tensor(0.0f)).item<float>() == 1.0f ? 0 : 1;
}
