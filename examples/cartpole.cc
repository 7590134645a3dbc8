// Learns to balance a pole on a cart. The world is a struct of this process, a few lines of C++;
// acting in it, estimating advantages and updating the policy are one compiled loop, which asks the
// world for each step and ends when the policy holds the pole up.
//
//   cartpole [SEED]
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "ppo.h"

namespace pn = postern;

namespace {

constexpr std::int64_t elements = 16, longest = 500;
constexpr int most_iterations = 300;

/// Barto, Sutton and Anderson's cart (1983), with gymnasium's numbers: pushed to the left or to the
/// right at each step, it is to keep the pole upright.
struct CartPole {
  static pn::Type action() { return pn::type<std::int32_t>(); }
  static pn::Type observation() { return pn::type<float>({4}); }

  void reset(std::uint64_t seed, pn::View<float> seen) {
    for (double* value : {&x, &speed, &angle, &spin}) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      *value = 0.1 * (static_cast<double>(seed >> 11) / (1ull << 53)) - 0.05;
    }
    show(seen);
  }

  pn::Stepped step(std::int32_t right, pn::View<float> seen) {
    constexpr double gravity = 9.8, pole_mass = 0.1, total_mass = 1.1, length = 0.5, h = 0.02;
    const double force = right ? 10 : -10, sine = std::sin(angle), cosine = std::cos(angle);
    const double push = (force + pole_mass * length * spin * spin * sine) / total_mass;
    const double turn = (gravity * sine - cosine * push) /
                        (length * (4.0 / 3 - pole_mass * cosine * cosine / total_mass));
    const double pull = push - pole_mass * length * turn * cosine / total_mass;
    x += h * speed;
    speed += h * pull;
    angle += h * spin;
    spin += h * turn;
    show(seen);
    return {.reward = 1, .terminated = std::abs(x) > 2.4 || std::abs(angle) > M_PI / 15};
  }

  void show(pn::View<float> seen) const {
    std::int64_t i = 0;
    for (const double value : {x, speed, angle, spin}) seen[i++] = static_cast<float>(value);
  }

  double x = 0, speed = 0, angle = 0, spin = 0;
};

using Pool = pn::Pool<CartPole>;

ppo::Model first_model(const pn::Tensor& key) {
  const pn::Tensor keys = pn::random::split(key);
  return {ppo::network(keys[0], {4, 64, 64, 2}, 0.01f), ppo::network(keys[1], {4, 64, 64, 1}, 1),
          pn::zeros(pn::type<float>({2}))};
}

/// How long the policy holds the pole up, in the mean over all elements, when it does not try out.
pn::Tensor balanced(const Pool& pool, const ppo::Model& model) {
  const auto act = [&](std::pair<pn::Tensor, pn::Tensor> now) {
    const auto& [seen, standing] = now;
    const pn::Tensor action = pn::argmax(ppo::forward(model.actor, seen), 1);
    const pn::Transition t = pool.step(action);
    const pn::Tensor counted = pn::where(standing, t.rewards, 0.0f);
    return std::pair{std::pair{t.observations, standing & !(t.terminated | t.truncated)}, counted};
  };
  const std::pair start{pool.reset(), pn::full(pn::type<bool>({pool.size()}), true)};
  return pn::sum(pn::scan(act, start, {.length = longest}).second) /
         static_cast<float>(pool.size());
}

}  // namespace

int main(int count, char** arguments) try {
  const std::uint64_t seed = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 1;
  const Pool pool(elements, {.name = "cartpole", .seed = seed, .max_steps = longest});
  const Pool judge(20, {.name = "judge", .seed = ~seed, .max_steps = longest});
  const auto optimizer = pn::optimize::chain(
      {pn::optimize::clip_by_global_norm(0.5), pn::optimize::adam({.rate = 1e-3})});
  const ppo::Trainer<ppo::Discrete, CartPole> trainer(pool, optimizer, {});

  const auto train = pn::jit([&](pn::Tensor key) {
    const auto unfinished = [](ppo::State now) {
      return (now.iteration < most_iterations) & (now.average < 490.0f);
    };
    const auto iterate = [&](const ppo::State& now) {
      const ppo::State next = trainer.iterate(now);
      pn::tap({.name = "progress", .mode = pn::TapMode::async},
              std::pair{next.iteration, next.average}, [](std::int32_t i, float average) {
                if (i % 10 == 0) std::printf("iteration %3d: episodes of %.0f steps\n", i, average);
              });
      return next;
    };
    const pn::Tensor keys = pn::random::split(key);
    const ppo::State end =
        pn::while_loop(unfinished, iterate, trainer.begin(first_model(keys[0]), keys[1]));
    return std::pair{end.iteration, balanced(judge, end.model)};
  });
  const auto [iterations, steps] = train(pn::random::key(seed));
  pn::barrier();
  const float held = steps.item<float>();
  std::printf("after %d iterations it holds the pole up for %.0f of %d steps\n",
              iterations.item<std::int32_t>(), held, static_cast<int>(longest));
  return held >= 475 ? 0 : 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "cartpole: %s\n", e.what());
  return 1;
}
