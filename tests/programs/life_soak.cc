// Many calls, runs (half of them failing), compilations and timeouts: memory, threads and closures
// must not grow. "small": fewer of them.
#include <postern/postern.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace pn = postern;
using namespace std::chrono_literals;

namespace {

double resident_mib() {
  std::ifstream in("/proc/self/status");
  for (std::string word; in >> word;)
    if (double kib; word == "VmRSS:" && in >> kib) return kib / 1024;
  return 0;
}
int threads() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    ++count;
  return count;
}

std::atomic<int> live{0};
struct Capture {
  Capture() { ++live; }
  Capture(const Capture&) { ++live; }
  ~Capture() { --live; }
};

void work(int rounds) {
  auto looping = pn::jit([c = Capture()](pn::Tensor n) {
    return pn::fori_loop(
        0, n,
        [&](pn::Tensor, pn::Tensor x) {
          return pn::call(
              x.type(), [c](float v) { return v + 1; }, x);
        },
        pn::Tensor(0.0f));
  });
  looping(pn::Tensor(rounds * 20)).block_until_ready();
  auto failing = pn::jit([c = Capture()](pn::Tensor x) {
    return pn::call(
        x.type(), [c](int v) { return v % 2 ? throw std::runtime_error("odd") : v; }, x);
  });
  for (int i = 0; i < rounds; ++i) {
    try {
      if (failing(pn::Tensor(i)).item<int>() != i) std::abort();
    } catch (const pn::CallbackError& e) {
      if (i % 2 == 0) std::abort();
    }
  }
  for (int i = 0; i < rounds / 50; ++i) {  // the same text, compiled once; new closures each time
    auto again = pn::jit([c = Capture(), i](pn::Tensor x) {
      return pn::call(
          x.type(), [c, i](int v) { return v + i; }, x);
    });
    if (again.start(pn::Tensor(1)).result().item<int>() != 1 + i) std::abort();
  }
  auto limited = pn::jit([c = Capture()](pn::Tensor x) {
    return pn::call(
        {.timeout = 10s}, x.type(), [c](int v) { return v; }, x);
  });
  for (int i = 0; i < rounds / 50; ++i) limited(pn::Tensor(i)).block_until_ready();
  pn::barrier();
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 && std::string(argv[1]) == "small" ? 1000 : 10'000;
  work(rounds);  // warms up
  work(rounds);
  const double before = resident_mib();
  const int threads_before = threads();
  for (int i = 0; i < 3; ++i) work(rounds);
  const double grown = resident_mib() - before;
  // On a busy machine a thread may begin its work before the last one has gone idle; those that are
  // too many go.
  for (int i = 0; i < 1500 && threads() > threads_before + 2; ++i)
    std::this_thread::sleep_for(10ms);
  std::printf("%.1f MiB grown from %.1f, %d threads before, %d after, %d closures live\n", grown,
              before, threads_before, threads(), live.load());
  return grown < 10 && threads() <= threads_before + 2 && live == 0 ? 0 : 1;
}
