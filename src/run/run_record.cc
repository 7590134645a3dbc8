// The life of a run.
//
// begin() readies a record: its number, its sites, the functions that sites named so far are served
// by, the observer. XLA has the record while it executes, so a handler finds the run that it is
// called for. finish() ends it: at once if every device is ready, else the record keeps itself
// alive until XLA's last completion, and until the functions that it started have returned. The end
// leaves the lane, if leave_early() has not, and lets go of the program, which who ran it may still
// need (Owner). Results that are still held keep only the record, which knows how the run ended.
// One that nobody has goes to its lane, so that the next run there allocates none.
#include "run/run_record.h"

#include <algorithm>

#include "core/log.h"
#include "host/executor.h"
#include "host/run_observer.h"
#include "host/sanitizer.h"
#include "host/spin.h"
#include "host/unobserved.h"
#include "run/compiled.h"

namespace postern::internal::run {

int mark_of(std::uint64_t number) {
  const auto scattered = static_cast<int>(number * 0x9E3779B1 & 0x7fffffff);
  if (number >> 31) return -1 - scattered;
  return scattered;
}

RunRecord::RunRecord(const Backend& backend)
    : platform_(&backend.platform()), execute_context_(*backend.plugin) {
  if (backend.used.calls_back)
    execute_context_.add(backend.run_state_type, static_cast<host::RunState*>(this));
}

RunRecord::~RunRecord() {
  try {
    if (std::exception_ptr one = take_unobserved()) host::keep_unobserved(std::move(one));
  } catch (...) {
    log_line("a run failed, and there was no memory to say how");
  }
}

RunRequest::RunRequest(const RunOptions& o, std::span<const SitePtr> sites)
    : options_(&o), deadline_(host::deadline_of(o)), own_(host::RunFunctions::of(o, sites)) {}

static constinit thread_local const WholeRun* whole_of_next = nullptr;

WholeRunScope::WholeRunScope(const WholeRun& whole) : Scoped(whole_of_next, &whole) {}
WholeRun WholeRunScope::take() {
  const WholeRun* const whole = std::exchange(whole_of_next, nullptr);
  return whole ? *whole : WholeRun();
}

void RunRecord::begin(std::shared_ptr<const CompiledProgram> program, Lane& lane) {
  lane_ = &lane;
  program->ready_on(lane);
  lane_run = lane.run.load(std::memory_order_relaxed);
  {
    const auto lock = hold();
    device = lane.device;
    leaves_zeros = false;
  }
  prepare(std::move(program));
}

void RunRecord::begin(std::shared_ptr<const CompiledProgram> program, Lanes lanes) {
  group_ = std::move(lanes);
  lane_run = group_.front()->run.load(std::memory_order_relaxed);
  std::vector<int> order;
  for (const Lane* lane : group_) {
    program->ready_on(*lane);
    order.push_back(lane->device);
  }
  {
    const auto lock = hold();
    device = -1;
    leaves_zeros = true;
    expect(order);
    turns.start(std::move(order));
  }
  number_devices_of_group();
  prepare(std::move(program));
}

/// Sets what users call the devices that XLA calls by ordinals.
void RunRecord::number_devices_of_group() {
  const Lane& first = *group_.front();
  const Backend& backend = *first.backend;
  first_ordinal = 0;
  ordinals.clear();
  if (first.client != 0 && platform_->makes_devices) {  // made for a spare client, numbered anew
    first_ordinal = first.ordinal;
    for (const Lane* lane : group_) ordinals.push_back(lane->device);
  } else if (backend.first_device > 0) {  // counted on from those of earlier platforms
    for (int i = 0; i < backend.device_count; ++i) ordinals.push_back(backend.first_device + i);
  }
}

void RunRecord::prepare(std::shared_ptr<const CompiledProgram> program) {
  mark = mark_of(lane_run);
  number = lane_run;
  if (part_of) number = part_of->number;
  module_ = &program->module();
  sites = program->sites_.data();
  site_count = program->sites_.size();
  set_of_processes(program->of_processes_);
  queues_work_ = program->queues_work_;
  if (!observer) observer = host::current_observer();
  if (observer) observed_run = observer->begin_run(module_->text);
  const bool enters_functions = !observer || observer->enters_functions();
  if ((program->named_ || own_functions) && enters_functions) {
    struct Resolved {  // keeps the program, and sites of this run alone
      std::shared_ptr<const CompiledProgram> program;
      std::vector<host::HostSite> sites;
    };
    auto resolved = std::make_shared<const Resolved>(
        Resolved{program, host::resolve_names(program->sites_, own_functions.get())});
    sites = resolved->sites.data();
    owner = std::move(resolved);
  } else {
    owner = std::move(program);
  }
  begins_here();
  const bool timed = host::timeline::on();
  if (timed) began_ = host::timeline::Clock::now();
  fast_path = !timed && !is_special();
  open();
}

void RunRecord::await_functions(std::span<const pjrt::Event> complete) const {
  const auto ready = [&] { return std::ranges::all_of(complete, &pjrt::Event::is_ready); };
  if (ready()) return;
  const auto enters = [](const host::HostSite& s) { return s.enters_at_once(); };
  if (!part_of && (platform_->calls_inline || std::none_of(sites, sites + site_count, enters)))
    return;
  static thread_local host::Spin spin;
  if (spin.until(ready)) return;
  for (const pjrt::Event& e : complete) {
    try {
      e.await();
    } catch (...) {
      // the caller learns it of the record, or of the results
    }
  }
}

RunRecord::Finish RunRecord::end_or_leave_to_xla(std::shared_ptr<RunRecord>& record,
                                                 std::span<const pjrt::Event> complete) {
  const bool ready = std::ranges::all_of(complete, &pjrt::Event::is_ready);
  if (ready && !record->has_calls_under_way()) {
    Left left = record->end();
    if (left.lane && left.seen_by_none && record.use_count() == 1 &&
        record->outcome() == host::Outcome::done) {
      record->reset();
      left.lane->idle = std::move(record);
    }
    left.leave();
    return {.ended = true, .owner = std::move(left.owner)};
  }
  // The owner is copied first: another thread will end the run, at any time.
  Finish later{.ended = false, .owner = record->owner};
  record->self_ = record;
  if (ready) {
    if (std::ranges::any_of(complete, [](const pjrt::Event& e) { return e.error().has_value(); }))
      record->stop_calls();
    wait_for_calls(record);
    return later;
  }
  record->waits_ = complete.size();
  record->leave_early();
  for (const pjrt::Event& e : complete) e.surely_on_ready(completed, record.get());
  return later;
}

RunRecord::Finish RunRecord::finish(std::shared_ptr<RunRecord>& record,
                                    std::span<const pjrt::Event> complete, bool awaited) {
  // Copied first: the record may leave its lane early, and XLA's thread may end it at any time.
  const Lane& lane = record->lane_ ? *record->lane_ : *record->group_.front();
  const std::uint64_t run = record->lane_run;
  Finish how = end_or_leave_to_xla(record, complete);
  if (how.ended || !awaited) return how;
  if (record->part_of) return how;  // who drives the whole run waits for its end
  Runtime::existing().wait_for(lane, run);
  how.ended = true;
  return how;
}

void RunRecord::leave_early() noexcept {
  Runtime& runtime = Runtime::existing();
  if (!lane_ || queues_work_ || has_calls_under_way() || !platform_->calls_inline) return;
  try {
    runtime.add_trailing(lane_run, lane_->started.load());
  } catch (...) {
    return;  // no memory: it leaves at its end
  }
  trails_ = true;
  runtime.leave(*std::exchange(lane_, nullptr));
}

void RunRecord::completed(void* user, const pjrt::Failure* failure) noexcept {
  auto* record = static_cast<RunRecord*>(user);
  if (failure) {
    record->broken = true;
    record->stop_calls();
  }
  if (record->waits_.fetch_sub(1) != 1) return;
  if (record->has_calls_under_way())
    wait_for_calls(record->self_);
  else
    over(record);
}

/// XLA's thread must not wait, and neither must who called the program.
void RunRecord::wait_for_calls(const std::shared_ptr<RunRecord>& record) noexcept {
  const auto wait = [r = record.get()] {
    r->finish_calls();
    over(r);
  };
  try {
    host::run_on_host_thread(wait);
  } catch (...) {
    wait();
  }
}

void RunRecord::over(RunRecord* record) noexcept {
  std::shared_ptr<RunRecord> last = std::move(record->self_);
  Left left = record->end();
  left.owner.reset();  // the functions may go now, even while results live on
  last.reset();        // a failure that nobody saw is reported before a barrier goes on
  left.leave();
}

RunRecord::Left RunRecord::end() noexcept {
  finish_calls();
  host::run_is_over(static_cast<host::RunState*>(this));
  const bool seen_by_none = close();
  const auto kind = part_of ? host::timeline::Kind::stage : host::timeline::Kind::execute;
  if (owner && began_ != host::timeline::Clock::time_point() && host::timeline::on())
    host::timeline::add(kind, host::timeline::module_name(module_->text), std::exchange(began_, {}),
                        host::timeline::Clock::now(), device, number);
  views.reset();
  return {.lane = std::exchange(lane_, nullptr),
          .group = std::exchange(group_, {}),
          .seen_by_none = seen_by_none,
          .trailing = std::exchange(trails_, false) ? lane_run : 0,
          .owner = std::move(owner)};
}

void RunRecord::Left::leave() const {
  if (lane) Runtime::existing().leave(*lane);
  for (Lane* l : group) Runtime::existing().leave(*l);
  if (trailing) Runtime::existing().remove_trailing(trailing);
}

RunRecord::Owner RunRecord::release() noexcept {
  broken = true;
  stop_calls();
  Left left = end();
  left.leave();
  return std::move(left.owner);
}

}  // namespace postern::internal::run
