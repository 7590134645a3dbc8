// The list that barrier() and the end of the process empty.
#include "host/unobserved.h"

#include <utility>
#include <vector>

#include "core/fork.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/run_state.h"

namespace postern::internal::host {

namespace {

constexpr std::size_t kept_failures = 16;

struct Unobserved {
  Mutex guard;
  std::vector<std::exception_ptr> failures;  // the first ones
  std::size_t count = 0;
};
Unobserved& kept() { return never_destroyed<Unobserved>(); }

/// Without the lock their texts may be asked for, and they may go: they are the user's.
std::pair<std::vector<std::exception_ptr>, std::size_t> take_unobserved() {
  std::scoped_lock lock(kept().guard);
  return {std::exchange(kept().failures, {}), std::exchange(kept().count, 0)};
}

}  // namespace

void keep_unobserved(std::exception_ptr failure) {
  if (forked()) return;
  std::scoped_lock lock(kept().guard);
  ++kept().count;
  if (kept().failures.size() < kept_failures) kept().failures.push_back(std::move(failure));
}

void throw_unobserved() {
  const auto [failures, count] = take_unobserved();
  if (failures.empty()) return;
  if (count == 1) std::rethrow_exception(failures.front());
  std::vector<std::string> others;
  for (std::size_t i = 1; i < failures.size(); ++i) others.push_back(describe(failures[i]));
  const auto with_count = [n = count - 1](std::string_view first) {
    return fmt::format("{} (and {} more failures)", first, n);
  };
  ErrorCode code = ErrorCode::threw;
  try {
    std::rethrow_exception(failures.front());
  } catch (const CallbackError& e) {
    const std::string text = with_count(e.what());
    if (e.code() == ErrorCode::timeout)
      throw TimeoutError(e.code(), text, e.site(), e.device(), e.cause(), others, count);
    throw CallbackError(e.code(), text, e.site(), e.device(), e.cause(), others, count);
  } catch (const Error& e) {  // such as an FFI handler's: what came with it must not be lost
    code = e.code();
  } catch (...) {
  }
  throw CallbackError(code, with_count(describe(failures.front())), Site{}, 0, failures.front(),
                      others, count);
}

void print_unobserved() {
  const auto [failures, count] = take_unobserved();
  for (const std::exception_ptr& e : failures)
    log_line(fmt::format("a failure that nobody waited for: {}", describe(e)));
  if (count > failures.size()) log_line(fmt::format("and {} more", count - failures.size()));
}

}  // namespace postern::internal::host
