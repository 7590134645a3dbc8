// Started functions: how they enter, and how they end. pending_wait.cc is who waits for them.
//
// A job is one start: copies of its operands, room for its results, and where it stands. It is
// queued, has begun, and is then done; or it is abandoned, when its limit or the run's deadline has
// passed. Whoever holds a handle of it waits in wait(); the run's end, in finish(), waits for all
// that have not returned. Both know the deadline; watch() has a thread of its own for the limits,
// since nobody need be waiting. All of this is under one lock for each run; functions run outside
// of it.
#include "host/pending.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/log.h"
#include "host/call_handle.h"
#include "host/executor.h"
#include "host/failure_text.h"
#include "host/limit.h"
#include "host/spin.h"
#include "host/timeline.h"
#include "host/unobserved.h"
#include "host/waits.h"

namespace postern::internal::host {

std::string too_late(const SiteSpec& spec, bool by_deadline) {
  if (by_deadline) return RunState::late;
  return fmt::format("no result within the limit of {:g} ms",
                     std::chrono::duration<double, std::milli>(spec.call.timeout).count());
}

/// What a function threw is asked for its text, which is the user's: not under a lock.
std::exception_ptr PendingCalls::in_words(ErrorCode code, const Job& job,
                                          const std::exception_ptr& error) noexcept {
  try {
    return callback_error(code, *job.site, job.device, error);
  } catch (...) {
    return error;
  }
}

void PendingCalls::tell_nobody(const Job& job) noexcept {
  try {
    if (job.told && !job.abandoned) return keep_unobserved(job.told);
    const std::string text = failure_text(*job.spec, job.device, job.why_late());
    keep_unobserved(std::make_exception_ptr(TimeoutError(
        ErrorCode::timeout, text, {job.spec->name, job.spec->place}, job.device, nullptr)));
  } catch (...) {
    log_line("a started call failed, and there was no memory to say how");
  }
}

namespace {

std::atomic<std::uint64_t> jobs_so_far{0};

/// The started function that this thread is inside of, and whose it is.
struct Work {
  const PendingCalls* calls = nullptr;
  PendingCalls::Job* job = nullptr;
};
thread_local Work working_on;

/// The started function that the calling thread is inside of; 0: none.
std::uint64_t innermost(const std::vector<RunName>& inside) {
  for (auto name = inside.rbegin(); name != inside.rend(); ++name)
    if (name->job) return name->job;
  return 0;
}

}  // namespace

void PendingCalls::start(const Invocation& i) {
  const RunState& run = i.run;
  const HostSite& site = i.site;
  const auto job = std::make_shared<Job>(i);
  const std::size_t n = site.operands;
  job->forgotten = site.results == 0;  // nobody can wait
  const std::size_t count = job->forgotten ? 0 : size_of(site.leaves[n].size);
  for (std::size_t leaf = n; leaf < site.called.size(); ++leaf)
    job->bytes.push_back(count ? site.called_bytes[leaf] / count : 0);
  if (!run_) job->order.starter = innermost(job->inside);
  job->number = ++jobs_so_far;
  job->inside.push_back({.job = job->number});

  std::vector<std::uint64_t> handles(count);
  for (std::uint64_t& handle : handles) handle = new_handle(site);
  Lock lock(guard_);
  if (job->has_limit() && !watched_) {
    run_on_host_thread([calls = shared_from_this()] { watch(calls); });
    watched_ = true;
  }
  if (run.stop.load()) job->request_stop();
  for (std::size_t e = 0; e < count; ++e) handles_[handles[e]] = {job, e};
  try {
    enqueue(lock, job);
  } catch (...) {
    for (const std::uint64_t handle : handles) handles_.erase(handle);
    throw;
  }
  lock.unlock();
  if (count) std::memcpy(i.data[n], handles.data(), count * sizeof(std::uint64_t));
  let_jobs_begin();
}

void PendingCalls::enqueue(const Lock& lock, std::shared_ptr<Job> job) {
  const bool ordered = job->spec->effect == Effect::ordered;
  const bool in_batch = job->info.element >= 0 && job->spec->call.vmap == VmapMethod::sequential;
  job->at = jobs_.insert(jobs_.end(), job);
  try {
    if ((!ordered && !in_batch) || !queue_behind_last(job)) launch(lock, job);
  } catch (...) {
    forget_job(lock, *job);
    throw;
  }
}

/// Gives the job its place in the order that it keeps. False where it need not wait for another.
bool PendingCalls::queue_behind_last(const std::shared_ptr<Job>& job) {
  const bool ordered = job->spec->effect == Effect::ordered;
  if (!ordered) job->order.site = job->site;
  job->order.device = job->site->one_order() ? -1 : job->device;
  job->keeps_order = true;
  std::shared_ptr<Job>& last = last_[job->order];
  // The elements of one batch follow each other, but not those of the batch before.
  const bool follows = last && (ordered || last->info.element < job->info.element);
  std::shared_ptr<Job> late;
  if (follows) late = last->abandoned ? last : last->left_out_by;
  if (late) {  // and perhaps still inside its function: this one is left out
    job->request_stop();
    job->left_out_by = std::move(late);
    return false;
  }
  const std::shared_ptr<Job> before = std::exchange(last, job);
  if (!follows || before->done) return false;
  job->before = before.get();
  before->next = job;
  return true;
}

void PendingCalls::launch(const Lock& lock, std::shared_ptr<Job> job) {
  if (running_ >= max_host_threads) return ready_.push_back(std::move(job));
  try {
    give_thread(lock, job);
  } catch (...) {  // one that runs takes it along
    if (running_ == 0) throw;
    ready_.push_back(std::move(job));
  }
}

void PendingCalls::give_thread(const Lock&, std::shared_ptr<Job> job) {
  job->counts_as_running = true;
  try {
    run_on_host_thread(
        [calls = shared_from_this(), job]() mutable { work(std::move(calls), std::move(job)); });
  } catch (...) {
    job->counts_as_running = false;
    throw;
  }
  ++running_;
}

/// Gives threads to those that are ready, now that a function less is running. Without one to be
/// had they wait for what runs, which takes them along (see work()); where nothing runs they fail.
void PendingCalls::launch_ready(const Lock& lock) {
  while (running_ < max_host_threads && !ready_.empty()) {
    const std::shared_ptr<Job> job = ready_.front();
    try {
      give_thread(lock, job);
      ready_.pop_front();
    } catch (...) {
      if (running_ > 0) return;
      ready_.pop_front();
      job->error = job->told = std::current_exception();
      job->code = ErrorCode::resource_exhausted;
      ended(lock, *job);
      changed_.notify_all();
    }
  }
}

// What a thread does for a job, and then for others that are ready.
//
// 1. Enters the function, outside of the lock and with names of what surrounds it, unless the run
//    has stopped before.
// 2. Marks the job as done, which wakes who waits for it, and makes the next of its order ready. A
//    job that was abandoned meanwhile is nobody's: another thread was given what follows.
// 3. Lets go of the job before anybody who waits can go on, so that what it owns goes with them.
void PendingCalls::work(std::shared_ptr<PendingCalls> calls, std::shared_ptr<Job> job) {
  Lock lock(calls->guard_, std::defer_lock);
  acquire(lock);  // who has just started the job holds it
  while (job) {
    const SiteSpec& spec = *job->spec;
    Ended how;  // what one that is late has thrown goes after the lock
    if (!job->stop && !job->abandoned) {
      job->begun = true;
      const auto start = Clock::now();
      if (job->has_limit()) {
        job->limit = after(spec.call.timeout);
        if (job->limit < calls->watches_until_) calls->limits_.notify_one();
      }
      lock.unlock();
      {
        const Scoped here(working_on, Work{calls.get(), job.get()});
        const timeline::Span span(timeline::Kind::call, spec.name, job->device, job->info.run);
        how = job->enter();
      }
      std::exception_ptr told;
      if (how.error) told = in_words(how.code, *job, how.error);
      warn_if_slow(spec, Clock::now() - start);
      lock.lock();
      if (!job->abandoned) {  // else its failure is told, without the lock
        static_cast<Ended&>(*job) = std::move(how);
        job->told = std::move(told);
        if (Clock::now() > job->limit) calls->abandon_late(lock, *job);
      }
    }
    if (job->abandoned) {
      lock.unlock();
      if (job->begun)
        log_seldom(fmt::format("{} returned late; its result is thrown away", describe(spec)));
      return;  // another thread was given what follows
    }
    const bool ends_it = job->end.load() && calls->run_;
    if (ends_it) calls->run_->ask_to_stop(Outcome::stopped);
    calls->ended(lock, *job);
    if (ends_it) calls->tell_to_stop(lock);
    std::shared_ptr<Job> gone = std::move(job);
    if (gone.use_count() > 1) gone.reset();  // who waits lets go of it, and of what it owns
    if (!calls->ready_.empty() && calls->running_ <= max_host_threads) {
      job = std::move(calls->ready_.front());
      calls->ready_.pop_front();
      job->counts_as_running = true;
    } else {
      --calls->running_;
    }
    calls->changed_.notify_all();
    if (!gone && job) continue;  // nothing is to go without the lock
    const bool woke = calls->sleeping_ > 0;
    lock.unlock();
    gone.reset();
    if (woke) step_aside();
    lock.lock();
  }
}

/// Takes a job off the lists. Where it is the last of its order, and was to enter behind one that
/// is late, that one is the last again; and one of a run that may still be inside stays it: what
/// comes next is left out. The caller has a reference to the job, whose `at` is of no use from here
/// on.
void PendingCalls::forget_job(const Lock&, const Job& job) {
  const bool may_be_inside = run_ && job.abandoned && job.begun;
  const auto last = job.keeps_order && !may_be_inside ? last_.find(job.order) : last_.end();
  if (last != last_.end() && last->second.get() == &job) {
    last->second = job.left_out_by;
    if (!last->second) last_.erase(last);
  }
  jobs_.erase(job.at);
}

/// What keeps an order behind the job may enter when there is a thread.
void PendingCalls::enter_next(Job& job) {
  if (!job.next) return;
  job.next->before = nullptr;
  ready_.push_back(std::move(job.next));
}

void PendingCalls::ended(const Lock& lock, Job& job) {
  job.done = true;
  enter_next(job);
  const bool tell = job.error && !job.stop;  // who is told to stop may throw
  if (tell && job.forgotten && !job.seen)
    tell_nobody(job);
  else if (tell && run_)
    failed_.push_back(*job.at);  // the run's end says so unless somebody waits
  forget_job(lock, job);
  job.under_way.reset();
  for (std::size_t i = 0; i < job.site->operands; ++i) job.memory[i].reset();
}

/// Gives a job up: its function is told to stop. In a run what was to enter behind it is left out.
void PendingCalls::abandon(const Lock& lock, Job& job, bool by_deadline) {
  const std::shared_ptr<Job> keep = *job.at;
  job.abandoned = true;
  job.by_deadline = by_deadline;
  job.request_stop();
  // What keeps an order behind it would enter while it is inside. Outside of runs: each for itself.
  if (run_)
    for (Job* behind = job.next.get(); behind; behind = behind->next.get()) {
      behind->request_stop();
      behind->left_out_by = keep;
    }
  if (job.before) {  // it was queued: what is behind it goes on waiting for that one
    if (const auto last = last_.find(job.order); last != last_.end() && last->second == keep)
      last->second = *job.before->at;
    if (job.next) job.next->before = job.before;
    job.before->next = std::move(job.next);
  }
  forget_job(lock, job);
  if (std::exchange(job.counts_as_running, false)) --running_;
  job.under_way.reset();
  std::erase(ready_, keep);
  enter_next(job);
  launch_ready(lock);
  changed_.notify_all();
}

/// Its limit has passed. That is told before a barrier that waits for the job can go on.
void PendingCalls::abandon_late(const Lock& lock, Job& job) {
  const bool tell = !job.stop;
  if (tell && run_)
    failed_.push_back(*job.at);  // its end says so, unless somebody waits for it or behind it
  else if (tell && job.forgotten)
    tell_nobody(job);
  abandon(lock, job, false);
}

// What a thread does as long as a function with a limit is queued or under way.
void PendingCalls::watch(const std::shared_ptr<PendingCalls>& calls) {
  Lock lock(calls->guard_);
  std::vector<std::shared_ptr<Job>> gone;  // without the lock, with what they own
  while (true) {
    if (!gone.empty()) {
      lock.unlock();
      gone.clear();
      lock.lock();
    }
    auto least = Clock::time_point::max();
    bool any = false;
    const auto now = Clock::now();
    for (auto it = calls->jobs_.begin(); it != calls->jobs_.end();) {
      const std::shared_ptr<Job> job = *it++;
      if (job->limit <= now) {
        calls->abandon_late(lock, *job);
        gone.push_back(job);
      } else if (job->has_limit()) {
        any = true;
        least = std::min(least, job->limit);
      }
    }
    if (!gone.empty()) continue;
    calls->watched_ = any;
    if (!any) return;
    calls->watches_until_ = least;
    calls->limits_.wait_until(lock, least);
  }
}

bool PendingCalls::is_stopped(const RunState& run) const {
  return run.stop.load() || (run_ && run_->stop.load());
}

// While a started function of ours waits here it does not count as running, so that what it waits
// for can get a thread. Awake it counts again at once, which may be one too many: then work() ends
// a thread in place of taking another job.
void PendingCalls::sleep(Lock& lock, const Job& job, const RunState& run) {
  Job* const inside = working_on.calls == this ? working_on.job : nullptr;
  const bool gives_place = inside && std::exchange(inside->counts_as_running, false);
  if (gives_place) {
    --running_;
    launch_ready(lock);
  }
  ++sleeping_;
  const auto goes = [&] { return job.done || job.abandoned || is_stopped(run); };
  changed_.wait_until(lock, run.deadline, goes);
  --sleeping_;
  if (gives_place && !inside->abandoned) {
    inside->counts_as_running = true;
    ++running_;
  }
}

void PendingCalls::tell_to_stop(const Lock&) {
  for (const auto& job : jobs_) job->request_stop();
  changed_.notify_all();
}

void PendingCalls::wake() { tell_to_stop(Lock(guard_)); }

bool PendingCalls::under_way() const {
  std::scoped_lock lock(guard_);
  return !jobs_.empty();
}

const std::shared_ptr<PendingCalls>& calls_outside() {
  static const auto* const calls =
      new std::shared_ptr<PendingCalls>(std::make_shared<PendingCalls>(nullptr));
  return *calls;
}

}  // namespace postern::internal::host
