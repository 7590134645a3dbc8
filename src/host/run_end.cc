// Who waits for the end of which run.
#include "host/run_end.h"

#include <atomic>
#include <map>
#include <vector>

#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/unobserved.h"

namespace postern::internal::host {

namespace {

struct RunEnds {
  std::atomic<bool> any{false};
  Mutex guard;
  std::multimap<std::uint64_t, std::function<void(bool)>> waiting;  // by the run's number
};
RunEnds& run_ends() { return never_destroyed<RunEnds>(); }

}  // namespace

void when_run_ends(std::uint64_t run, std::function<void(bool)> f) {
  RunEnds& ends = run_ends();
  decltype(ends.waiting)::node_type gone;  // after the lock
  std::scoped_lock lock(ends.guard);
  constexpr std::size_t most = 1000;  // the runs of a guest do not say when they end
  if (ends.waiting.size() >= most) gone = ends.waiting.extract(ends.waiting.begin());
  ends.waiting.emplace(run, std::move(f));
  ends.any = true;
}

void run_has_ended(std::uint64_t run, bool well) noexcept {
  RunEnds& ends = run_ends();
  if (!ends.any.load(std::memory_order_relaxed)) [[likely]]
    return;
  std::vector<std::function<void(bool)>> of_run;
  {
    std::scoped_lock lock(ends.guard);
    const auto [first, last] = ends.waiting.equal_range(run);
    for (auto it = first; it != last; ++it) of_run.push_back(std::move(it->second));
    ends.waiting.erase(first, last);
    ends.any = !ends.waiting.empty();
  }
  for (auto& f : of_run) {
    try {
      f(well);
    } catch (...) {
      keep_unobserved(std::current_exception());
    }
  }
}

}  // namespace postern::internal::host
