// Starting, waiting, cancelling.
#include "run/start.h"

#include <postern/live.h>
#include <postern/shard.h>

#include <algorithm>
#include <atomic>

#include "cluster/cluster.h"
#include "core/fork.h"
#include "core/mutex.h"
#include "host/executor.h"
#include "host/limit.h"
#include "host/run_end.h"
#include "host/run_observer.h"
#include "host/spin.h"
#include "host/timeline.h"
#include "host/unobserved.h"
#include "run/array.h"

namespace postern::detail {
using namespace internal;

using host::Outcome;
using host::RunState;

struct StartedRun {
  std::shared_ptr<RunState> record;
  Mutex guard;
  StopCondition ended;
  std::atomic<bool> done{false};
  RunStatus status = RunStatus::running;
  Tensors results;
  std::exception_ptr failure;
  bool seen = false;  // by somebody who waited
  RunState::Clock::time_point deadline = RunState::Clock::time_point::max();
  std::function<void()> at_end;
  std::vector<std::uint64_t> live_hooks;  // their numbers

  ~StartedRun() {
    if (status == RunStatus::failed && !seen) host::keep_unobserved(failure);
  }

  /// Ends it for who waits, unless it has ended already; returns what is to be done then, which is
  /// the user's: without the lock, on a thread of ours.
  [[nodiscard]] std::function<void()> end(RunStatus how, std::exception_ptr why = nullptr) {
    std::scoped_lock lock(guard);
    if (done) return nullptr;
    done = true;
    status = how;
    failure = std::move(why);
    ended.notify_all();
    return std::exchange(at_end, nullptr);
  }
};

namespace {

/// Tells other processes of the exception that is handled: the run may not have failed itself yet.
void tell_processes(const RunState& run) {
  try {
    throw;
  } catch (const std::exception& e) {
    run.ends_early(e.what());
  } catch (...) {
    run.ends_early("of an exception that is none of the standard's");
  }
}

/// Does the run and ends it: its results are there, or it has failed, and the functions that it
/// started have returned. Returns what end() does.
std::function<void()> work(StartedRun& run, const std::function<Tensors()>& body) {
  try {
    Tensors results = body();
    for (const Tensor& t : results) t.block_until_ready();
    run.record->wait_for_end();
    if (run.record->failed()) run.record->rethrow();  // by a function that is late
    {
      std::scoped_lock lock(run.guard);
      run.results = std::move(results);
    }
    return run.end(RunStatus::done);
  } catch (...) {
    tell_processes(*run.record);
    run.record->wait_for_end();
    switch (run.record->outcome()) {
      case Outcome::stopped: return run.end(RunStatus::stopped);
      case Outcome::cancelled: return run.end(RunStatus::cancelled, std::current_exception());
      default: return run.end(RunStatus::failed, std::current_exception());
    }
  }
}

/// Calls the user's `act`, if any. A barrier in there does not wait for the runs of these numbers.
void enter_at_end(const std::function<void()>& act, std::initializer_list<std::uint64_t> started) {
  if (!act) return;
  host::Beginning here{};
  for (const std::uint64_t number : started) here.inside.push_back({number});
  const host::NestingScope scope(&here);
  enters_users_code();
  act();
}

/// Enters `act` on a thread of ours: whoever calls may hold locks of its own that `act` takes.
/// Barriers wait until it has returned.
void act_elsewhere(const StartedRun& run, const std::function<void()>& act) {
  if (!act) return;
  const std::uint64_t of_run = run.record->started, number = run::Runtime::get().add_started();
  const auto enter = [=, open = run::Runtime::keep_open(number)] {
    enter_at_end(act, {of_run, number});
  };
  try {
    host::run_on_host_thread(enter);
  } catch (const Error&) {  // there is no thread
    enter();
  }
}

/// Has who waits go on with the run's failure; the run itself ends when it can.
void let_waiters_go(StartedRun& run) {
  if (run.record->outcome() == Outcome::stopped)
    return act_elsewhere(run, run.end(RunStatus::stopped));
  try {
    run.record->rethrow();
  } catch (...) {
    const auto status = run.record->failed() ? RunStatus::failed : RunStatus::cancelled;
    act_elsewhere(run, run.end(status, std::current_exception()));
  }
}

/// Has who waits go on, as the deadline has passed: the program may sit in a function that does not
/// return. The run itself ends when it can.
void let_go_late(StartedRun& run) {
  run.record->fail_late();
  if (run.record->outcome() != Outcome::done) return let_waiters_go(run);
  const TimeoutError late(ErrorCode::timeout, RunState::late, {}, 0, nullptr);  // its results are
  act_elsewhere(run, run.end(RunStatus::failed, std::make_exception_ptr(late)));
}

/// Waits until it has ended, or until the limit. Another process may have failed, and this one's
/// program be in a function that does not return: then who waits goes now.
void sleep_until(StartedRun& run, std::unique_lock<Mutex>& lock,
                 RunState::Clock::time_point limit) {
  const auto ended = [&] { return run.done.load(); };
  const bool alone = clusters::size_now() < 2;
  const auto* const failing = alone ? nullptr : &run.record->failing;
  if (host::wait_at(run.ended, lock, failing, ended, limit) != host::Woken::stopped) return;
  const auto soon = RunState::Clock::now() + std::chrono::milliseconds(5);  // it ends mostly
  if (run.ended.wait_until(lock, std::min(limit, soon), ended) || limit <= soon) return;
  lock.unlock();
  let_waiters_go(run);
  lock.lock();
}

}  // namespace

std::shared_ptr<StartedRun> start_run(std::shared_ptr<const run::CompiledProgram> program,
                                      Tensors arguments, const RunOptions& options,
                                      std::span<const SitePtr> sites) {
  auto record = std::make_shared<run::RunRecord>(program->backend());
  record->set_of_processes(program->calls_processes());
  auto own = host::RunFunctions::of(options, sites);
  return start_run(
      record,
      [record, own = std::move(own), program = std::move(program),
       arguments = std::move(arguments)]() mutable {
        record->own_functions = std::move(own);
        std::vector<const Tensor*> pointers;
        for (const Tensor& t : arguments) pointers.push_back(&t);
        Tensors results(program->result_count());
        try {
          program->run(pointers, results, record);
        } catch (...) {
          if (record->own_functions) record->own_functions.reset();  // it has not begun
          throw;
        }
        return results;
      },
      options, sites);
}

std::shared_ptr<StartedRun> start_run(std::shared_ptr<RunState> state,
                                      std::function<Tensors()> body, const RunOptions& options,
                                      std::span<const SitePtr> sites) {
  auto run = std::make_shared<StartedRun>();
  run->record = std::move(state);
  run->deadline = run->record->deadline = host::deadline_of(options);
  for (const SitePtr& site : sites)
    if (site->tap.live) run->live_hooks.push_back(site->tap.live->number);
  run->record->context = options.context;
  run->record->sink = options.sink;
  run->record->observer = host::current_observer();
  const host::Nesting* nested = host::nesting();
  const int depth = nested ? nested->depth : 0;
  const bool delivery = host::in_delivery();
  const int device = run::default_device();
  const std::uint64_t number = run::Runtime::get().add_started();
  run->record->started = number;
  std::shared_ptr<void> open = run::Runtime::keep_open(number);
  host::run_on_host_thread([run, body = std::move(body), depth, delivery, device, open]() mutable {
    std::optional<DeviceScope> on;
    if (device > 0)
      on.emplace(device);  // the first scope has every run of the process look for one
    // A run that a host function starts counts as nested in it.
    host::Beginning here{};
    here.depth = depth;
    here.delivery = delivery;
    host::NestingScope scope(depth ? &here : nullptr);
    enter_at_end(work(*run, body), {run->record->started});
    body = nullptr;  // its functions go with the run, not with who waits
    run.reset();     // reports a failure that nobody saw
    open.reset();    // then a barrier may go on
  });
  return run;
}

RunStatus wait_run(StartedRun& run, std::optional<std::chrono::nanoseconds> limit) {
  constexpr auto never = RunState::Clock::time_point::max();
  const auto until = limit ? host::after(*limit) : never;
  std::optional<host::Wait> waits;
  std::optional<host::timeline::Span> span;
  if (!run.done) {
    run.record->refuse_own_wait();
    if (until == never) waits.emplace(run.record->name());
    refuse_forked();
    span.emplace(host::timeline::Kind::wait, "a run");
  }
  const auto ended = [&] { return run.done.load(); };
  const auto first = std::min(until, run.deadline);
  static thread_local host::Spin spin;
  spin.until(ended, first - RunState::Clock::now());
  std::unique_lock lock(run.guard);
  sleep_until(run, lock, first);
  if (!run.done && RunState::Clock::now() >= run.deadline) {
    lock.unlock();
    let_go_late(run);
    lock.lock();
  }
  if (!run.done) return RunStatus::running;
  run.seen = true;
  if (run.failure) {
    // What a function throws when its run was cancelled changes nothing any more.
    const bool cancelled = run.status == RunStatus::cancelled;
    if (run.record->outcome() == (cancelled ? Outcome::cancelled : Outcome::failed))
      run.record->rethrow();  // one for each waiter
    std::rethrow_exception(run.failure);
  }
  return run.status;
}

void at_end_of(StartedRun& run, std::function<void()> act) {
  std::unique_lock lock(run.guard);
  if (!run.done) return run.at_end.swap(act);  // one before it goes after the lock
  lock.unlock();
  act_elsewhere(run, act);
}

void keep_with(StartedRun& run, std::shared_ptr<const void> thing) {
  run.record->kept = std::move(thing);
}

std::vector<LiveHook> live_hooks_of(const StartedRun& run) {
  std::vector<LiveHook> out;
  for (LiveHook& hook : live_hooks())
    if (std::ranges::find(run.live_hooks, hook.number()) != run.live_hooks.end())
      out.push_back(std::move(hook));
  return out;
}

RunStatus status_of(const StartedRun& run) {
  std::scoped_lock lock(const_cast<Mutex&>(run.guard));
  return run.status;
}

void cancel_run(StartedRun& run) {
  if (run.done.load()) return;
  refuse_forked();
  run.record->request(Outcome::cancelled);
  let_waiters_go(run);
}

const Tensors& results_of(StartedRun& run) {
  const RunStatus status = wait_run(run, {});
  if (status != RunStatus::done) run.record->rethrow();  // it was ended early
  return run.results;
}

}  // namespace postern::detail
