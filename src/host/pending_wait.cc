// Who waits for started functions: wait() for one, finish() for all of a run.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "host/call_handle.h"
#include "host/pending.h"
#include "host/run_observer.h"
#include "host/spin.h"
#include "host/waits.h"

namespace postern::internal::host {

static constexpr std::size_t kept_used = 64;  // handles, for unknown()

/// Types are compared while tracing, but a program from a file may mix its handles.
std::string PendingCalls::misfit(const Job& job, const HostSite& site) {
  bool fits = job.bytes.size() == site.results;
  for (std::size_t i = 0; fits && i < site.results; ++i)
    fits = job.bytes[i] == site.leaf_bytes[1 + i] &&
           job.spec->call.later[i].dtype == site.leaves[1 + i].dtype;
  if (fits) return {};
  return fmt::format("{} gives {}, and {} is waited for", describe(*job.spec),
                     to_string(job.spec->call.later), to_string(site.spec->results));
}

std::string PendingCalls::unknown(std::uint64_t handle) const {
  if (handle == 0) return "no call was started that this could wait for";
  const auto used = std::ranges::find(used_, handle, [](const auto& u) { return u.first; });
  if (used != used_.end())
    return fmt::format("{} has been waited for before, at {}: its results are given once",
                       started_at(handle), to_string(used->second));
  return fmt::format("{} was not started by this run, or has been waited for before",
                     started_at(handle));
}

// Waits for what a handle stands for; false when the run must not go on.
//
// 1. Takes the handle, so that nobody else can: without one the run fails, with both places. So it
//    does when the job waits for a function that the caller is inside of, or is queued behind it.
// 2. Waits until the job is done or abandoned, or the run stops. All of them wake it.
// 3. Copies the handle's part of the results, or has the run fail or stop: see end_wait().
bool PendingCalls::wait(RunState& run, const HostSite& site, void* const* data, int device) {
  std::uint64_t number = 0;
  std::memcpy(&number, data[0], sizeof number);
  Lock lock(guard_);
  const auto found = handles_.find(number);
  if (found == handles_.end()) {
    std::string text = unknown(number);
    if (run.observer) text += run.observer->about_lost_calls();
    lock.unlock();
    run.fail(ErrorCode::failed_precondition, site, device, std::make_exception_ptr(TypeError(text)),
             text);
    return false;
  }
  Job& job = *found->second.job;
  if (const std::string text = misfit(job, site); !text.empty()) {
    lock.unlock();
    run.fail(ErrorCode::bad_result, site, device, nullptr, text);
    return false;
  }
  std::optional<Wait> wait;
  if (nesting() && !job.done) {
    std::vector<RunName> awaited;
    for (const Job* j = &job; j; j = j->before) awaited.push_back({.job = j->number});
    try {
      wait.emplace(awaited);
    } catch (const CallbackError&) {
      lock.unlock();
      const auto inner = std::current_exception();
      run.fail(ErrorCode::reentry, site, device, inner,
               fmt::format("{} would never end: {}", started_at(number), describe(inner)));
      return false;
    }
  }
  const Handle handle = std::move(found->second);
  handles_.erase(found);
  used_.emplace_back(number, site.spec->place);
  if (used_.size() > kept_used) used_.pop_front();
  if (!job.done) {
    static thread_local Spin spin;
    const auto most = run.deadline - Clock::now();
    lock.unlock();
    spin.until([&] { return job.done.load() || is_stopped(run); }, most);
    acquire(lock);
    sleep(lock, job, run);
  }
  if (!end_wait(lock, job, run, device)) return false;
  for (std::size_t i = 0; i < job.bytes.size(); ++i) {
    const auto* const all = static_cast<const std::byte*>(job.data[job.site->operands + i]);
    void* const result = data[1 + i];  // behind the handle
    if (job.bytes[i]) std::memcpy(result, all + handle.element * job.bytes[i], job.bytes[i]);
  }
  return true;
}

/// Returns whether the job, for which nobody waits any more, has results. Else the run fails or is
/// to stop. All of that without the lock, which it gives back: texts of exceptions are the user's.
bool PendingCalls::end_wait(Lock& lock, Job& job, RunState& run, int device) {
  if (const bool stopped = is_stopped(run); stopped || job.end.load()) {
    lock.unlock();
    run.request(stopped ? Outcome::cancelled : Outcome::stopped);
    return false;
  }
  if (!job.done) {  // late
    if (!job.abandoned) abandon(lock, job, true);
    job.seen = true;
    lock.unlock();
    run.fail(ErrorCode::timeout, *job.site, device, nullptr, job.why_late());
    return false;
  }
  if (job.error) {
    job.seen = true;
    lock.unlock();
    run.fail(job.code, *job.site, device, job.code == ErrorCode::bad_result ? nullptr : job.error,
             describe(job.error));
    return false;
  }
  const std::shared_ptr<Job> late = job.ok ? nullptr : job.left_out_by;
  if (late) late->seen = true;
  lock.unlock();
  if (job.ok) return true;
  if (late)  // by which the job was left out
    run.fail(ErrorCode::timeout, *late->site, late->device, nullptr, late->why_late());
  else
    run.request(Outcome::cancelled);
  return false;
}

/// The run has not ended in time, whatever its results are.
void PendingCalls::fail_late(RunState& run, const Job& job) noexcept {
  try {
    run.fail(ErrorCode::timeout, *job.site, job.device, nullptr, job.why_late());
  } catch (...) {
    tell_nobody(job);
  }
}

void PendingCalls::finish(RunState& run) noexcept {
  std::unordered_map<std::uint64_t, Handle> handles;  // go after the lock, with what they own
  std::vector<std::shared_ptr<Job>> failed, late;
  decltype(last_) last;
  Lock lock(guard_);
  changed_.wait_until(lock, run.deadline, [&] { return jobs_.empty(); });
  while (!jobs_.empty()) {
    const std::shared_ptr<Job> job = jobs_.front();
    const bool was_stopped = job->stop;
    abandon(lock, *job, true);
    if (!was_stopped) late.push_back(job);
  }
  limits_.notify_one();  // there is nothing to watch any more
  handles.swap(handles_);
  failed.swap(failed_);
  last.swap(last_);
  used_.clear();
  lock.unlock();
  for (const auto& job : late) fail_late(run, *job);
  for (const auto& job : failed)
    if (!job->seen) tell_nobody(*job);
}

void PendingCalls::forget(std::span<const std::uint64_t> numbers) noexcept {
  std::vector<std::shared_ptr<Job>> gone;
  Lock lock(guard_);
  for (const std::uint64_t number : numbers) {
    const auto found = handles_.find(number);
    if (found == handles_.end()) continue;
    const std::shared_ptr<Job> job = std::move(found->second.job);
    handles_.erase(found);
    if (job->failed() && !job->seen && !job->forgotten) tell_nobody(*job);
    job->forgotten = true;
    gone.push_back(job);
  }
  lock.unlock();
}

}  // namespace postern::internal::host
