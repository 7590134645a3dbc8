// Barriers and the end of the process.
#include "run/failures.h"

#include <postern/devices.h>
#include <postern/error.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/log.h"
#include "host/run_state.h"
#include "run/runtime.h"

namespace postern::run {

namespace {

constexpr std::size_t kept_failures = 16;

/// Never destroyed: runs may end after main.
struct Unseen {
  std::mutex guard;
  std::vector<std::exception_ptr> failures;  // the first ones
  std::size_t count = 0;
};
Unseen& unseen() {
  static Unseen* const u = new Unseen;
  return *u;
}

std::chrono::milliseconds exit_limit;

std::size_t wait_for_runs(std::optional<std::chrono::nanoseconds> limit) {
  if (const host::Nesting* n = host::nesting()) {
    const Site site = n->site ? Site{n->site->spec->name, n->site->spec->place} : Site{};
    throw CallbackError(ErrorCode::reentry,
                        fmt::format("barrier inside {} would wait for the run that is calling it",
                                    n->site ? host::describe(*n->site->spec) : "a host function"),
                        site, n->device, nullptr);
  }
  return Runtime::exists() ? Runtime::get().wait_for_runs(limit) : 0;
}

void throw_unseen() {
  std::vector<std::exception_ptr> failures;
  std::size_t count = 0;
  {
    std::scoped_lock lock(unseen().guard);
    failures.swap(unseen().failures);
    count = std::exchange(unseen().count, 0);
  }
  if (failures.empty()) return;
  if (count == 1) std::rethrow_exception(failures.front());
  std::vector<std::string> others;
  for (std::size_t i = 1; i < failures.size(); ++i) others.push_back(host::describe(failures[i]));
  try {
    std::rethrow_exception(failures.front());
  } catch (const CallbackError& e) {
    throw CallbackError(e.code(), fmt::format("{} (and {} more failures)", e.what(), count - 1), e.site(), e.device(), e.cause(), others,
                        count);
  }
}

void at_exit() {
  std::size_t left = 0;
  try {
    left = wait_for_runs(exit_limit);
  } catch (const Error&) {
    return;  // exit() inside a host function: the run that called it cannot end
  }
  if (left > 0) log(LogLevel::warning, "the process ends with {} runs still in flight after {} ms", left, exit_limit.count());
  std::scoped_lock lock(unseen().guard);
  for (const std::exception_ptr& e : unseen().failures) log_line(fmt::format("a failure that nobody waited for: {}", host::describe(e)));
}

}  // namespace

void keep_unseen(std::exception_ptr failure) {
  std::scoped_lock lock(unseen().guard);
  ++unseen().count;
  if (unseen().failures.size() < kept_failures) unseen().failures.push_back(std::move(failure));
}

void drain_at_exit(std::chrono::milliseconds limit) {
  exit_limit = limit;
  std::atexit(at_exit);
}

}  // namespace postern::run

namespace postern {

void barrier() {
  run::wait_for_runs({});
  run::throw_unseen();
}

std::size_t barrier(std::chrono::nanoseconds limit) {
  const std::size_t left = run::wait_for_runs(limit);
  if (left == 0) run::throw_unseen();
  return left;
}

}  // namespace postern
