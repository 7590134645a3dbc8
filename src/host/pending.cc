// Started functions and who waits for them.
//
// A job is one start: copies of its operands, room for its results, and where it stands. It is
// queued, has begun, and is then done; or it is abandoned, when its limit or the run's deadline has
// passed. Whoever holds a ticket of it waits in wait(); the run's end, in finish(), waits for all
// that have not returned. All of this is under one lock for each run; functions run outside of it.
#include "host/pending.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "core/log.h"
#include "core/value.h"
#include "host/executor.h"
#include "host/fire.h"
#include "host/limit.h"
#include "host/lookout.h"
#include "host/tape.h"
#include "host/ticket.h"
#include "host/timeline.h"
#include "host/unseen.h"
#include "host/waits.h"

namespace postern::internal::host {

std::string too_late(const SiteSpec& spec, bool by_deadline) {
  if (by_deadline) return "the run's deadline passed";
  return fmt::format("no result within the limit of {:g} ms",
                     std::chrono::duration<double, std::milli>(spec.timeout).count());
}

namespace {

constexpr std::size_t kept_used = 64;

}  // namespace

struct PendingCalls::Job : detail::StopState {
  Job(RunState& of, const HostSite& s, int on_device, const TapInfo& given_info)
      : site(&s),
        spec(s.spec),
        owner(of.owner),
        under_way(of.under_way),
        device(on_device),
        info(given_info) {}

  const HostSite* site;  // as long as there is the owner
  const SitePtr spec;
  std::shared_ptr<const void> owner;
  std::shared_ptr<void> under_way;  // let go when the function has returned
  const int device;
  int depth = 0;
  std::vector<RunName> inside;
  TapInfo info;
  std::unique_ptr<bool[]> mask;
  std::vector<std::shared_ptr<void>> memory;
  std::vector<void*> data;
  std::vector<std::size_t> bytes;  // of a ticket's part of each result

  std::pair<const HostSite*, int> key;  // in last_
  bool keeps_order = false;
  std::shared_ptr<Job> next;  // enters behind this one
  std::list<std::shared_ptr<Job>>::iterator at;
  std::atomic<bool> done{false};  // for who looks without the lock
  bool begun = false, abandoned = false, ok = false;
  bool seen = false, forgotten = false;  // its failure; by all who could wait
  Clock::time_point limit = Clock::time_point::max();
  std::exception_ptr error;
  ErrorCode code = ErrorCode::ok;
};

namespace {

/// Kept for barrier(); there is nobody else to tell.
void tell_nobody(const HostSite& site, int device, ErrorCode code, const std::exception_ptr& error,
                 const std::string& late) noexcept {
  try {
    if (error) return keep_unseen(callback_error(code, site, device, error));
    const std::string text = fmt::format("{} on device {}: {}", describe(*site.spec), device, late);
    keep_unseen(std::make_exception_ptr(
        TimeoutError(code, text, {site.spec->name, site.spec->place}, device, nullptr)));
  } catch (...) {
    log_line("a started call failed, and there was no memory to say how");
  }
}

}  // namespace

void PendingCalls::start(RunState& run, const HostSite& site, void* const* data, int device,
                         const TapInfo& given_info) {
  auto job = std::make_shared<Job>(run, site, device, given_info);
  const std::size_t n = site.operands;
  job->forgotten = site.results == 0;  // nobody can wait
  const std::size_t count = job->forgotten ? 0 : static_cast<std::size_t>(site.leaves[n].size);
  for (std::size_t i = 0; i < site.called.size(); ++i) {
    job->memory.push_back(detail::aligned_bytes(site.called_bytes[i]));
    job->data.push_back(job->memory.back().get());
    if (i < n)
      std::memcpy(job->data[i], data[i], site.called_bytes[i]);
    else
      job->bytes.push_back(count ? site.called_bytes[i] / count : 0);
  }
  job->info.run_state = job.get();
  job->info.stop = StopToken(job.get());
  if (!given_info.mask.empty()) {
    job->mask = std::make_unique<bool[]>(given_info.mask.size());
    std::ranges::copy(given_info.mask, job->mask.get());
    job->info.mask = {job->mask.get(), given_info.mask.size()};
  }
  job->depth = nesting() ? nesting()->depth + 1 : 1;
  job->inside = surrounding_runs();
  job->inside.push_back({run.name().ticket, run.lane_run});

  std::vector<std::uint64_t> tickets(count);
  for (std::uint64_t& t : tickets) t = new_ticket(site);
  Lock lock(guard_);
  if (run.stop.load()) job->stop = true;
  for (std::size_t e = 0; e < count; ++e) tickets_[tickets[e]] = {job, e};
  try {
    enqueue(lock, job);
  } catch (...) {
    for (const std::uint64_t t : tickets) tickets_.erase(t);
    throw;
  }
  lock.unlock();
  if (count) std::memcpy(data[n], tickets.data(), count * sizeof(std::uint64_t));
  let_jobs_begin();
}

void PendingCalls::enqueue(const Lock& lock, std::shared_ptr<Job> job) {
  const SiteSpec& spec = *job->spec;
  const bool element = job->info.element >= 0 && spec.vmap == VmapMethod::sequential;
  std::shared_ptr<Job> before;
  if (spec.effect == Effect::ordered || element) {
    job->key = {spec.effect == Effect::ordered ? nullptr : job->site,
                job->site->one_order ? -1 : job->device};
    job->keeps_order = true;
    std::shared_ptr<Job>& last = last_[job->key];
    // The elements of one batch follow each other, but not those of the batch before.
    if (last && !last->done && !last->abandoned &&
        (spec.effect == Effect::ordered || last->info.element < job->info.element))
      before = last;
    last = job;
  }
  job->at = jobs_.insert(jobs_.end(), job);
  if (before) {
    before->next = std::move(job);
    return;
  }
  try {
    launch(lock, job);
  } catch (...) {
    jobs_.erase(job->at);
    if (job->keeps_order) last_.erase(job->key);
    throw;
  }
}

void PendingCalls::launch(const Lock&, std::shared_ptr<Job> job) {
  if (running_ >= max_host_threads) return ready_.push_back(std::move(job));
  try {
    run_on_host_thread(
        [calls = shared_from_this(), job]() mutable { work(std::move(calls), std::move(job)); });
    ++running_;
  } catch (...) {  // one that runs takes it along
    if (running_ == 0) throw;
    ready_.push_back(std::move(job));
  }
}

// What a thread does for a job, and then for others that are ready.
//
// 1. Enters the function, outside of the lock and with names of what surrounds it, unless the run
//    has stopped before.
// 2. Marks the job as done, which wakes who waits for it, and makes the next one of its order
// ready.
//    A job that was abandoned meanwhile is nobody's: another thread was given what follows.
// 3. Lets go of the job before anybody who waits can go on, so that what it owns goes with them.
void PendingCalls::work(std::shared_ptr<PendingCalls> calls, std::shared_ptr<Job> job) {
  Lock lock(calls->guard_, std::defer_lock);
  acquire(lock);  // who has just started the job holds it
  while (job) {
    const SiteSpec& spec = *job->spec;
    if (!job->stop && !job->abandoned) {
      job->begun = true;
      const auto start = Clock::now();
      if (spec.timeout.count() > 0) {
        job->limit = after(spec.timeout);
        calls->changed_.notify_all();  // who waits did not know
      }
      lock.unlock();
      std::exception_ptr error;
      ErrorCode code = ErrorCode::ok;
      bool ok = false;
      {
        // The run's own chain may be gone when this function is late: only names are carried over.
        const Beginning nested{{nullptr, nullptr, job->site, job->device, job->depth}, job->inside};
        NestingScope scope(&nested);
        const timeline::Span span(timeline::Kind::call, spec.name, job->device, job->info.run);
        ok = enter_function(*job->site,
                            {job->site->called.data(), job->data.data(), job->site->operands,
                             spec.later.size(), &job->info, &job->site->declared},
                            error, code);
      }
      const auto took = Clock::now() - start;
      if (spec.warn_after.count() > 0 && took > spec.warn_after)
        log(LogLevel::warning, "{} took {:g} ms", describe(spec),
            std::chrono::duration<double, std::milli>(took).count());
      lock.lock();
      job->ok = ok;
      job->error = std::move(error);
      job->code = code;
    }
    if (job->abandoned) {
      if (job->begun)
        log(LogLevel::warning, "{} returned after its run had ended; its result is thrown away",
            describe(spec));
      lock.unlock();
      return;  // another thread was given what follows
    }
    const bool ends_run = job->end.load() && calls->run_;
    if (ends_run) calls->run_->ask_to_stop(Outcome::stopped);
    calls->ended(lock, *job);
    if (ends_run) calls->tell_to_stop(lock);
    std::shared_ptr<Job> gone = std::move(job);
    if (gone.use_count() > 1) gone.reset();  // who waits lets go of it, and of what it owns
    if (!calls->ready_.empty()) {
      job = std::move(calls->ready_.front());
      calls->ready_.pop_front();
    } else {
      --calls->running_;
    }
    calls->changed_.notify_all();
    if (!gone && job) continue;
    const bool woke = calls->sleeping_ > 0;
    lock.unlock();
    gone.reset();
    if (woke) step_aside();
    lock.lock();
  }
}

/// The job is done: what keeps an order behind it may enter.
void PendingCalls::ended(const Lock&, Job& job) {
  job.done = true;
  if (job.next) ready_.push_back(std::move(job.next));
  if (job.keeps_order)
    if (const auto last = last_.find(job.key); last != last_.end() && last->second.get() == &job)
      last_.erase(last);
  const bool tell = job.error && !job.stop;  // who is told to stop may throw
  if (tell && job.forgotten && !job.seen)
    tell_nobody(*job.site, job.device, job.code, job.error, {});
  else if (tell && run_)
    failed_.push_back(*job.at);  // the run's end says so unless somebody waits
  jobs_.erase(job.at);
  job.under_way.reset();
  for (std::size_t i = 0; i < job.site->operands; ++i) job.memory[i].reset();
}

void PendingCalls::abandon(const Lock& lock, Job& job) {
  const std::shared_ptr<Job> keep = *job.at;
  job.abandoned = true;
  job.stop = true;
  // What keeps an order behind it would enter while it is inside. Outside of runs each is for
  // itself.
  if (run_)
    for (Job* behind = job.next.get(); behind; behind = behind->next.get()) behind->stop = true;
  jobs_.erase(job.at);
  if (job.keeps_order)
    if (const auto last = last_.find(job.key); last != last_.end() && last->second.get() == &job)
      last_.erase(last);
  if (job.begun) --running_;
  job.under_way.reset();
  std::erase(ready_, keep);
  try {
    if (std::shared_ptr<Job> next = std::move(job.next)) launch(lock, std::move(next));
    if (running_ < max_host_threads && !ready_.empty()) {
      std::shared_ptr<Job> first = std::move(ready_.front());
      ready_.pop_front();
      launch(lock, std::move(first));
    }
  } catch (...) {
    log_line("a started call was not entered: the system gave no thread");
  }
  changed_.notify_all();
}

/// Types are compared while tracing, but a program from a file may mix its tickets.
std::string PendingCalls::misfit(const Job& job, const HostSite& site) {
  bool fits = job.bytes.size() == site.results;
  for (std::size_t i = 0; fits && i < site.results; ++i)
    fits = job.bytes[i] == site.leaf_bytes[1 + i] &&
           job.spec->later[i].dtype == site.leaves[1 + i].dtype;
  if (fits) return {};
  return fmt::format("{} gives {}, and {} is waited for", describe(*job.spec),
                     to_string(job.spec->later), to_string(site.spec->results));
}

std::string PendingCalls::unknown(std::uint64_t ticket) const {
  if (ticket == 0) return "no call was started that this could wait for";
  const auto used = std::ranges::find(used_, ticket, [](const auto& u) { return u.first; });
  if (used != used_.end())
    return fmt::format("{} has been waited for before, at {}: its results are given once",
                       started_at(ticket), to_string(used->second));
  return fmt::format("{} was not started by this run, or has been waited for before",
                     started_at(ticket));
}

// Waits for what a ticket stands for; false when the run must not go on.
//
// 1. Takes the ticket, so that nobody else can: without one the run fails, with both places.
// 2. Waits until the job is done or late, or the run stops. All of them wake it.
// 3. Copies the ticket's part of the results, or fails the run: with what the function threw, or as
//    late, and then the job is abandoned.
bool PendingCalls::wait(RunState& run, const HostSite& site, void* const* data, int device) {
  std::uint64_t number = 0;
  std::memcpy(&number, data[0], sizeof number);
  Lock lock(guard_);
  const auto found = tickets_.find(number);
  if (found == tickets_.end()) {
    std::string text = unknown(number);
    if (run.tape && run.tape->is_resumed())
      text += "; a run that ended between the start of a call and its wait cannot be resumed";
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
  const Ticket ticket = std::move(found->second);
  tickets_.erase(found);
  used_.emplace_back(number, site.spec->place);
  if (used_.size() > kept_used) used_.pop_front();
  Job& job = *ticket.job;
  const auto until = [&] { return std::min(job.limit, run.deadline); };
  if (!job.done) {
    static Lookout lookout;
    const auto most = until() - Clock::now();
    lock.unlock();
    lookout.look([&] { return job.done.load() || run.stop.load(); }, most);
    acquire(lock);
  }
  while (!job.done && !job.abandoned && !run.stop.load() && Clock::now() < until()) {
    ++sleeping_;
    if (until() == Clock::time_point::max())
      changed_.wait(lock);
    else
      changed_.wait_until(lock, until());
    --sleeping_;
  }
  if (run.stop.load()) return false;
  if (job.end.load()) {
    lock.unlock();
    run.request(Outcome::stopped);
    return false;
  }
  if (job.done && !job.error && !job.ok) {  // it was left out
    lock.unlock();
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
    const bool by_deadline = job.limit > run.deadline;
    if (!job.abandoned) abandon(lock, job);
    lock.unlock();
    run.fail(ErrorCode::timeout, *job.site, device, nullptr, too_late(*job.spec, by_deadline));
    return false;
  }
  lock.unlock();
  for (std::size_t i = 0; i < job.bytes.size(); ++i)
    if (job.bytes[i])
      std::memcpy(data[1 + i],
                  static_cast<const std::byte*>(job.data[job.site->operands + i]) +
                      ticket.element * job.bytes[i],
                  job.bytes[i]);
  return true;
}

void PendingCalls::tell_to_stop(const Lock&) {
  for (const auto& job : jobs_) job->stop = true;
  changed_.notify_all();
}

void PendingCalls::wake() { tell_to_stop(Lock(guard_)); }

bool PendingCalls::under_way() const {
  std::scoped_lock lock(guard_);
  return !jobs_.empty();
}

void PendingCalls::finish(const RunState& run) noexcept {
  std::unordered_map<std::uint64_t, Ticket> tickets;  // go after the lock, with what they own
  std::vector<std::shared_ptr<Job>> failed, late;
  Lock lock(guard_);
  while (!jobs_.empty()) {
    auto until = run.deadline;
    for (const auto& job : jobs_) until = std::min(until, job->limit);
    if (until == Clock::time_point::max()) {
      changed_.wait(lock);
      continue;
    }
    changed_.wait_until(lock, until);
    const auto now = Clock::now();
    const bool all = now >= run.deadline;
    for (auto it = jobs_.begin(); it != jobs_.end();) {
      const std::shared_ptr<Job> job = *it++;
      if (!all && now < job->limit) continue;
      const bool was_stopped = job->stop;
      abandon(lock, *job);
      if (!was_stopped) late.push_back(job);
    }
  }
  tickets.swap(tickets_);
  failed.swap(failed_);
  last_.clear();
  used_.clear();
  lock.unlock();
  for (const auto& job : late)
    tell_nobody(*job->site, job->device, ErrorCode::timeout, nullptr,
                too_late(*job->spec, job->limit > run.deadline));
  for (const auto& job : failed)
    if (!job->seen) tell_nobody(*job->site, job->device, job->code, job->error, {});
}

void PendingCalls::forget(std::span<const std::uint64_t> numbers) noexcept {
  std::vector<std::shared_ptr<Job>> gone;
  Lock lock(guard_);
  for (const std::uint64_t number : numbers) {
    const auto found = tickets_.find(number);
    if (found == tickets_.end()) continue;
    const std::shared_ptr<Job> job = std::move(found->second.job);
    tickets_.erase(found);
    if (job->done && job->error && !job->seen && !job->forgotten)
      tell_nobody(*job->site, job->device, job->code, job->error, {});
    job->forgotten = true;
    gone.push_back(job);
  }
  lock.unlock();
}

const std::shared_ptr<PendingCalls>& calls_outside() {
  static const auto* const calls =
      new std::shared_ptr<PendingCalls>(std::make_shared<PendingCalls>(nullptr));
  return *calls;
}

}  // namespace postern::internal::host
