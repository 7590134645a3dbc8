// Entering host functions: the path from a device's buffers to the user's code and back.
//
// fire() is what every execution of a site comes to. By what the site asks for it goes one of these
// ways, each of which ends in `enter_here` or `enter_function` and nowhere else:
//   - at once, on this thread and the device's own memory (enter_at_once);
//   - on another thread, on copies, until the site's limit or the run's deadline (enter_in_time);
//   - later, on copies in the tap queue (put_in_queue), which delivers them in order;
//   - on another thread, on copies, until another site waits (start_or_wait, host/pending);
//   - element by element of a batch (enter_elements), each of them one of these ways.
// Nothing here throws through XLA: a failure is kept in the run, which ends by it.
#include <postern/detail/small_vector.h>

#include <algorithm>
#include <cstring>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/lists.h"
#include "core/log.h"
#include "core/value.h"
#include "host/bad_result.h"
#include "host/executor.h"
#include "host/fire.h"
#include "host/limit.h"
#include "host/live.h"
#include "host/pending.h"
#include "host/queue.h"
#include "host/tape.h"
#include "host/timed_job.h"
#include "host/timeline.h"

namespace postern::internal::host {

namespace {

using detail::Firing;

/// What the function is told. `stop` is the run's state, or the job's that outlives it.
TapInfo make_info(const RunState& run, const HostSite& site, detail::StopState* stop, int device,
                  std::int64_t element, std::span<const bool> mask) {
  const SiteSpec& spec = *site.spec;
  const HostSite::Spot& spot = site.spot(device);
  return {{spec.name, device, spec.place, run.number, StopToken(stop), run.context, run.sink,
           element, stop, spot.coordinates, spot.part, nullptr, clusters::rank_now()},
          spec.transforms,
          spec.operand_paths,
          spec.recomputed,
          mask};
}

/// Of the exception that is being handled, which `site` threw. Functions of ours know what is
/// wrong.
ErrorCode code_of_thrown(const HostSite& site) noexcept {
  try {
    throw;
  } catch (const BadResult&) {
    return ErrorCode::bad_result;
  } catch (const NoAnswer&) {
    return ErrorCode::timeout;
  } catch (const CallbackError& e) {
    constexpr ErrorCode kept[] = {ErrorCode::reentry, ErrorCode::closed, ErrorCode::unregistered};
    if (std::ranges::find(kept, e.code()) != std::end(kept)) return e.code();
    return ErrorCode::threw;
  } catch (const Error& e) {
    const bool ours = site.of_loop_tapes || site.of_processes;
    const bool known = ours || e.code() == ErrorCode::bad_result;
    return known ? e.code() : ErrorCode::threw;
  } catch (...) {
    return ErrorCode::threw;
  }
}

}  // namespace

bool enter_function(const HostSite& site, const Firing& firing, std::exception_ptr& error,
                    ErrorCode& code) noexcept {
  enters_users_code();
  try {
    site.invoke(site.object, firing);
    return true;
  } catch (const abi::__forced_unwind&) {
    keep_thread_alive();
    code = ErrorCode::threw;
    error = std::make_exception_ptr(Error(ErrorCode::failed_precondition, ended_its_thread));
    return false;
  } catch (...) {
    error = std::current_exception();
    code = code_of_thrown(site);
    return false;
  }
}

namespace {

thread_local std::int64_t one_of_many = -1;  // the element that is called, of a parallel batch

void keep_failure(RunState& run, const HostSite& site, int device, const std::exception_ptr& error,
                  ErrorCode code) noexcept {
  try {
    run.fail(code, site, device, code == ErrorCode::bad_result ? nullptr : error, describe(error),
             one_of_many);
  } catch (...) {
    run.request(Outcome::failed);  // not even memory for the text
  }
}

bool enter_at_once(RunState& run, const HostSite& site, void* const* data, int device,
                   std::int64_t element, std::span<const bool> mask,
                   void* stream = nullptr) noexcept {
  run.floats.set();  // the function before it, of a batch, may have left others
  if (!site.wants_info) return enter_here(run, site, data, device, nullptr);
  TapInfo info = make_info(run, site, &run, device, element, mask);
  info.stream = stream;
  if (!enter_here(run, site, data, device, &info)) return false;
  if (!run.end.load(std::memory_order_relaxed)) [[likely]]
    return true;
  run.request(Outcome::stopped);
  return false;
}

/// Whether all elements of a batch count as one firing.
bool together(const HostSite& site) {
  return !site.level_sizes.empty() && site.spec->vmap == VmapMethod::parallel;
}
bool limited(const RunState& run, const HostSite& site) {
  if (site.of_processes) return false;  // which looks at the clock itself
  return !site.spec->async && !site.of_loop_tapes && site.spec->role == SiteSpec::Role::whole &&
         (site.spec->timeout.count() > 0 || run.deadline != RunState::Clock::time_point::max());
}
/// Where several devices may fail at the same firing.
void pass(RunState& run, const HostSite& site, int device) {
  if (run.poison && !together(site)) run.passes(site, device);
}

/// Whether the firing passes when its limit has, or it has ended. Those that listen at a live hook
/// pass with it.
bool passes_late(const RunState& run, const HostSite& site) {
  return limited(run, site) && !site.spec->live && !site.is_listener;
}

// Fires a site that must have returned by `limit`: the run's deadline or the site's own.
//
// 1. Copies the operands into a job that outlives the run, and enters the function on a host thread
//    that is told of the nesting around it by name only.
// 2. Waits for it, until the limit or until the run is stopped.
// 3. In time: copies the results to `data`, or keeps the failure; true if the run goes on.
//    Too late: abandons the job, asks the function to stop, and fails the run with a timeout. The
//    function may still run; what it makes is thrown away.
//
// Throws only what making the job and its thread does.
bool enter_in_time(RunState& run, const HostSite& site, void* const* data, int device,
                   std::int64_t element, RunState::Clock::time_point limit) {
  const auto job = std::make_shared<TimedJob>(site, data);
  start(job, make_info(run, job->site, job.get(), device, element, {}), run, device);
  std::unique_lock lock = wait_for(*job, run, limit);
  if (passes_late(run, site)) pass(run, site, device);  // others' limits pass at the same time
  if (job->done) {
    lock.unlock();  // the job is this thread's now
    // Its function goes with the run, even if the thread lets go of the job later.
    const HostSite gone = std::move(job->site);
    if (!job->ok) {
      keep_failure(run, site, device, job->error, job->code);
      return false;
    }
    for (std::size_t i = site.operands; i < site.leaves.size(); ++i)
      std::memcpy(data[i], job->data[i], site.leaf_bytes[i]);
    if (job->end.load()) run.request(Outcome::stopped);
    return !job->end.load();
  }
  job->abandoned = true;
  job->stop = true;
  lock.unlock();
  if (run.stop.load()) return false;
  run.fail(ErrorCode::timeout, site, device, nullptr, too_late(*site.spec, limit == run.deadline),
           one_of_many);
  return false;
}

/// What has one order over all devices is delivered by one thread.
TapQueue& queue_of(const RunState& run, const HostSite& site, int device) {
  return tap_queue(site.one_order && run.turns.several() ? run.turns.first() : device);
}

/// A firing that is delivered later.
bool put_in_queue(RunState& run, const HostSite& site, void* const* data, int device,
                  std::int64_t element, std::span<const bool> mask) noexcept {
  try {
    return queue_of(run, site, device).push(run, site, device, element, data, mask);
  } catch (...) {
    keep_failure(run, site, device, std::current_exception(), ErrorCode::resource_exhausted);
    return false;
  }
}

/// Of a call that overlaps.
bool start_or_wait(RunState& run, const HostSite& site, void* const* data, int device,
                   std::int64_t element, std::span<const bool> mask) noexcept {
  try {
    if (site.spec->role == SiteSpec::Role::wait) return run.calls().wait(run, site, data, device);
    run.calls().start(run, site, data, device,
                      make_info(run, site, nullptr, device, element, mask));
    return true;
  } catch (...) {
    keep_failure(run, site, device, std::current_exception(), ErrorCode::resource_exhausted);
    return false;
  }
}

/// Whether this is a firing that reaches the function.
bool counts(const SiteSpec& spec) {
  if (!spec.chooses()) return true;
  const auto every = static_cast<std::uint64_t>(spec.every);
  const auto until = static_cast<std::uint64_t>(spec.until);
  const std::uint64_t n = spec.counts->firings.fetch_add(1, std::memory_order_relaxed);
  return n % every == 0 && (until == 0 || n / every < until);
}

/// One firing in the way that the site asks for.
bool enter_as_asked(RunState& run, const HostSite& site, void* const* data, int device,
                    std::int64_t element, std::span<const bool> mask) noexcept {
  const SiteSpec& spec = *site.spec;
  if (!counts(spec)) return true;
  if (spec.async) return put_in_queue(run, site, data, device, element, mask);
  using Clock = RunState::Clock;
  const bool timed = spec.warn_after.count() > 0 || run.deadline != Clock::time_point::max();
  const auto start = timed ? Clock::now() : Clock::time_point::min();  // which takes 20 ns
  bool ok = false;
  if (start >= run.deadline) {
    keep_failure(run, site, device,
                 std::make_exception_ptr(std::runtime_error("the run's deadline passed")),
                 ErrorCode::timeout);
    return false;
  }
  if (spec.role != SiteSpec::Role::whole)
    return start_or_wait(run, site, data, device, element, mask);
  if (limited(run, site)) {
    const auto limit =
        spec.timeout.count() > 0 ? std::min(after(spec.timeout), run.deadline) : run.deadline;
    try {
      ok = enter_in_time(run, site, data, device, element, limit);
    } catch (...) {
      keep_failure(run, site, device, std::current_exception(), ErrorCode::resource_exhausted);
    }
  } else {
    ok = enter_at_once(run, site, data, device, element, mask);
  }
  if (spec.warn_after.count() > 0) {
    const auto took = Clock::now() - start;
    if (took > spec.warn_after)
      log(LogLevel::warning, "{} took {:g} ms", describe(spec),
          std::chrono::duration<double, std::milli>(took).count());
  }
  return ok;
}

bool repeats(const HostSite& site, int device) { return site.spot(device).repeats; }

/// The same where what functions see and give may be recorded, or be given by a recording.
bool enter_or_replay(RunState& run, const HostSite& site, void* const* data, int device,
                     std::int64_t element, std::span<const bool> mask) noexcept {
  if (!run.tape || site.of_loop_tapes)
    return enter_as_asked(run, site, data, device, element, mask);
  try {
    if (run.tape->replays()) return run.tape->replay(run, site, data, device, element);
    if (const auto given = run.tape->give(run, site, data, device, element)) return *given;
    const bool ok = enter_as_asked(run, site, data, device, element, mask);
    run.tape->record(run, site, data, device, element, ok);
    return ok;
  } catch (...) {
    return keep_thrown(run, site, device);
  }
}

/// A live hook: the program's own listener if it has one, which a tape takes for its tap, then
/// those that were turned on, in their order, each in the way that it was asked for.
bool enter_listeners(RunState& run, const HostSite& site, void* const* data, int device,
                     std::int64_t element, std::span<const bool> mask) noexcept {
  if (!site.awake) {
    const auto changed = run.tape ? nullptr : changed_own(site);
    if (!(changed ? enter_as_asked(run, *changed, data, device, element, mask)
                  : enter_or_replay(run, site, data, device, element, mask)))
      return false;
  }
  const auto sites = sites_at(*site.spec->live);
  if (!sites) return true;
  for (const auto& listener : *sites) {
    if (listener->is_spent()) continue;
    const bool goes_on = enter_as_asked(run, *listener, data, device, element, mask);
    if (listener->is_spent()) is_over(*site.spec->live, listener->number);
    if (goes_on) continue;
    for (const auto& other : *sites)
      if (listener->ends_run_there && other->ends_run_there)
        is_over(*site.spec->live, other->number);
    return false;
  }
  return true;
}

bool enter_one(RunState& run, const HostSite& site, void* const* data, int device,
               std::int64_t element, std::span<const bool> mask) noexcept {
  if (!passes_late(run, site)) pass(run, site, device);
  if (repeats(site, device)) return true;
  if (site.spec->live) return enter_listeners(run, site, data, device, element, mask);
  return enter_or_replay(run, site, data, device, element, mask);
}

/// The leaves of element `e` of the batch.
bool enter_element(RunState& run, const HostSite& site, void* const* buffers, int device,
                   std::int64_t e) noexcept {
  detail::SmallVector<void*, HostSite::few> data(site.leaves.size());
  std::size_t mask_at = 0;
  for (std::size_t i = 0; i < site.leaves.size(); ++i)
    data[i] = buffers[i < site.operands ? i : i + site.spec->masked];
  std::int64_t rest = e;
  for (std::size_t l = site.level_sizes.size(); l-- > 0;) {
    const auto index = size_of(rest % site.level_sizes[l]);
    rest /= site.level_sizes[l];
    for (std::size_t i = 0; i < site.leaves.size(); ++i)
      data[i] = static_cast<std::byte*>(data[i]) + index * site.level_strides[l][i];
    mask_at += index * site.mask_strides[l];
  }
  if (site.spec->masked && !static_cast<const bool*>(buffers[site.operands])[mask_at]) {
    for (std::size_t i = site.operands; i < site.leaves.size(); ++i)
      std::memset(data[i], 0, site.leaf_bytes[i]);
    return true;
  }
  return enter_one(run, site, data.data(), device, e, {});
}

bool enter_elements(RunState& run, const HostSite& site, void* const* buffers,
                    int device) noexcept {
  if (site.spec->vmap != VmapMethod::parallel) {
    for (std::int64_t e = 0; e < site.elements; ++e)
      if (run.stop.load(std::memory_order_relaxed) || !enter_element(run, site, buffers, device, e))
        return false;
    return true;
  }
  if (run.poison) run.passes(site, device);
  // Elements are taken in order, and one that fails stops those behind it: the lowest is told.
  std::atomic<std::int64_t> failed = site.elements;
  try {
    parallel_for(site.elements, [&, outer = nesting()](std::int64_t e) {
      NestingScope scope(outer);
      const std::int64_t before = std::exchange(one_of_many, e);
      const bool ok = e < failed && (!run.stop.load() || run.batch_failed(site, device)) &&
                      enter_element(run, site, buffers, device, e);
      one_of_many = before;
      for (std::int64_t least = failed; !ok && e < least;)
        if (failed.compare_exchange_weak(least, e)) break;
    });
  } catch (...) {
    keep_failure(run, site, device, std::current_exception(), ErrorCode::resource_exhausted);
    return false;
  }
  return failed == site.elements;
}

/// Sites that are neither plain nor batched: masks over whole batches, limits, warnings.
bool enter_whole(RunState& run, const HostSite& site, void* const* buffers, int device) noexcept {
  if (!site.spec->masked) return enter_one(run, site, buffers, device, -1, {});
  const std::span mask(static_cast<const bool*>(buffers[site.operands]),
                       size_of(site.spec->mask_size));
  if (std::none_of(mask.begin(), mask.end(), [](bool alive) { return alive; })) {
    zero_results(site, buffers);
    return true;
  }
  std::vector<void*> data(buffers, buffers + site.operands);
  data.insert(data.end(), buffers + site.operands + 1, buffers + site.buffers);
  return enter_one(run, site, data.data(), device, -1, mask);
}

/// The firing's turn among those of all devices, where its site has one order over them.
class Turn {
 public:
  Turn(RunState& run, const HostSite& site, int device)
      : turns_(site.one_order && run.turns.several() ? &run.turns : nullptr) {
    if (turns_) turns_->wait(device, run.stop, run.deadline);
  }
  ~Turn() {
    if (turns_) turns_->pass();
  }
  Turn(const Turn&) = delete;

 private:
  Turns* const turns_;
};

timeline::Span begin(RunState& run, const HostSite& site, int device) {
  run.enters(site, device);
  return {site.spec->is_tap() ? timeline::Kind::tap : timeline::Kind::call, site.spec->name, device,
          run.number};
}

}  // namespace

bool fire(RunState& run, const HostSite& site, void* const* buffers, int device) noexcept {
  const Turn turn(run, site, device);
  bool ok = false;
  if (!run.stop.load(std::memory_order_relaxed)) {
    const timeline::Span span = begin(run, site, device);
    if (!site.level_sizes.empty()) {
      ok = enter_elements(run, site, buffers, device);
    } else if (site.direct && !run.tape && run.deadline == RunState::Clock::time_point::max()) {
      pass(run, site, device);
      ok = enter_at_once(run, site, buffers, device, -1, {});
    } else {
      ok = enter_whole(run, site, buffers, device);
    }
  }
  if (!ok && run.poison) zero_results(site, buffers);
  return ok;
}

bool fire_fetched(RunState& run, const HostSite& site, int device, const Fetch& fetch) noexcept {
  const Turn turn(run, site, device);
  if (run.stop.load(std::memory_order_relaxed)) return false;
  const timeline::Span span = begin(run, site, device);
  pass(run, site, device);
  if (repeats(site, device) || !counts(*site.spec)) return true;
  try {
    return queue_of(run, site, device).push(run, site, device, fetch);
  } catch (...) {
    keep_failure(run, site, device, std::current_exception(), ErrorCode::resource_exhausted);
    return false;
  }
}

bool fire_on_device(RunState& run, const HostSite& site, void* const* buffers, int device,
                    void* stream) noexcept {
  const Turn turn(run, site, device);
  if (run.stop.load(std::memory_order_relaxed)) return false;
  const timeline::Span span = begin(run, site, device);
  pass(run, site, device);
  if (run.tape) {
    run.fail(ErrorCode::unimplemented, site, device, nullptr,
             "its operands are on a device, where they cannot be recorded or replayed");
    return false;
  }
  if (RunState::Clock::now() >= run.deadline) {
    run.fail(ErrorCode::timeout, site, device, nullptr, "the run's deadline passed");
    return false;
  }
  return enter_at_once(run, site, buffers, device, -1, {}, stream);
}

bool keep_thrown(RunState& run, const HostSite& site, int device) noexcept {
  keep_failure(run, site, device, std::current_exception(), code_of_thrown(site));
  return false;
}

bool keep_thread_end(RunState& run, const HostSite& site, int device) noexcept {
  keep_failure(run, site, device,
               std::make_exception_ptr(Error(ErrorCode::failed_precondition, ended_its_thread)),
               ErrorCode::threw);
  return false;
}

}  // namespace postern::internal::host
