// Started calls on tapes: what their functions gave is recorded when they return, whether or not
// somebody waits; what a tape has of one already stands in for its function.
#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "core/log.h"
#include "host/fire.h"
#include "host/pending_job.h"

namespace postern::internal::host {

void PendingCalls::Job::take_recorded() {
  const RecordedFiring& known = taped.call;
  for (std::size_t i = 0; i < known.values.size(); ++i)
    if (const std::string& value = known.values[i]; !value.empty())
      std::memcpy(data[site->operands + i], value.data(), value.size());
  end = known.ended;
  ok = known.failure.empty();
  if (!ok) error = std::make_exception_ptr(std::runtime_error(known.failure));
  code = taped.code;
  seen = code == ErrorCode::failed_precondition;  // who does not wait for it misses nothing
  done = true;
  under_way.reset();
  taped.call.values.clear();
}

/// What a function that was entered gave, or threw, for its tape; where that cannot be written down
/// the call has failed.
void PendingCalls::end_on_tape(const Job& job, bool& ok, std::exception_ptr& error,
                               ErrorCode& code) noexcept {
  const auto tape = job.taped.tape.lock();
  if (!tape) return;
  try {
    StartedFiring taped = job.taped;
    RecordedFiring& f = taped.call;
    f.ended = ok && job.end.load();
    if (!ok) f.failure = describe(error);
    for (std::size_t i = 0; i < job.bytes.size() && ok && !f.ended; ++i)
      f.values.emplace_back(static_cast<const char*>(job.data[job.site->operands + i]),
                            job.site->called_bytes[job.site->operands + i]);
    // Who was told to stop may have given up.
    const bool gave_up = job.stop.load() && !f.ended && (!ok || job.site->told);
    tape->end_started(taped, !gave_up);
  } catch (...) {
    ok = false;
    error = std::current_exception();
    code = ErrorCode::threw;
    leave_tape(job);
  }
}

/// It was not entered, or cannot be recorded.
void PendingCalls::leave_tape(const Job& job) {
  if (const auto tape = job.taped.tape.lock()) tape->end_started(job.taped, false);
}

void PendingCalls::late_on_tape(const Job& job, bool by_deadline) noexcept {
  const auto tape = job.taped.tape.lock();
  if (!tape) return;
  try {
    StartedFiring taped = job.taped;
    taped.call.failure = too_late(*job.spec, by_deadline);
    tape->end_started(taped, true);
  } catch (...) {
    log_line("it could not be recorded that a started call was late");
  }
}

bool PendingCalls::settle(RunState& run) {
  Lock lock(guard_);
  const auto until = [&](const Job& job) { return std::min(job.limit, run.deadline); };
  const auto counts = [&](const auto& job) { return job->taped.tape.lock() == run.tape; };
  while (!run.stop.load()) {
    auto next = Clock::time_point::max();
    bool all = true;
    for (const auto& job : jobs_) {
      if (!counts(job)) continue;
      all = false;
      next = std::min(next, until(*job));
    }
    if (all) return true;
    const auto late = std::ranges::find_if(
        jobs_, [&](const auto& job) { return counts(job) && until(*job) <= Clock::now(); });
    if (late != jobs_.end()) {
      const std::shared_ptr<Job> job = *late;
      const bool by_deadline = job->limit > run.deadline;
      abandon(lock, *job);
      lock.unlock();
      late_on_tape(*job, by_deadline);
      run.fail(ErrorCode::timeout, *job->site, job->device, nullptr,
               too_late(*job->spec, by_deadline));
      return false;
    }
    ++sleeping_;
    if (next == Clock::time_point::max())
      changed_.wait(lock);
    else
      changed_.wait_until(lock, next);
    --sleeping_;
  }
  return false;
}

}  // namespace postern::internal::host
