// A training over processes, in steps that are kept as checkpoints, and one process of which may
// kill itself on the way: killed FOLDER STEPS [VICTIM STEP]. Started again it goes on where the
// last checkpoint was. At the end process 0 prints what came out, bit by bit.
#include <postern/postern.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <thread>

namespace pn = postern;
using pn::Tensor;

namespace {

struct State {
  Tensor weights, step;
};

/// Keeps when it was for who started the job.
[[noreturn]] void die(const std::string& folder) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::ofstream(folder + "/killed")
      << std::fixed << std::chrono::duration<double>(now).count() << std::flush;
  ::kill(::getpid(), SIGKILL);
  std::abort();
}

}  // namespace

int main(int count, char** arguments) try {
  if (count < 3) return 2;
  const std::string folder = arguments[1];
  const int steps = std::atoi(arguments[2]);
  const int victim = count > 4 ? std::atoi(arguments[3]) : -1,
            fatal = count > 4 ? std::atoi(arguments[4]) : -1;
  const State start{pn::iota<float>(64) * 0.125f, Tensor(0)};
  // The processes have the same state; one of them keeps it.
  std::optional<pn::listen::Checkpoint> keep;
  if (pn::cluster().rank == 0)
    keep = pn::listen::checkpoint(folder + "/state", {.every = 5, .keep = 2});
  const auto listener = [keep](const pn::TapInfo& info, std::span<const pn::AnyView> leaves) {
    if (keep) (*keep)(info, leaves);
  };
  const auto works = [=](const pn::CallInfo& info, int step, float x) {
    if (info.process == victim && step == fatal) die(folder);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    return x + 0.25f * static_cast<float>(info.process);
  };
  const auto train = pn::jit([=](State s) {
    const auto unfinished = [=](State now) { return now.step < steps; };
    const auto step = [=](State now) {
      const auto slope = [&](Tensor w, Tensor k) {
        const Tensor mine = pn::call({.name = "works", .effect = pn::Effect::ordered},
                                     pn::type<float>({}), works, k, pn::mean(w));
        return pn::psum(pn::sin(w * mine), "host");
      };
      const Tensor total =
          pn::shard_map(slope, pn::Mesh({{"host", pn::processes}}),
                        {.in = {pn::P(), pn::P()}, .out = {pn::P()}})(now.weights, now.step);
      State next{now.weights - 0.01f * total, now.step + 1};
      pn::tap({.name = "state"}, next, listener);
      return next;
    };
    return pn::while_loop(unfinished, step, s);
  });
  const State end = train(pn::resume<State>(folder + "/state").value_or(start));
  pn::barrier();
  if (pn::cluster().rank == 0)
    for (const float w : end.weights.to_vector<float>())
      std::printf("%a\n", static_cast<double>(w));
  return 0;
} catch (const pn::CallbackError& e) {
  // Whoever has heard of it by the error need not be told once more by mpirun's signal.
  std::fprintf(stderr, "process %d ends: %s\n", pn::cluster().rank, e.what());
  std::this_thread::sleep_for(std::chrono::seconds(10));  // mpirun ends the job
  return 1;
}
