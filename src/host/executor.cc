// Host threads.
#include "host/executor.h"

#include <fmt/format.h>
#include <postern/error.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

namespace postern::host {

namespace {

using namespace std::chrono_literals;

/// Never destroyed: a late function may still run when the process ends.
struct Pool {
  std::mutex guard;
  std::condition_variable wake;
  std::deque<std::function<void()>> jobs;
  int idle = 0, threads = 0;

  void work() {
    std::unique_lock lock(guard);
    while (true) {
      ++idle;
      const bool got = wake.wait_for(lock, 5s, [&] { return !jobs.empty(); });
      --idle;
      if (!got) break;
      std::function<void()> job = std::move(jobs.front());
      jobs.pop_front();
      lock.unlock();
      job();
      job = nullptr;
      lock.lock();
    }
    --threads;
  }
};

Pool& pool() {
  static Pool* const p = new Pool;
  return *p;
}

}  // namespace

void run_on_host_thread(std::function<void()> job) {
  Pool& p = pool();
  std::unique_lock lock(p.guard);
  p.jobs.push_back(std::move(job));
  if (static_cast<std::size_t>(p.idle) >= p.jobs.size()) {
    p.wake.notify_one();
    return;
  }
  try {
    std::thread([&p] { p.work(); }).detach();
    ++p.threads;
  } catch (const std::system_error& e) {
    p.jobs.pop_back();
    throw Error(ErrorCode::resource_exhausted,
                fmt::format("a host thread was needed (there are {}), the system gave none: {}", p.threads, e.what()));
  }
}

void parallel_for(std::int64_t n, const std::function<void(std::int64_t)>& body, std::int64_t threads) {
  struct Shared {
    std::atomic<std::int64_t> next{0}, done{0};
    std::mutex guard;
    std::condition_variable all_done;
  };
  const auto shared = std::make_shared<Shared>();
  // A thread that comes late finds nothing left to take, and is not waited for.
  const auto take = [shared, &body, n] {
    for (std::int64_t i; (i = shared->next.fetch_add(1)) < n;) {
      body(i);
      if (shared->done.fetch_add(1) + 1 < n) continue;
      std::scoped_lock lock(shared->guard);
      shared->all_done.notify_all();
    }
  };
  try {
    for (std::int64_t t = 1; t < std::min(n, threads); ++t) run_on_host_thread(take);
  } catch (const Error&) {  // fewer threads do the same work
  }
  take();
  const auto all = [&] { return shared->done.load() == n; };
  // What others still have in hand is often done before this thread could be woken.
  for (const auto until = std::chrono::steady_clock::now() + 30us; !all() && std::chrono::steady_clock::now() < until;)
    std::this_thread::yield();
  std::unique_lock lock(shared->guard);
  shared->all_done.wait(lock, all);
}

std::int64_t core_count() {
  static const std::int64_t n = std::max(1u, std::thread::hardware_concurrency());
  return n;
}

int host_thread_count() {
  Pool& p = pool();
  std::scoped_lock lock(p.guard);
  return p.threads;
}

}  // namespace postern::host
