// What a pool adds to its simulators' own time: a batch, and an element.
#include <postern/pool.h>
#include <postern/postern.h>

#include <chrono>
#include <string>

#include "harness.h"

namespace bench {

namespace pn = postern;

namespace {

/// Takes so long, and computes nothing.
struct Spinner {
  static pn::Type action() { return pn::type<float>({6}); }
  static pn::Type observation() { return pn::type<float>({17}); }
  void reset(std::uint64_t, pn::View<float> seen) { std::fill(seen.begin(), seen.end(), 0.0f); }
  pn::Stepped step(pn::View<const float> action, pn::View<float> seen) {
    spin();
    seen[0] = action[0];
    return {.reward = 1};
  }
  void spin() const {
    const auto end = std::chrono::steady_clock::now() + ns;
    while (std::chrono::steady_clock::now() < end) continue;
  }
  std::chrono::nanoseconds ns{0};
};

/// The loop with a pool, and the same loop with a call that does what its threads do at best.
void measure(Report& report, std::int64_t n, std::int64_t threads, std::chrono::nanoseconds ns) {
  const pn::Pool<Spinner> pool(n, [ns](std::int64_t) { return Spinner{ns}; },
                               {.threads = threads, .kept = false});
  pool.reset();
  const auto loop_of = [&](auto step) {
    return pn::jit([step](pn::Tensor times) {
      return pn::fori_loop(
          0, times, [&](pn::Tensor, pn::Tensor last) { return step(last); },
          pn::zeros(pn::type<float>({})));
    });
  };
  const pn::Type actions = pn::type<float>({n, 6});
  const auto stepped = loop_of([&pool, actions](pn::Tensor last) {
    return pn::sum(pool.step(pn::broadcast_to(last, actions.dims)).rewards) * 0.0f;
  });
  const std::int64_t share = (n + threads - 1) / threads;  // of the busiest
  const auto bare = loop_of([=](pn::Tensor last) {
    const auto spin = [=](pn::View<const float>, pn::View<float>, pn::View<float> rewards,
                          pn::View<bool>, pn::View<bool>) {
      for (std::int64_t e = 0; e < share; ++e) Spinner{ns}.spin();
      std::fill(rewards.begin(), rewards.end(), 1.0f);
    };
    const pn::Type flags = pn::type<bool>({n});
    return pn::sum(std::get<1>(
               pn::call({.effect = pn::Effect::ordered},
                        std::tuple(pn::type<float>({n, 17}), pn::type<float>({n}), flags, flags),
                        spin, pn::broadcast_to(last, actions.dims)))) *
           0.0f;
  });
  const auto side = [](const auto& f) {
    return [&f](std::int64_t times) { f(static_cast<std::int32_t>(times)).block_until_ready(); };
  };
  const std::vector<double> took = race({side(stepped), side(bare)}, 15, 40);
  const std::string name = "pool/" + std::to_string(n) + " of " + std::to_string(ns.count()) +
                           " ns/" + std::to_string(threads) + " threads";
  report.add({name, took[0] / 1e3, "us", "simulators", took[1] / 1e3, "a batch"});
  report.add({name + "/added", (took[0] - took[1]) / 1e3, "us", "", 0,
              "a batch; at most 2 and 0.05 for each element is the aim"});
}

}  // namespace

void pool(Report& report) {
  using namespace std::chrono_literals;
  for (const std::int64_t threads : {1, 2})
    for (const std::int64_t n : {1, 8, 32, 256})
      for (const auto ns : {0ns, 1000ns, 20000ns}) measure(report, n, threads, ns);
}

}  // namespace bench
