// A compiled loop that keeps checkpoints: checkpoint_loop FOLDER STEPS [KILL_AFTER_US [RECORDING
// WORLD [KILL_AT]]]. Goes on from what is in the folder. Its random numbers are a host function's,
// whose engine is a registered state; with a recording they come from a world that gives each once,
// a file with a byte for each. Prints what it ends with, to the bit; or is killed so long after it
// began to run, or before it gets this number.
#include <postern/postern.h>
#include <unistd.h>

#include <bit>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

namespace pn = postern;

struct State {
  pn::Tensor weights, sum, step;
};

/// The next number of the world.
unsigned ask(const std::string& world, int kill_at) {
  std::error_code none;
  const auto given = std::filesystem::file_size(world, none);
  const unsigned next = none ? 1 : static_cast<unsigned>(given) + 1;
  if (static_cast<int>(next) == kill_at) std::raise(SIGKILL);
  std::ofstream(world, std::ios::app) << 'x';
  return next * 2654435761u;
}

int main(int count, char** arguments) try {
  if (count < 3) return 2;
  const std::string folder = arguments[1];
  const int steps = std::atoi(arguments[2]);
  const std::string world = count > 5 ? arguments[5] : "";
  const int kill_at = count > 6 ? std::atoi(arguments[6]) : 0;
  std::mt19937 engine(7);
  const auto registered = pn::register_state("engine", engine);
  std::optional<pn::Taping> recording;
  const auto keep = pn::listen::checkpoint(folder, {.every = 5, .keep = 2});
  const auto train = pn::jit([&](State s) {
    const auto more = [&](const State& now) { return now.step < steps; };
    const auto step = [&](const State& now) {
      const pn::Tensor drawn = pn::call({.name = "draw", .effect = pn::Effect::ordered},
                                        now.weights.type(), [&](pn::View<float> out) {
                                          if (!world.empty()) engine.seed(ask(world, kill_at));
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
  if (!world.empty()) recording.emplace(pn::record(arguments[4], {.resumable = true}));
  const auto kept = recording ? pn::resume(folder, state, *recording) : pn::resume(folder, state);
  if (kept) state = *kept;
  if (pn::plugin_info().calls_back) train.compile(state);
  if (count > 3 && world.empty())
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
