// RunState: what one execution of a program carries to the functions that it calls back. XLA hands
// its address to the handler.
#pragma once
#include <postern/error.h>
#include <postern/host.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/lists.h"
#include "core/mutex.h"
#include "core/scoped.h"
#include "host/float_state.h"
#include "host/host_site.h"
#include "host/stop.h"
#include "host/turns.h"
#include "host/waits.h"

namespace postern::internal::host {

enum class Outcome : std::uint8_t { running, done, failed, cancelled, stopped };

class ResidualStores;
class PendingCalls;
class RunFunctions;
class RunState;
class RunObserver;

/// What the undelivered invocations of one run need after it has ended. Its StopState is what their
/// StopToken and end_run see.
struct TapSource : detail::StopState, std::enable_shared_from_this<TapSource> {
  std::shared_ptr<const void> owner;  // of the sites
  std::weak_ptr<RunState> run;
  std::uint64_t number = 0;
  Context context;
  std::ostream* sink = nullptr;
  FloatState floats;
};

class RunState : public detail::StopState {
 public:
  using Clock = std::chrono::steady_clock;

  // Set before the run starts.
  const HostSite* sites = nullptr;
  std::size_t site_count = 0;
  std::uint64_t number = 0;
  int mark = 0;            // what XLA calls it; positive: no other run is ever called so
  bool fast_path = false;  // the handler may take its short way: no deadline, no timeline
  // Several devices: a failure must not return an error to XLA, see docs/notes/devices.md.
  bool leaves_zeros = false;
  int device = -1;  // of a run on one device; -1: the handler asks XLA
  // Of a run on several devices: what XLA calls the first one, and what users call them from there
  // on; empty: the same.
  int first_ordinal = 0;
  std::vector<int> ordinals;
  Context context;
  std::ostream* sink = nullptr;
  FloatState floats = FloatState::now();  // of the thread that asked for it
  Clock::time_point deadline = Clock::time_point::max();
  Turns turns;                            // of a run on several devices
  std::shared_ptr<RunObserver> observer;  // stands at its invocations; null: nobody
  std::uint64_t observed_run = 0;         // its number there
  /// What it was given for itself; null: nothing. Goes with close().
  std::shared_ptr<const RunFunctions> own_functions;

  std::uint64_t started = 0;   // of Runtime::add_started, if it has one; set before others see it
  std::uint64_t lane_run = 0;  // its number on its lane, if it has one
  std::shared_ptr<RunState> part_of;  // who drives that run waits for this one's end
  /// Returns its name, for Wait.
  RunName name() const {
    if (part_of) return part_of->name();
    return started ? RunName{started} : RunName{0, lane_run};
  }

  std::shared_ptr<const void> owner;     // of `sites`
  std::shared_ptr<const void> kept;      // what its prints and end look at, of who started it
  bool outside = false;                  // of one invocation, outside of any run that outlives it:
  std::shared_ptr<void> under_way;       // let go when what that started has returned
  std::atomic<bool> never_waits{false};  // for room in a tap queue: a listener waits for this run
  std::weak_ptr<RunState> around;        // whose function has started it
  std::weak_ptr<RunState> outermost;     // which the taps of a part end
  /// Notes what the calling thread is inside of: a run of a listener never waits, nor does one that
  /// such a run waits for.
  void begins_here();
  /// Returns whether it must not wait for room in a tap queue, where a listener may wait for it.
  bool must_not_wait() const {
    if (never_waits.load(std::memory_order_relaxed)) return true;
    const std::shared_ptr<const RunState> outer = around.lock();
    return outer && outer->must_not_wait();
  }
  /// Sets that, and has its taps go on.
  void never_wait();

  /// Sets whether it has collectives with other processes: then it gets its number among those that
  /// have, and is over for the others when it fails. Said where the run is called or started, in
  /// the order of calls, and before any of its functions is entered; once more does nothing.
  void set_of_processes(bool communicates);
  /// Returns that number, of the whole run for a part of one; 0: none.
  std::uint64_t job_run() const { return part_of ? part_of->job_run() : job_run_.load(); }
  /// Ends it early where it has not failed, and others may wait for it: it goes no further, because
  /// of this.
  void ends_early(const std::string& why) const noexcept;

  /// Notes that the run has failed on another process, and so here, if this is still its number.
  void fail_elsewhere(std::uint64_t job_run, const std::string& why);
  /// Returns the site that a device is in, or was in last; "" when it was in none.
  std::string site_now() const;

  /// Tells whoever watches: a device enters a function.
  void enters(const HostSite& site, int device_now) {
    Progress& p = progress_of(device_now);
    p.device.store(device_now, std::memory_order_relaxed);
    p.site.store(&site, std::memory_order_release);
  }

  /// Notes, in a run on several devices: one invocation more of this device will be seen to its
  /// end, whatever happens on the others. Counted for sites that all devices come to.
  void passes(const HostSite& site, int device_now) {
    if (!site.positions.empty())
      progress_of(device_now).passed.fetch_add(1, std::memory_order_acq_rel);
  }
  /// Prepares a run on several devices: what they write down is apart.
  void expect(std::span<const int> devices);

  /// Returns whether it asks for something at each invocation, as an observer and a deadline do.
  bool is_special() const { return observer || has_deadline(); }
  bool has_deadline() const { return deadline != Clock::time_point::max(); }
  /// Returns whether its deadline, if any, has passed.
  bool is_late() const { return has_deadline() && Clock::now() >= deadline; }

  int device_of(int ordinal) const {
    const auto i = size_of(ordinal - first_ordinal);
    return i < ordinals.size() ? ordinals[i] : ordinal;
  }

  /// Keeps the first failure, counts the others, and stops the run. In a run on several devices
  /// those count that fail at the earliest invocation, lowest device first: the others are given
  /// the time to come to theirs, so that it does not matter which one is ahead. Of a batch whose
  /// elements are called side by side (`element`) the lowest counts, and no other.
  void fail(ErrorCode code, const HostSite& site, int device, std::exception_ptr cause,
            const std::string& what, std::int64_t element = -1);
  /// Returns whether an element of such a batch has failed.
  bool batch_failed(const HostSite& site, int device) const;
  static constexpr const char* late = "the run's deadline passed";
  /// Fails it because the deadline passed, blamed on the call in progress if there is one.
  void fail_late();
  detail::StopState failing;  // is stopped when it fails
  /// Asks the run to stop; the first reason stays.
  void request(Outcome reason);
  /// Asks it to stop, by a function that the run started, which wakes who waits for it itself.
  void ask_to_stop(Outcome reason);
  /// Closes it, since the run is over: done if nothing stopped it. Its sites may go. True when no
  /// undelivered invocation looks at it any more.
  bool close();
  std::atomic<bool> broken{false};  // it ends badly, though not by its own functions
  /// Opens it: nothing can keep it from beginning any more, and close() follows.
  void open() { open_.store(true, std::memory_order_relaxed); }
  /// Waits until the run, if it has begun, is over: then it is in no function any more but those
  /// that are late.
  void wait_for_end();
  Outcome outcome() const { return outcome_.load(std::memory_order_acquire); }
  bool failed() const { return outcome() == Outcome::failed; }
  /// Returns what its first failure said, without where; "" when there is none.
  std::string first_failure() const { return first(&Failure::what); }

  /// Throws the failure (CallbackError, TimeoutError), or that the run was cancelled or stopped;
  /// the error counts as seen.
  [[noreturn]] void rethrow();
  /// Takes the failure if nobody has seen it yet.
  std::exception_ptr take_unobserved();

  /// Makes the state of a run that went well ready for another.
  void reset();

  /// Returns the functions that the run has started; made when they are first asked for.
  PendingCalls& calls();
  /// Shares the calls of another run, which this one is a part of.
  void share_calls(RunState& whole);
  /// Returns whether some have not returned, and the end of them: see PendingCalls::finish.
  bool has_calls_under_way() const;
  /// Tells those that work to stop; others do not begin.
  void stop_calls();
  void finish_calls() noexcept;

  /// Returns what the undelivered invocations of this run share; made when it is first asked for.
  TapSource& tap_source();
  /// Returns itself; null where nobody shares it.
  virtual std::shared_ptr<RunState> self() { return nullptr; }

  /// Makes a run that has not begun a part of this one for a scope: it has what this one was given,
  /// is to stop when this one is, and ends this one where a function of its own ends it early.
  class Part {
   public:
    Part(RunState& whole, std::shared_ptr<RunState> part);
    ~Part();
    Part(const Part&) = delete;

   private:
    RunState& whole_;
    const std::shared_ptr<RunState> part_;
  };
  /// Gives that run what this one was given.
  void hand_on(RunState& part) const;

  /// Returns what its loops have put aside for their derivatives; of the whole run, for a part of
  /// one. Gone with close().
  ResidualStores& residual_stores();

  /// Refuses that the calling thread waits for its own run. Throws CallbackError(reentry) when it
  /// is inside a host function of this very run.
  void refuse_own_wait();

  RunState() = default;
  virtual ~RunState();

 protected:
  /// Holds the run: as long as it is held the run does not fail. Who waits for a run that is late
  /// may fail it while it begins.
  std::unique_lock<Mutex> hold() const { return std::unique_lock(guard_); }

 private:
  /// Tells its parts that whether to stop, or not to wait, has changed.
  void tell_parts();
  /// What a device entered last. On a cache line of its own: devices write here all the time.
  struct alignas(64) Progress {
    std::atomic<const HostSite*> site{nullptr};
    std::atomic<int> device{0};
    std::atomic<std::uint64_t> passed{0};
  };
  Progress& progress_of(int device_now) {
    return progress_[size_of(device_now) & (progress_.size() - 1)];
  }
  const Progress* in_progress() const;
  struct Failure {
    ErrorCode code = ErrorCode::ok;
    Site site = {};
    int device = 0;
    std::exception_ptr cause = {};
    std::string text, what;        // `what` without where it was
    std::uint64_t invocation = 0;  // of the device, where there are several
    std::int64_t element = -1;
    const SiteSpec* spec = nullptr;  // may be gone

    bool in_batch(const SiteSpec* its, int its_device) const {
      return element >= 0 && spec == its && device == its_device;
    }
  };
  void fail_by(Failure failure);
  void keep(Failure& failure, std::vector<Failure>& gone);
  std::string first(std::string Failure::*part) const;
  void tell_processes() const noexcept;
  void fail_at_site(ErrorCode code, const std::string& what);
  void let_others_come(int device_now, std::uint64_t invocation) noexcept;
  std::exception_ptr error() const;
  std::array<Progress, 8> few_;
  std::unique_ptr<Progress[]> many_;
  std::span<Progress> progress_{few_};  // as many as a power of two
  alignas(64) std::shared_ptr<TapSource> tap_source_;
  std::atomic<bool> has_tap_source_{false};
  std::shared_ptr<PendingCalls> calls_;
  std::atomic<bool> has_calls_{false};
  std::atomic<std::uint64_t> job_run_{0};
  std::shared_ptr<ResidualStores> residual_stores_;
  std::atomic<ResidualStores*> has_residual_stores_{nullptr};

  std::atomic<Outcome> outcome_{Outcome::running};
  mutable Mutex guard_;
  Mutex parts_guard_;
  std::vector<std::shared_ptr<RunState>> parts_;  // under way
  Site stopped_at_;
  std::vector<Failure> failures_;  // the first ones
  std::size_t count_ = 0;
  bool seen_ = false, over_ = false;
  std::atomic<bool> open_{false};
  Condition closed_;
};

/// Thrown by a function of ours that is cut short because its run is to stop: it is no failure.
struct RunIsOver {};

/// Where the current thread stands: inside which invocations, of which runs. Linked through the
/// stack, also across the executor's threads.
struct Nesting {
  const Nesting* outer = nullptr;
  RunState* run = nullptr;
  const HostSite* site = nullptr;
  int device = 0;
  int depth = 0;
  bool delivery = false;  // of an asynchronous tap
};
/// Where a thread's chain begins that works for others: it has no run, but goes on inside those.
struct Beginning : Nesting {
  std::vector<RunName> inside = {};
  std::weak_ptr<RunState> around = {};  // whose invocation it works for
};
extern constinit thread_local const Nesting* current_nesting;
inline const Nesting* nesting() { return current_nesting; }
/// Returns the run whose function the thread is in, or works for; none outside.
std::weak_ptr<RunState> run_around();
/// Makes `nesting` the thread's for a scope: for threads that work on behalf of an invocation.
class NestingScope : Scoped<const Nesting*> {
 public:
  explicit NestingScope(const Nesting* nesting) : Scoped(current_nesting, nesting) {}
};

/// Returns the failure of one invocation as barrier() and the run's end throw it.
std::exception_ptr callback_error(ErrorCode code, const HostSite& site, int device,
                                  const std::exception_ptr& cause);

/// Returns "call 'fetch' at main.cc:12": how errors name a site.
std::string describe(const SiteSpec& site);

}  // namespace postern::internal::host
