// A function with a time limit runs on a thread that goes on late after it: what it captured must
// have gone with its run all the same.
#include <postern/postern.h>
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <thread>
#include <vector>

namespace pn = postern;
using namespace std::chrono_literals;

int main() {
  std::atomic<bool> over{false};
  std::vector<std::thread> busy;
  for (int i = 0; i < 4; ++i)
    busy.emplace_back([&] {
      while (!over) {
      }
    });
  const auto capture = std::make_shared<int>(1);
  int kept = 0;
  for (int i = 0; i < 20; ++i) {
    {
      auto f = pn::jit([capture](pn::Tensor x) {
        return pn::call(
            {.timeout = 60s}, x.type(),
            [capture](float v) {
              const sched_param none{};
              sched_setscheduler(0, SCHED_IDLE, &none);
              return v + 1;
            },
            x);
      });
      f(pn::Tensor(1.0f)).block_until_ready();
    }
    pn::barrier();
    kept += capture.use_count() > 1;
  }
  over = true;
  for (std::thread& t : busy) t.join();
  std::printf("%d of 20 runs left a closure behind\n", kept);
  return kept ? 1 : 0;
}
