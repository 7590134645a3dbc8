// Host threads.
#include "host/executor.h"

#include <fmt/format.h>
#include <postern/error.h>
#include <postern/library.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <memory>
#include <new>
#include <thread>

#include "core/fork.h"
#include "core/lists.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "core/thread_end.h"
#include "host/float_state.h"
#include "host/gate.h"
#include "host/run_state.h"
#include "host/spin.h"

namespace postern::internal::host {

namespace {

using namespace std::chrono_literals;

struct Pool {
  Mutex guard;
  Condition wake;
  struct Job {
    std::function<void()> act;
    FloatState floats;
  };
  std::deque<Job> jobs;
  int threads = 0;
  int idle = 0;      // of them, those without a job: at least as many as `jobs`, or one is started
  int sleeping = 0;  // of the idle ones, those that do not spin
  std::atomic<std::size_t> waiting{0};  // jobs, for who looks without the lock
  Spin spin;

  /// Takes jobs and does them, on a thread that ends when none has come for a while.
  void work() {
    std::unique_lock lock(guard);
    while (true) {
      ++idle;
      lock.unlock();
      spin.until([&] { return waiting.load(std::memory_order_acquire) > 0; });
      acquire(lock);  // by spinning: who brings a job holds it for a moment
      ++sleeping;
      const bool has_job = wake.wait_for(lock, 5s, [&] { return !jobs.empty(); });
      --sleeping;
      --idle;
      if (!has_job) break;
      Job job = std::move(jobs.front());
      jobs.pop_front();
      waiting.store(jobs.size(), std::memory_order_release);
      lock.unlock();
      job.floats.set();
      job.act();
      job.act = nullptr;  // what it owns goes without the lock
      lock.lock();
    }
    --threads;
  }
};

Pool& pool() { return never_destroyed<Pool>(); }

}  // namespace

void run_on_host_thread(std::function<void()> job) {
  refuse_forked();
  Pool& p = pool();
  std::unique_lock lock(p.guard);
  p.jobs.push_back({std::move(job), FloatState::now()});
  p.waiting.store(p.jobs.size(), std::memory_order_release);
  if (size_of(p.idle) >= p.jobs.size()) {  // a thread that spins sees the job by itself
    const int spinning = p.idle - p.sleeping;
    if (size_of(spinning) < p.jobs.size()) p.wake.notify_one();
    return;
  }
  try {
    std::thread([&p] { p.work(); }).detach();
    ++p.threads;
  } catch (const std::exception& e) {  // the caller keeps the job
    const Pool::Job gone = std::move(p.jobs.back());
    p.jobs.pop_back();
    p.waiting.store(p.jobs.size(), std::memory_order_release);
    const int threads = p.threads;
    lock.unlock();  // what is destroyed may run user code
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("a host thread was needed (there are {}), the system gave none: {}",
                            threads, e.what()));
  }
}

void let_jobs_begin() {
  static thread_local Spin spin;
  const auto taken = [&p = pool()] { return p.waiting.load(std::memory_order_acquire) == 0; };
  if (!spin.until(taken, 8us)) step_aside();
}

namespace {

/// Work that threads take piece by piece, one of them being the caller. One that comes late finds
/// nothing left to take, and is not waited for.
struct Shares {
  Shares(std::int64_t n, const std::function<void(std::int64_t)>& work)
      : count(std::max<std::int64_t>(n, 0)), body(work) {}
  const std::int64_t count;
  const std::function<void(std::int64_t)>& body;
  const FloatState floats = FloatState::now();
  const Nesting* const inside = nesting();  // who asks for it, and so who helps
  Gate::Entry* const gates = Gate::here();
  std::atomic<std::int64_t> next{0}, done{0};
  Mutex guard;
  Condition all_done;

  /// Does pieces until none is left. Who does the last to be done wakes the caller.
  void take() {
    const NestingScope scope(inside);
    const Gate::Scope inside_of(gates);
    for (std::int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      body(i);
      if (done.fetch_add(1) + 1 < count) continue;
      std::scoped_lock lock(guard);
      all_done.notify_all();
    }
  }
  /// Spins before it sleeps: what others have in hand is often done before it could be woken.
  void take_and_wait(Spin& spin) {
    take();
    const auto all = [&] { return done.load() == count; };
    spin.until(yielding(all), 30us);
    std::unique_lock lock(guard);
    all_done.wait(lock, all);
  }
};

thread_local Helpers* helpers = nullptr;

}  // namespace

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body,
                  std::int64_t threads) {
  static thread_local Spin spin;
  // Shared: a thread that comes late looks at it when this call may have returned.
  const auto shares = std::make_shared<Shares>(n, body);
  try {
    for (std::int64_t t = 1; t < std::min(n, threads); ++t)  // this thread is the first
      run_on_host_thread([shares] { shares->take(); });
  } catch (...) {  // no more threads to be had: those that there are do all of it
  }
  shares->take_and_wait(spin);
}

Helpers::Helpers(void* from, Schedule schedule)
    : Scoped(helpers, this), from_(from), schedule_(schedule) {}
bool Helpers::near() { return helpers != nullptr; }

void compute_for(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  constexpr std::int64_t most_threads = 8;  // memory feeds no more
  const std::int64_t threads = std::min({n, core_count(), most_threads});
  if (!helpers) return parallel_for(n, body, threads);
  const auto shares = std::make_shared<Shares>(n, body);
  const auto task = [](void* data) {
    const std::unique_ptr<std::shared_ptr<Shares>> mine(
        static_cast<std::shared_ptr<Shares>*>(data));
    const FloatScope as_caller((*mine)->floats);
    (*mine)->take();
  };
  for (std::int64_t t = 1; t < threads; ++t) {
    auto* const for_task = new (std::nothrow) std::shared_ptr<Shares>(shares);
    if (for_task && helpers->schedule_(helpers->from_, task, for_task)) continue;
    delete for_task;
    if (t == 1) return parallel_for(n, body, threads);  // a runtime without a pool
    break;
  }
  static thread_local Spin spin;
  shares->take_and_wait(spin);
}

// With glibc 2.36 the standard library does not look at the affinity. The main thread's is asked
// for: others may have been put on cores of their own.
std::int64_t core_count() {
  static const std::int64_t n = [] {
    cpu_set_t cores;
    if (sched_getaffinity(getpid(), sizeof cores, &cores) == 0 && CPU_COUNT(&cores) > 0)
      return static_cast<std::int64_t>(CPU_COUNT(&cores));
    return static_cast<std::int64_t>(std::max(1u, std::thread::hardware_concurrency()));
  }();
  return n;
}

}  // namespace postern::internal::host

namespace postern {
using namespace internal;

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body) {
  Mutex guard;
  std::int64_t lowest = n;
  std::exception_ptr failure;
  host::parallel_for(n, [&](std::int64_t i) {
    try {
      without_thread_end([&] { body(i); });
    } catch (...) {
      std::exception_ptr thrown = std::current_exception();  // the other goes without the lock
      std::scoped_lock lock(guard);
      if (i < lowest) std::swap(failure, thrown);
      lowest = std::min(lowest, i);
    }
  });
  if (failure) std::rethrow_exception(failure);
}

std::int64_t core_count() { return host::core_count(); }

}  // namespace postern
