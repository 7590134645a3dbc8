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

namespace {

constexpr std::size_t kept_used = 64;

}  // namespace

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
// 3. Copies the handle's part of the results, or fails the run: with what the function threw, or
//    with who is late, the job or another one that it was to enter behind.
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
  if (const std::string text = misfit(*found->second.job, site); !text.empty()) {
    lock.unlock();
    run.fail(ErrorCode::bad_result, site, device, nullptr, text);
    return false;
  }
  std::optional<Wait> wait;
  if (nesting() && !found->second.job->done) {
    std::vector<RunName> awaited;
    for (const Job* j = found->second.job.get(); j; j = j->before)
      awaited.push_back({.job = j->number});
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
  Job& job = *handle.job;
  if (!job.done) {
    static thread_local Spin spin;
    const auto most = run.deadline - Clock::now();
    lock.unlock();
    spin.until([&] { return job.done.load() || is_stopped(run); }, most);
    acquire(lock);
    sleep(lock, job, run);
  }
  const bool by_whole = is_stopped(run);  // the one that it is a part of
  if (by_whole || job.end.load()) {
    lock.unlock();
    run.request(by_whole ? Outcome::cancelled : Outcome::stopped);
    return false;
  }
  if (job.done && !job.error && !job.ok) {  // it was left out
    const std::shared_ptr<Job> by = job.left_out_by;
    if (by) by->seen = true;
    lock.unlock();
    if (by)
      run.fail(ErrorCode::timeout, *by->site, by->device, nullptr, by->why_late());
    else
      run.request(Outcome::cancelled);
    return false;
  }
  if (job.done && !job.ok) {
    job.seen = true;
    lock.unlock();
    run.fail(job.code, *job.site, device, job.code == ErrorCode::bad_result ? nullptr : job.error,
             describe(job.error));
    return false;
  }
  if (!job.done) {
    if (!job.abandoned) abandon(lock, job, true);
    job.seen = true;
    lock.unlock();
    run.fail(ErrorCode::timeout, *job.site, device, nullptr, job.why_late());
    return false;
  }
  lock.unlock();
  for (std::size_t i = 0; i < job.bytes.size(); ++i)
    if (job.bytes[i])
      std::memcpy(data[1 + i],
                  static_cast<const std::byte*>(job.data[job.site->operands + i]) +
                      handle.element * job.bytes[i],
                  job.bytes[i]);
  return true;
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
