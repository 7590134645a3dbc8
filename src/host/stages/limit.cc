// Limits: a function must have returned by its site's limit and by the run's deadline. Then it
// works on copies, on another thread.
#include "host/limit.h"

#include <fmt/format.h>

#include <cstring>

#include "core/log.h"
#include "host/enter.h"
#include "host/executor.h"
#include "host/job.h"
#include "host/spin.h"

namespace postern::internal::host {

namespace {

using Clock = RunState::Clock;

/// Whether the function has a limit that is not its own affair.
bool is_limited(const Invocation& i) {
  const SiteSpec& spec = *i.site.spec;
  if (i.site.is_ours || i.on_device || spec.tap.async || spec.call.role != SiteCall::Role::whole)
    return false;
  return spec.call.timeout.count() > 0 || i.run.has_deadline();
}

struct TimedJob : Job {
  using Job::Job;
  Mutex guard;
  StopCondition finished;
};

void work(TimedJob& job) {
  Ended how = job.enter();
  std::scoped_lock lock(job.guard);
  static_cast<Ended&>(job) = std::move(how);
  job.done = true;
  if (job.abandoned)
    log_seldom(fmt::format("{} returned after its run had ended; its result is thrown away",
                           describe(*job.spec)));
  job.finished.notify_all();
}

// Enters a function that must have returned by the site's own limit and the run's deadline.
//
// 1. Copies the operands into a job that outlives the run, and has it enter the function on a host
//    thread.
// 2. Waits for it, until the limit or until the run is stopped.
// 3. In time: copies the results to the leaves, or keeps the failure; true if the run goes on.
//    Too late: abandons the job, asks the function to stop, and fails the run with a timeout. The
//    function may still run; what it makes is thrown away.
bool enter_limited(const Stage& stage, Invocation& i) noexcept try {
  if (!is_limited(i)) return stage.next->enter(i);
  RunState& run = i.run;
  const auto timeout = i.site.spec->call.timeout;
  const auto limit = std::min(timeout.count() > 0 ? after(timeout) : never, run.deadline);
  const auto job = std::make_shared<TimedJob>(i);
  run_on_host_thread([job] { work(*job); });
  const auto done = [&] { return job->done.load(); };
  static thread_local Spin spin;
  spin.until(done, limit - Clock::now());
  std::unique_lock lock(job->guard);
  Woken woken = wait_at(job->finished, lock, &run, done, limit);
  if (woken == Woken::stopped && one_of_many >= 0) {
    // Another element of the batch has failed. This one may be below it, and is waited for.
    lock.unlock();
    const bool by_batch = run.batch_failed(i.site, i.device);
    lock.lock();
    if (by_batch) woken = wait_at(job->finished, lock, nullptr, done, limit);
  }
  i.count();  // others' limits pass at the same time
  if (woken == Woken::done) {
    lock.unlock();  // the job is this thread's now
    // Its function goes with the run, even if the thread lets go of the job later.
    const auto gone = std::pair(std::move(job->owner), std::move(job->spec));
    if (!job->ok) {
      keep_failure(run, i.site, i.device, job->error, job->code);
      return false;
    }
    for (std::size_t leaf = i.site.operands; leaf < job->data.size(); ++leaf)
      std::memcpy(i.data[leaf], job->data[leaf], i.site.leaf_bytes[leaf]);
    if (job->end.load()) run.request(Outcome::stopped);
    return !job->end.load();
  }
  job->abandoned = true;
  job->request_stop();
  lock.unlock();
  if (!run.stop.load())
    run.fail(ErrorCode::timeout, i.site, i.device, nullptr,
             too_late(*i.site.spec, limit == run.deadline), one_of_many);
  return false;
} catch (...) {
  return keep_exhausted(i);
}

bool enter_before_deadline(const Stage& stage, Invocation& i) noexcept {
  if (!i.run.is_late()) return stage.next->enter(i);
  keep_failure(i.run, i.site, i.device,
               std::make_exception_ptr(std::runtime_error(too_late(*i.site.spec, true))),
               ErrorCode::timeout);
  return false;
}

/// Where several devices may fail at the same invocation: it counts as passed now, or, with a
/// limit, when that has passed or it has ended. Those that listen at a live hook pass with it.
bool enter_passed(const Stage& stage, Invocation& i) noexcept {
  if (i.site.spec->tap.live || !is_limited(i)) i.count();
  return stage.next->enter(i);
}

}  // namespace

const StageRow pass_stage = {.enter = enter_passed, .of_runs = true};
const StageRow deadline_stage = {.enter = enter_before_deadline, .of_runs = true};
const StageRow limit_stage = {
    .applies = [](const HostSite& s) { return s.spec->call.timeout.count() > 0; },
    .enter = enter_limited,
    .of_runs = true};

}  // namespace postern::internal::host
