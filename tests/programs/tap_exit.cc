// Ends, in the way that its argument names, right after a run with three asynchronous taps: return,
// exit, throw; fail, fail-exit, fail-throw and stuck are about the listener. Ends with 7.
#include <postern/postern.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>

namespace pn = postern;
using namespace std::chrono_literals;

long threads() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

int main(int, char** argv) {
  const std::string how = argv[1];
  pn::configure({.exit_limit = how == "stuck" ? 200ms : 5000ms});
  static const std::string mode = how;  // the listener may run after main
  auto f = pn::jit([](pn::Tensor x) {
    for (int i = 0; i < 3; ++i)
      x = pn::tap({.mode = pn::TapMode::async}, x + 1.0f, [](float v) {
        if (mode.starts_with("fail")) throw std::runtime_error("no disk");
        std::this_thread::sleep_for(mode == "stuck" ? 1000s : 50ms);
        if (mode != "threads") {
          std::printf("tap %g\n", v);
          std::fflush(stdout);
        }
      });
    return x;
  });
  if (how == "threads") {
    auto plain = pn::jit([](pn::Tensor x) {
      return pn::call(
                 x.type(), [](float v) { return v; }, x) +
             1.0f;
    });
    pn::jit([](pn::Tensor x) { return x + 1.0f; })(1.0f).item<float>();  // XLA has its threads
    const long before = threads();
    plain(pn::Tensor(1.0f)).item<float>();
    const long without = threads() - before;
    f(pn::Tensor(0.0f)).item<float>();
    std::printf("%ld more without taps, %ld with\n", without, threads() - before);
    return 7;
  }
  f(pn::Tensor(0.0f)).item<float>();
  if (how.ends_with("throw")) throw std::runtime_error("out of main");
  if (how.ends_with("exit")) std::exit(7);
  return 7;
}
