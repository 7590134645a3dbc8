// side THREADS: steps a second of 32 of MuJoCo's HalfCheetahs, a line for each kind: bare (a loop
// of C++ alone), network (the policy alone, as many steps), rollout (a policy and a pool of so many
// threads), ppo (whole iterations) and learning (these with worlds in which nothing happens). The
// best of many short rounds each, for what else the machine does only adds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "mujoco_world.h"
#include "ppo.h"

namespace pn = postern;

namespace {

constexpr std::int64_t elements = 32, length = 64;
using Pool = pn::Pool<World>;

/// A world of the same types.
struct Nothing {
  static pn::Type action() { return pn::type<float>({6}); }
  static pn::Type observation() { return pn::type<double>({17}); }
  void reset(std::uint64_t, pn::View<double> seen) { std::fill(seen.begin(), seen.end(), 0.0); }
  pn::Stepped step(pn::View<const float>, pn::View<double> seen) {
    std::fill(seen.begin(), seen.end(), 0.0);
    return {.reward = 1};
  }
};

/// `work` does elements * length steps, `times` in a round.
void measure(const char* kind, int times, const std::function<void()>& work) {
  work();
  double best = 0;
  for (int round = 0; round < 50; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) work();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    best = std::max(best, times * static_cast<double>(elements * length) / took.count());
  }
  std::printf("%s %.0f\n", kind, best);
  std::fflush(stdout);
}

/// Each thread has worlds of its own, and waits for nobody within a round. They move as the first
/// policy has them.
void bare(const std::shared_ptr<const mjModel>& model, std::int64_t threads) {
  std::vector<World> worlds;
  std::vector<double> seen(static_cast<std::size_t>(elements) * 17);
  const std::int64_t seen_dims[] = {17}, move_dims[] = {6};
  const auto shown = [&](std::int64_t e) {
    return pn::View<double>(seen.data() + 17 * e, seen_dims, 1, 17);
  };
  for (std::int64_t e = 0; e < elements; ++e) {
    worlds.emplace_back(model, half_cheetah);
    worlds.back().reset(static_cast<std::uint64_t>(e), shown(e));
  }
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> moves(static_cast<std::size_t>(length * elements) * 6);
  for (float& x : moves) x = std::clamp(normal(random), -1.0f, 1.0f);
  const auto share = [&](std::int64_t thread) {
    for (std::int64_t i = 0; i < length; ++i)
      for (std::int64_t e = thread; e < elements; e += threads) {
        const float* const move = moves.data() + 6 * (i * elements + e);
        worlds[static_cast<std::size_t>(e)].step({move, move_dims, 1, 6}, shown(e));
      }
  };
  measure("bare", 1, [&] {
    std::vector<std::jthread> others;
    for (std::int64_t t = 1; t < threads; ++t) others.emplace_back([&, t] { share(t); });
    share(0);
  });
}

/// Acts for `length` steps; `step` gives what is seen next.
template <class Step>
auto rollout_of(const ppo::Model& model, const Step& step) {
  return pn::jit([&model, step](pn::Tensor key, pn::Tensor seen) {
    const auto act = [&](pn::Tensor now, pn::Tensor k) {
      const auto choice = ppo::Continuous::choose(
          k, ppo::forward(model.actor, pn::convert<float>(now)), model.spread);
      return std::pair{step(ppo::Continuous::given(choice.action), now), std::tuple<>()};
    };
    return pn::scan(act, seen, pn::random::split(key, length)).first;
  });
}

template <class S>
void train(const char* kind, const pn::Pool<S>& pool, const ppo::Model& first) {
  const ppo::Settings settings{
      .steps = length, .epochs = 10, .minibatches = 16, .entropy = 0, .normalize = true};
  const ppo::Trainer<ppo::Continuous, S> trainer(
      pool,
      pn::optimize::chain(
          {pn::optimize::clip_by_global_norm(0.5), pn::optimize::adam({.rate = 3e-4})}),
      settings);
  const auto iterate = pn::jit([&](ppo::State now) { return trainer.iterate(now); });
  ppo::State state = trainer.begin(first, pn::random::key(2));
  measure(kind, 1, [&] {
    state = iterate(state);
    state.average.block_until_ready();
  });
}

void compiled(const std::shared_ptr<const mjModel>& model, std::int64_t threads) {
  const Pool pool(elements, [&](std::int64_t) { return World(model, half_cheetah); },
                  {.threads = threads, .max_steps = 1000, .kept = false});
  const pn::Tensor key = pn::random::key(1);
  const ppo::Model first{ppo::network(key, {17, 64, 64, 6}, 0.01f),
                         ppo::network(key, {17, 64, 64, 1}, 1), pn::zeros(pn::type<float>({6}))};
  const auto network = rollout_of(first, [](const pn::Tensor& action, const pn::Tensor& seen) {
    return seen + pn::convert<double>(pn::mean(action));
  });
  const auto rollout = rollout_of(first, [&](const pn::Tensor& action, const pn::Tensor&) {
    return pool.step(action).observations;
  });
  pn::Tensor seen = pool.reset();
  measure("network", 20, [&] { network(key, seen).block_until_ready(); });
  measure("rollout", 1, [&] { (seen = rollout(key, seen)).block_until_ready(); });
  train("ppo", pool, first);
  train("learning", pn::Pool<Nothing>(elements, {.threads = 1, .kept = false}), first);
}

}  // namespace

int main(int, char** arguments) {
  const auto model = World::load(std::string(POSTERN_MUJOCO_MODELS) + "/half_cheetah.xml");
  const std::int64_t threads = std::atoi(arguments[1]);
  bare(model, threads);
  compiled(model, threads);
}
