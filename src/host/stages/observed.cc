// The run's observer, if it has one, in the place of what is behind.
#include <atomic>
#include <cstring>

#include "host/enter.h"
#include "host/residual_store.h"
#include "host/run_observer.h"

namespace postern::internal::host {

namespace {

thread_local std::shared_ptr<RunObserver> current;
std::atomic<int> threads_observed{0};  // so that no run looks for an observer while there is none

}  // namespace

std::shared_ptr<RunObserver> current_observer() {
  if (threads_observed.load(std::memory_order_relaxed) == 0 || nesting()) return nullptr;
  return current;
}

void observe_runs(std::shared_ptr<RunObserver> observer) {
  if (observer && current)
    throw Error(ErrorCode::failed_precondition,
                "record, replay: this thread is recording or replaying already");
  threads_observed += (observer != nullptr) - (current != nullptr);
  current = std::move(observer);
}

ObservedRun observed_run() {
  const Nesting* const here = nesting();
  if (!here || !here->run) return {};
  return {here->run->observer, here->run->observed_run};
}

ObservedInvocation::ObservedInvocation(const Stage& stage, Invocation& i)
    : run(i.run.observed_run),
      site(&i.site - i.run.sites),
      kind(word_of(i.site.spec->kind)),
      is_tap(i.site.spec->is_tap()),
      name(i.site.spec->name),
      device(i.device),
      element(i.element),
      on_device(i.on_device),
      operands(i.site.spec->operands),
      results(i.site.spec->results),
      stage_(stage),
      invocation_(i) {}

std::string_view ObservedInvocation::bytes(std::size_t leaf) const {
  return {static_cast<const char*>(invocation_.data[leaf]), invocation_.site.leaf_bytes[leaf]};
}

void ObservedInvocation::give(std::size_t number, std::string_view bytes) {
  if (bytes.empty()) return;
  std::memcpy(invocation_.data[operands.size() + number], bytes.data(), bytes.size());
}

bool ObservedInvocation::enter() { return stage_.next->enter(invocation_); }

bool ObservedInvocation::fail(ErrorCode code, const std::string& what) {
  invocation_.run.fail(code, invocation_.site, device, nullptr, what);
  return false;
}

bool ObservedInvocation::end() {
  invocation_.run.request(Outcome::stopped);
  return false;
}

std::optional<std::string> ObservedInvocation::failure() const {
  if (invocation_.run.outcome() == Outcome::cancelled) return "the run was cancelled";
  if (!invocation_.run.failed()) return {};
  return invocation_.run.first_failure();
}

const detail::StopState& ObservedInvocation::stop() const { return invocation_.run; }

std::chrono::steady_clock::time_point ObservedInvocation::deadline() const {
  return invocation_.run.deadline;
}

static bool enter_observed(const Stage& stage, Invocation& i) noexcept {
  RunObserver* const observer = i.run.observer.get();
  if (!observer || (i.site.function && is_of_residuals(*i.site.function)))
    return stage.next->enter(i);
  try {
    ObservedInvocation seen(stage, i);
    return observer->enter(seen);
  } catch (...) {
    return keep_thrown(i.run, i.site, i.device);
  }
}

const StageRow observed_stage = {.enter = enter_observed, .of_runs = true};

}  // namespace postern::internal::host
