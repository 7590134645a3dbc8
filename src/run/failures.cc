// Barriers and the end of the process.
#include "run/failures.h"

#include <postern/devices.h>
#include <postern/error.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

#include "core/fork.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/background.h"
#include "host/limit.h"
#include "host/queue.h"
#include "host/run_end.h"
#include "host/run_state.h"
#include "host/timeline.h"
#include "host/unobserved.h"
#include "run/runtime.h"

namespace postern::internal::run {

namespace {

// As Config has it, until the runtime is made: the main thread may leave before.
constinit std::atomic<std::chrono::milliseconds> exit_limit{std::chrono::milliseconds(5000)};
std::atomic<bool> drained{false}, given_up{false}, runs_left{false};
std::terminate_handler earlier_handler = nullptr;

struct Pending {
  std::size_t runs = 0, firings = 0, writes = 0;
  std::size_t count() const { return runs + firings + writes; }
};

/// Waits for runs first: what they tap is in the queues when they have ended, and what listeners
/// write has begun when the queues are empty.
Pending wait_for_all_but(const std::vector<host::RunName>& but,
                         std::optional<std::chrono::nanoseconds> limit) {
  const host::timeline::Span span(host::timeline::Kind::wait, "barrier");
  std::optional<host::RunState::Clock::time_point> until;
  if (limit) until = host::after(*limit);
  if (until == host::RunState::Clock::time_point::max()) until.reset();
  std::size_t runs = 0;
  if (Runtime::exists()) runs = Runtime::get().wait_for_runs(until, but);  // else only guests tap
  std::size_t firings = 0;
  if (!host::in_delivery()) firings = host::wait_for_taps(until);
  return {runs, firings, host::wait_for_background(until)};
}

Pending wait_for_all(std::optional<std::chrono::nanoseconds> limit) {
  if (const host::Nesting* n = host::nesting()) {
    Site site;
    std::string who = "a host function";
    if (n->site) {
      site = {n->site->spec->name, n->site->spec->place};
      who = host::describe(*n->site->spec);
    }
    const char* what = "the run that is calling it";
    if (host::in_delivery()) what = "the queue that is being delivered to it";
    throw CallbackError(ErrorCode::reentry,
                        fmt::format("barrier inside {} would wait for {}", who, what), site,
                        n->device, nullptr);
  }
  return wait_for_all_but({}, limit);
}

/// Waits for what is under way, and warns of what is left then: after that it waits no more.
void settle() {
  if (given_up || forked()) return;
  try {
    // Inside a host function exit() does not wait for what called it, which cannot end.
    const std::chrono::milliseconds limit = exit_limit;
    const Pending left = wait_for_all_but(host::surrounding_runs(), limit);
    given_up = left.count() > 0;
    runs_left = left.runs > 0;
    if (left.runs > 0)
      log(LogLevel::warning, "the process ends with {} runs still in flight after {} ms", left.runs,
          limit.count());
    if (left.firings > 0)
      log(LogLevel::warning, "the process ends with {} firings of taps undelivered after {} ms",
          left.firings, limit.count());
    if (left.writes > 0)
      log(LogLevel::warning, "the process ends while {} listeners still write, after {} ms",
          left.writes, limit.count());
  } catch (const std::exception&) {
    // no memory: the process ends all the same
  }
}

/// Threads that are in XLA's compiler.
struct Compiler {
  Mutex guard;
  Condition changed;
  int inside = 0;
  std::optional<std::thread::id> kept_for;  // others stay out
  bool closed_for_good = false;             // as the process ends

  bool keeps_out() const { return kept_for && *kept_for != std::this_thread::get_id(); }
};

/// Lets no other thread into the compiler from now on, and waits until nobody is in there. False
/// where one does not leave in time.
bool close_compiler(bool for_good) {
  auto& compiler = never_destroyed<Compiler>();
  std::unique_lock lock(compiler.guard);
  compiler.kept_for = std::this_thread::get_id();
  compiler.closed_for_good = for_good;
  compiler.changed.notify_all();
  return compiler.changed.wait_until(lock, host::after(exit_limit.load()),
                                     [&] { return compiler.inside == 0; });
}
void open_compiler() {
  auto& compiler = never_destroyed<Compiler>();
  const std::scoped_lock lock(compiler.guard);
  compiler.kept_for.reset();
  compiler.changed.notify_all();
}

void leave(int code, void*) {
  // A function that does not return may hold its lock.
  if (::ftrylockfile(stdout) == 0) ::fflush_unlocked(stdout);
  std::_Exit(code);
}

void drain() {
  if (forked() || drained.exchange(true)) return;  // what is under way is the other process's
  open_compiler();                                 // runs that are under way may need it
  settle();
  const bool idle = close_compiler(/*for_good=*/true);
  settle();  // the runs of what was compiled
  runs_left = runs_left || !idle;
  host::print_unobserved();
  host::timeline::write_for_environment();
  // What is under way would go on among statics that are gone, XLA's and the user's. A handler that
  // is registered by another comes next, and this kind is told the code.
  if (runs_left) static_cast<void>(::on_exit(leave, nullptr));
}

// A thread that calls exit() loses its own variables before the first static of the process goes,
// also those that XLA makes late in a run that is under way: where the main thread leaves, nothing
// else need be in time.
struct EndOfMain {
  ~EndOfMain() {
    settle();
    if (forked()) return;
    // What is used there for the first time makes statics that go before `drain`. So whoever is in
    // there leaves, what they compiled may run, and then nobody enters as long as the process ends.
    close_compiler(/*for_good=*/false);
    open_compiler();
    settle();
    close_compiler(/*for_good=*/false);
  }
};
[[maybe_unused]] const bool watches_main = [] {
  const bool on_main = ::getpid() == ::gettid();
  if (on_main) {
    thread_local EndOfMain end;
    static_cast<void>(&end);
  }
  return on_main;
}();

}  // namespace

void drain_at_exit(std::chrono::milliseconds limit) {
  using Nanoseconds = std::chrono::nanoseconds;
  exit_limit = std::min(limit, std::chrono::floor<std::chrono::milliseconds>(Nanoseconds::max()));
  std::atexit(drain);
  earlier_handler = std::set_terminate([] {
    drain();
    if (earlier_handler) earlier_handler();
    std::abort();
  });
}

Compilation::Compilation() {
  auto& compiler = never_destroyed<Compiler>();
  std::unique_lock lock(compiler.guard);
  const auto patience = std::min(exit_limit.load(), std::chrono::milliseconds(10'000));
  const auto may_go_on = [&] { return compiler.closed_for_good || !compiler.keeps_out(); };
  if (!compiler.changed.wait_until(lock, host::after(patience), may_go_on)) {
    compiler.kept_for.reset();  // the main thread has ended and the process has not
    compiler.changed.notify_all();
  }
  if (compiler.keeps_out()) {  // for good: the process should be gone before that
    compiler.changed.wait_until(lock, host::after(exit_limit.load()), [] { return false; });
    throw Error(ErrorCode::failed_precondition,
                "the process ends, so nothing can be compiled any more");
  }
  ++compiler.inside;
}

Compilation::~Compilation() {
  drain_before_what_is_new();
  auto& compiler = never_destroyed<Compiler>();
  const std::scoped_lock lock(compiler.guard);
  if (--compiler.inside == 0) compiler.changed.notify_all();
}

void drain_before_what_is_new() { std::atexit(drain); }

}  // namespace postern::internal::run

namespace postern {
using namespace internal;

void barrier() {
  run::wait_for_all({});
  host::throw_unobserved();
}

std::size_t barrier(std::chrono::nanoseconds limit) {
  const run::Pending left = run::wait_for_all(limit);
  if (left.count() == 0) host::throw_unobserved();
  return left.count();
}

}  // namespace postern
