// An ensemble of small networks, trained at once: the program for one member, under vmap. Each
// member asks this process for a sample of its own of the measurements, and where the members
// disagree nothing was measured.
#include <postern/postern.h>

#include <cmath>
#include <cstdio>
#include <random>

namespace pn = postern;

namespace {

constexpr std::int64_t members = 16, width = 24, points = 64, steps = 1500;
constexpr float left = -3, right = 1;  // where something was measured

using Network = std::array<pn::Tensor, 4>;

Network random_network(const pn::Tensor& key) {
  const pn::Tensor keys = pn::random::split(key, 3);
  return {3.0f * pn::random::normal(pn::take(keys, 0), pn::type<float>({width})),
          3.0f * pn::random::normal(pn::take(keys, 1), pn::type<float>({width})),
          pn::random::normal(pn::take(keys, 2), pn::type<float>({width})) / std::sqrt(float(width)),
          pn::Tensor(0.0f)};
}

/// The outputs for inputs f32[n].
pn::Tensor outputs(const Network& n, const pn::Tensor& x) {
  return pn::matmul(pn::tanh(pn::expand_dims(x, 1) * n[0] + n[1]), n[2]) + n[3];
}

/// Measures sin(x) with noise, at random places.
void measure(const pn::CallInfo& info, pn::View<float> x, pn::View<float> y) {
  std::mt19937 random(static_cast<unsigned>(info.element));
  std::uniform_real_distribution<float> place(left, right);
  std::normal_distribution<float> noise(0, 0.05f);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    x[i] = place(random);
    y[i] = std::sin(x[i]) + noise(random);
  }
}

/// What one member, made from its key and trained on its sample, says about `places`.
pn::Tensor member(const pn::Tensor& key, const pn::Tensor& places) {
  const pn::Type sample = pn::type<float>({points});
  const auto [x, y] = pn::call({.name = "measure", .effect = pn::Effect::unordered},
                               std::pair{sample, sample}, measure);
  const auto loss = [in = x, out = y](Network n) {
    return pn::mean(pn::square(outputs(n, in) - out));
  };
  const auto descend = [&](pn::Tensor, Network n) {
    const Network slope = pn::grad(loss)(n);
    for (std::size_t i = 0; i < n.size(); ++i) n[i] = n[i] - 0.05f * slope[i];
    return n;
  };
  return outputs(pn::fori_loop(0, steps, descend, random_network(key)), places);
}

}  // namespace

int main() {
  const std::vector<float> places = {-2.5, -1.5, -0.5, 0.5, 2, 3, 4};
  const auto ensemble = pn::jit([](pn::Tensor keys, pn::Tensor x) {
    return pn::vmap(member, {.in_axes = {0, pn::unmapped}})(keys, x);
  });
  const pn::Tensor said =
      ensemble(pn::random::split(pn::random::key(1), members), pn::tensor(places));
  const std::vector<float> mean = pn::mean(said, 0).to_vector<float>();
  const std::vector<float> spread = pn::standard_deviation(said, 0).to_vector<float>();
  bool good = true;
  std::printf("    x   sin x    mean  spread\n");
  for (std::size_t i = 0; i < places.size(); ++i) {
    const float x = places[i], error = std::abs(mean[i] - std::sin(x));
    const bool measured = x > left && x < right;
    std::printf("%5.1f  %6.2f  %6.2f  %6.2f%s\n", double(x), std::sin(double(x)), double(mean[i]),
                double(spread[i]), measured ? "" : "  nothing measured here");
    good = good && (measured ? error < 0.1f && spread[i] < 0.1f : spread[i] > 0.1f);
  }
  return good ? 0 : 1;
}
