// A compiled loop that is watched: metrics_run FOLDER STEPS [KILL_AFTER_US]. Writes events, a table
// and JSON Lines to the folder, and what they should say to stdout; or is killed so long after it
// began to run.
#include <postern/postern.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace pn = postern;

int main(int count, char** arguments) try {
  if (count < 3) return 2;
  const std::string folder = arguments[1];
  const int steps = std::atoi(arguments[2]);
  using Arrays = pn::listen::TensorBoardOptions::Arrays;
  const auto board = pn::listen::tensorboard(folder, {.bins = 8});
  const auto images = pn::listen::tensorboard(folder, {.arrays = Arrays::images});
  const auto table = pn::listen::csv(folder + "/loss.csv");
  const auto lines = pn::listen::jsonl(folder + "/all.jsonl");
  board.add_hyperparameters({{"rate", 0.5}, {"layers", 3}, {"name", "first"}, {"nesterov", true}});
  board.add_text("about", "*two* words");
  const auto train = pn::jit([&](const pn::Tensor& start) {
    const auto step = [&](const pn::Tensor& i, const pn::Tensor& w) {
      const pn::Tensor next = pn::sin(w * 1.7f + 0.1f);
      const std::tuple shown{i, pn::sum(next), std::pair{next, i * 3}};
      pn::tap({.name = "train"}, shown, board);
      pn::tap({.name = "train"}, shown, lines);
      pn::tap({.name = "loss"}, std::pair{i, pn::sum(next)}, table);
      pn::tap({.name = "image"}, pn::reshape(next, {1, 2, 8, 4}), images);
      pn::tap(shown, [](int at, float sum, pn::View<const float> all, int times) {
        std::printf("step %d %.9g %d", at, static_cast<double>(sum), times);
        for (const float x : all) std::printf(" %.9g", static_cast<double>(x));
        std::printf("\n");
        std::fflush(stdout);
      });
      return next;
    };
    return pn::fori_loop(0, steps, step, start);
  });
  const pn::Tensor start = pn::iota(pn::type<float>({64}), 0) * 0.01f;
  train.compile(start);
  if (count > 3)
    std::thread([after = std::atoi(arguments[3])] {
      ::usleep(static_cast<useconds_t>(after));
      std::raise(SIGKILL);
    }).detach();
  board.add("final", pn::sum(train(start)), steps);
  pn::barrier();
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
