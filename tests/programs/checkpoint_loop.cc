// A compiled loop that keeps checkpoints: checkpoint_loop FOLDER STEPS [KILL_AFTER_US]. Goes on
// from what is in the folder. Its random numbers are a host function's, whose engine is a
// registered state. Prints what it ends with, to the bit; or is killed so long after it began to
// run.
#include <postern/postern.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

namespace pn = postern;

struct State {
  pn::Tensor weights, sum, step;
};

int main(int count, char** arguments) try {
  if (count < 3) return 2;
  const std::string folder = arguments[1];
  const int steps = std::atoi(arguments[2]);
  std::mt19937 engine(7);
  const auto registered = pn::register_state("engine", engine);
  const auto keep = pn::listen::checkpoint(folder, {.every = 5, .keep = 2});
  const auto train = pn::jit([&](State s) {
    const auto more = [&](const State& now) { return now.step < steps; };
    const auto step = [&](const State& now) {
      const pn::Tensor drawn = pn::call({.name = "draw", .effect = pn::Effect::ordered},
                                        now.weights.type(), [&engine](pn::View<float> out) {
                                          for (float& x : out)
                                            x = static_cast<float>(engine() % 1000) * 1e-3f;
                                        });
      const pn::Tensor weights = pn::sin(now.weights * 1.7f + drawn);
      const State next{weights, now.sum + pn::sum(weights), now.step + 1};
      pn::tap({.name = "state"}, next, keep);
      return next;
    };
    return pn::while_loop(more, step, s);
  });
  State state{pn::zeros(pn::type<float>({1000})), pn::Tensor(0.0f), pn::Tensor(0)};
  if (const auto kept = pn::resume(folder, state)) state = *kept;
  train.compile(state);
  if (count > 3)
    std::thread([after = std::atoi(arguments[3])] {
      ::usleep(static_cast<useconds_t>(after));
      std::raise(SIGKILL);
    }).detach();
  const State end = train(state);
  const float sum = end.sum.item<float>();
  pn::barrier();
  std::printf("%d %08x\n", end.step.item<std::int32_t>(), std::bit_cast<unsigned>(sum));
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
