// Starts the function of a firing with a time limit on a thread of its own, and waits for it.
#include "host/timed_job.h"

#include <fmt/format.h>

#include <cstring>

#include "core/log.h"
#include "core/mutex.h"
#include "core/value.h"
#include "host/executor.h"
#include "host/fire.h"
#include "host/lookout.h"

namespace postern::internal::host {

using namespace std::chrono_literals;

TimedJob::TimedJob(const HostSite& s, void* const* operands) : site(s) {
  for (std::size_t i = 0; i < site.leaves.size(); ++i) {
    memory.push_back(detail::aligned_bytes(site.leaf_bytes[i]));
    data.push_back(memory.back().get());
    if (i < site.operands) std::memcpy(data[i], operands[i], site.leaf_bytes[i]);
  }
}

void start(const std::shared_ptr<TimedJob>& job, const TapInfo& info, const RunState& run,
           int device) {
  const int depth = nesting() ? nesting()->depth + 1 : 1;
  std::vector<RunName> inside = surrounding_runs();
  inside.push_back({run.name().ticket, run.lane_run});
  run_on_host_thread([job, info, depth, device, inside = std::move(inside)] {
    const HostSite& site = job->site;
    const Beginning nested{{nullptr, nullptr, &site, device, depth}, inside};
    NestingScope scope(&nested);
    std::exception_ptr error;
    ErrorCode code = ErrorCode::ok;
    const bool ok = enter_function(
        site,
        {site.leaves.data(), job->data.data(), site.operands, site.results, &info, &site.declared},
        error, code);
    std::scoped_lock lock(job->guard);
    job->ok = ok;
    job->error = std::move(error);
    job->code = code;
    job->done = true;
    if (job->abandoned)
      log_seldom(fmt::format("{} returned after its run had ended; its result is thrown away",
                             describe(*site.spec)));
    job->finished.notify_all();
  });
}

std::unique_lock<Mutex> wait_for(TimedJob& job, const RunState& run,
                                 RunState::Clock::time_point limit) {
  static thread_local Lookout lookout;
  lookout.look([&] { return job.done.load(); }, limit - RunState::Clock::now());
  std::unique_lock lock(job.guard);
  // Short waits: a run that is cancelled has nothing to wake us with.
  while (!job.done && RunState::Clock::now() < limit && !run.stop.load())
    job.finished.wait_until(lock, std::min(limit, RunState::Clock::now() + 5ms));
  return lock;
}

}  // namespace postern::internal::host
