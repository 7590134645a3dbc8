// Work shared among threads: those of XLA's pool, which are there anyway, or, where the FFI has no
// pool, some of one's own.
#pragma once
#include <xla/ffi/api/ffi.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

/// Calls work(0) ... work(jobs - 1). This thread takes part, and does them all when the others are
/// busy.
template <class Work>
void share(xla::ffi::ThreadPool& pool, std::int64_t jobs, Work work) {
  struct State {
    Work work;
    std::int64_t jobs;
    std::atomic<std::int64_t> next{0}, done{0};
    std::mutex guard;
    std::condition_variable ended;
    void run() {
      for (std::int64_t i; (i = next.fetch_add(1)) < jobs;) {
        work(i);
        if (done.fetch_add(1) + 1 == jobs) {
          std::scoped_lock lock(guard);
          ended.notify_all();
        }
      }
    }
  };
  if (jobs == 0) return;
  const auto state =
      std::make_shared<State>(std::move(work), jobs);  // a thread that comes late still finds it
  std::vector<std::jthread> own;
  if (const std::int64_t threads = pool.num_threads(); threads > 0)
    for (std::int64_t i = 1; i < std::min(threads, jobs); ++i)
      pool.Schedule([state] { state->run(); });
  else
    for (std::int64_t i = 1; i < std::min<std::int64_t>(std::thread::hardware_concurrency(), jobs);
         ++i)
      own.emplace_back([state] { state->run(); });
  state->run();
  std::unique_lock lock(state->guard);
  state->ended.wait(lock, [&] { return state->done == jobs; });
}
