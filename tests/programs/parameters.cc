// Makes the parameters of a small transformer outside of jit, then runs a program that captures one
// of them.
#include <postern/postern.h>
#include <postern/random.h>

#include <cmath>
#include <vector>

namespace pn = postern;

namespace {

std::vector<pn::Tensor> parameters(const pn::Tensor& key) {
  constexpr std::int64_t width = 64, inner = 256, words = 300, length = 32;
  const pn::Tensor keys = pn::random::split(key, 7);
  auto normal = [&](int i, std::int64_t from, std::int64_t to) {
    return pn::random::normal(keys[i], pn::type<float>({from, to})) *
           (1 / std::sqrt(static_cast<float>(from)));
  };
  const pn::Type row = pn::type<float>({width});
  return {normal(0, words, width),
          normal(1, length, width),
          normal(2, width, 3 * width),
          normal(3, width, width),
          normal(4, width, inner),
          normal(5, inner, width),
          normal(6, width, words),
          pn::ones(row),
          pn::zeros(row),
          pn::ones(row),
          pn::zeros(row),
          pn::zeros(pn::type<float>({inner}))};
}

}  // namespace

int main() {
  const std::vector<pn::Tensor> all = parameters(pn::random::key(42));
  for (const pn::Tensor& p : all) p.block_until_ready();
  const pn::Tensor x = pn::ones(pn::type<float>({1, 300}));
  pn::jit([&](pn::Tensor y) { return pn::matmul(y, all[0]); })(x).block_until_ready();
  return 0;
}
