// Limits: a function must have returned by its site's limit and by the run's deadline. Then it
// works on copies, on another thread.
#include "host/limit.h"

#include <fmt/format.h>

#include <cstring>

#include "core/log.h"
#include "core/value.h"
#include "host/executor.h"
#include "host/fire.h"
#include "host/lookout.h"

namespace postern::internal::host {

using namespace std::chrono_literals;

namespace {

using Clock = RunState::Clock;

bool has_deadline(const RunState& run) { return run.deadline != Clock::time_point::max(); }

/// Whether the function has a limit that is not its own affair.
bool is_limited(const Invocation& i) {
  const SiteSpec& spec = *i.site.spec;
  if (i.site.is_ours || i.on_device || spec.async || spec.role != SiteSpec::Role::whole)
    return false;
  return spec.timeout.count() > 0 || has_deadline(i.run);
}

/// Copies of the leaves that outlive the run.
struct TimedJob : detail::StopState {
  explicit TimedJob(const Invocation& i);

  HostSite site;  // a copy: the program may go before the late function returns
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> data;
  Mutex guard;
  Condition finished;
  std::atomic<bool> done{false};
  // Under the guard, from here on.
  bool abandoned = false, ok = false;
  std::exception_ptr error;
  ErrorCode code = ErrorCode::ok;
};

TimedJob::TimedJob(const Invocation& i) : site(i.site) {
  for (std::size_t leaf = 0; leaf < site.leaves.size(); ++leaf) {
    memory.push_back(detail::aligned_bytes(site.leaf_bytes[leaf]));
    data.push_back(memory.back().get());
    if (leaf < site.operands) std::memcpy(data[leaf], i.data[leaf], site.leaf_bytes[leaf]);
  }
}

/// Enters the job's function on a host thread that is told of the nesting around it by name only:
/// the run's own chain may be gone when the function is late.
void start(const std::shared_ptr<TimedJob>& job, const Invocation& i) {
  const int depth = nesting() ? nesting()->depth + 1 : 1;
  std::vector<RunName> inside = surrounding_runs();
  inside.push_back({i.run.name().ticket, i.run.lane_run});
  const TapInfo info = Invocation{i.run, job->site, nullptr, i.device, i.element}.info(job.get());
  run_on_host_thread([job, info, depth, inside = std::move(inside)] {
    const HostSite& site = job->site;
    const Beginning nested{{nullptr, nullptr, &site, info.device, depth}, inside};
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

/// Waits until the function has returned, until the limit, or until the run is stopped. The lock is
/// the guard's.
std::unique_lock<Mutex> wait_for(TimedJob& job, const RunState& run, Clock::time_point limit) {
  static thread_local Lookout lookout;
  lookout.look([&] { return job.done.load(); }, limit - Clock::now());
  std::unique_lock lock(job.guard);
  // Short waits: a run that is cancelled has nothing to wake us with.
  while (!job.done && Clock::now() < limit && !run.stop.load())
    job.finished.wait_until(lock, std::min(limit, Clock::now() + 5ms));
  return lock;
}

// Enters a function that must have returned by `limit`: the run's deadline or the site's own.
//
// 1. Copies the operands into a job that outlives the run, and enters the function on a host thread
//    that is told of the nesting around it by name only.
// 2. Waits for it, until the limit or until the run is stopped.
// 3. In time: copies the results to the leaves, or keeps the failure; true if the run goes on.
//    Too late: abandons the job, asks the function to stop, and fails the run with a timeout. The
//    function may still run; what it makes is thrown away.
//
// Throws only what making the job and its thread does.
bool enter_in_time(Invocation& i, Clock::time_point limit) {
  RunState& run = i.run;
  const auto job = std::make_shared<TimedJob>(i);
  start(job, i);
  std::unique_lock lock = wait_for(*job, run, limit);
  i.count();  // others' limits pass at the same time
  if (job->done) {
    lock.unlock();  // the job is this thread's now
    // Its function goes with the run, even if the thread lets go of the job later.
    const HostSite gone = std::move(job->site);
    if (!job->ok) {
      keep_failure(run, i.site, i.device, job->error, job->code);
      return false;
    }
    for (std::size_t leaf = gone.operands; leaf < gone.leaves.size(); ++leaf)
      std::memcpy(i.data[leaf], job->data[leaf], gone.leaf_bytes[leaf]);
    if (job->end.load()) run.request(Outcome::stopped);
    return !job->end.load();
  }
  job->abandoned = true;
  job->request_stop();
  lock.unlock();
  if (run.stop.load()) return false;
  run.fail(ErrorCode::timeout, i.site, i.device, nullptr,
           too_late(*i.site.spec, limit == run.deadline), one_of_many);
  return false;
}

bool enter_limited(const Stage& stage, Invocation& i) noexcept {
  if (!is_limited(i)) return stage.next->enter(i);
  const auto timeout = i.site.spec->timeout;
  auto limit = i.run.deadline;
  if (timeout.count() > 0) limit = std::min(after(timeout), limit);
  try {
    return enter_in_time(i, limit);
  } catch (...) {
    return keep_exhausted(i);
  }
}

bool enter_before_deadline(const Stage& stage, Invocation& i) noexcept {
  if (!has_deadline(i.run) || Clock::now() < i.run.deadline) return stage.next->enter(i);
  keep_failure(i.run, i.site, i.device,
               std::make_exception_ptr(std::runtime_error(too_late(*i.site.spec, true))),
               ErrorCode::timeout);
  return false;
}

/// Where several devices may fail at the same invocation: it counts as passed now, or, with a
/// limit, when that has passed or it has ended. Those that listen at a live hook pass with it.
bool enter_passed(const Stage& stage, Invocation& i) noexcept {
  if (i.site.spec->live || !is_limited(i)) i.count();
  return stage.next->enter(i);
}

}  // namespace

const StageRow pass_stage = {.enter = enter_passed, .of_runs = true};
const StageRow deadline_stage = {.enter = enter_before_deadline, .of_runs = true};
const StageRow limit_stage = {
    .applies = [](const HostSite& s) { return s.spec->timeout.count() > 0; },
    .enter = enter_limited,
    .of_runs = true};

}  // namespace postern::internal::host
