// Spinning before sleeping.
#include "host/spin.h"

#include <sched.h>

#include "host/executor.h"

namespace postern::internal::host {

using namespace std::chrono_literals;

static constexpr int give_up = 6;          // halvings after which no spin is worth its time
static constexpr unsigned try_again = 64;  // waits
static std::atomic<std::chrono::nanoseconds> longest{50us};

void step_aside() {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 2) return;
  const int here = sched_getcpu();
  if (here < 0 || here >= CPU_SETSIZE) return;
  cpu_set_t others = all;
  CPU_CLR(here, &others);
  if (CPU_COUNT(&others) == 0) return;
  if (sched_setaffinity(0, sizeof others, &others) == 0)  // moves the thread at once
    sched_setaffinity(0, sizeof all, &all);
}

std::chrono::nanoseconds longest_spin() {
  return core_count() > 1 ? longest.load(std::memory_order_relaxed) : 0ns;
}
void set_longest_spin(std::chrono::nanoseconds limit) { longest = limit; }

std::chrono::nanoseconds Spin::allowed() {
  const int halvings = halvings_.load(std::memory_order_relaxed);
  if (halvings < give_up) return longest_spin() / (1 << halvings);
  const bool again = skipped_.fetch_add(1, std::memory_order_relaxed) % try_again == try_again - 1;
  return again ? longest_spin() : 0ns;
}

void Spin::failed() {
  const int halvings = halvings_.load(std::memory_order_relaxed);
  if (halvings < give_up) halvings_.store(halvings + 1, std::memory_order_relaxed);
}

}  // namespace postern::internal::host
