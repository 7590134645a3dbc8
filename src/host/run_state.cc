// Failures of a run, and where a thread stands.
#include "host/run_state.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <thread>
#include <utility>

#include "cluster/cluster.h"
#include "core/check.h"
#include "core/text.h"
#include "host/failure_text.h"
#include "host/pending.h"
#include "host/residual_store.h"
#include "host/run_end.h"
#include "shard/processes.h"

namespace postern {
using namespace internal;

bool StopToken::stop_requested() const {
  return state_ && state_->stop.load(std::memory_order_relaxed);
}

void CallInfo::end_run() const {
  const void *nobody = nullptr, *who = name.data();
  if (stop.stop_requested()) who = run_state;  // no name: another one has ended the run
  if (run_state) run_state->end.compare_exchange_strong(nobody, who);
}

}  // namespace postern

namespace postern::internal::host {

using std::memory_order_acquire, std::memory_order_relaxed, std::memory_order_release;

constinit thread_local const Nesting* current_nesting = nullptr;

static constexpr std::size_t failures_kept = 16;  // behind the first

bool in_delivery() {
  for (const Nesting* n = nesting(); n; n = n->outer)
    if (n->delivery) return true;
  return false;
}

std::string describe(const SiteSpec& site) {
  if (site.named.name == process_call && !site.place.known()) return site.name;
  return fmt::format("{} '{}' at {}", word_of(site.kind), one_line(site.name),
                     to_string(site.place));
}

const detail::StopState* surrounding_run() { return nesting() ? nesting()->run : nullptr; }

std::string describe(const std::exception_ptr& error) {
  auto type_of_current = [] {
    const std::type_info* type = abi::__cxa_current_exception_type();
    return fmt::format("an exception of type {}", type ? readable_name(*type) : "unknown");
  };
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    const char* const text = e.what();
    if (text && *text) return printable(limited(text));
    return type_of_current() + " without a text";
  } catch (...) {
    return type_of_current();
  }
}

std::exception_ptr callback_error(ErrorCode code, const HostSite& site, int device,
                                  const std::exception_ptr& cause) {
  return std::make_exception_ptr(CallbackError(code,
                                               failure_text(*site.spec, device, describe(cause)),
                                               {site.spec->name, site.spec->place}, device, cause));
}

TapSource& RunState::tap_source() {
  if (!has_tap_source_.load(memory_order_acquire)) {
    std::scoped_lock lock(guard_);
    if (!has_tap_source_.load()) {
      if (!tap_source_) tap_source_ = std::make_shared<TapSource>();
      tap_source_->owner = owner;
      tap_source_->run = outermost.expired() ? self() : outermost.lock();
      tap_source_->number = number;
      tap_source_->context = context;
      tap_source_->sink = sink;
      tap_source_->floats = floats;
      if (stop.load()) tap_source_->request_stop();
      has_tap_source_.store(true, memory_order_release);
    }
  }
  return *tap_source_;
}

ResidualStores& RunState::residual_stores() {
  if (part_of) return part_of->residual_stores();
  if (ResidualStores* const there = has_residual_stores_.load(memory_order_acquire)) return *there;
  std::scoped_lock lock(guard_);
  if (!residual_stores_) {
    residual_stores_ = std::make_shared<ResidualStores>();
    has_residual_stores_.store(residual_stores_.get(), memory_order_release);
  }
  return *residual_stores_;
}

PendingCalls& RunState::calls() {
  if (outside) return *calls_outside();
  if (!has_calls_.load(memory_order_acquire)) {
    std::scoped_lock lock(guard_);
    if (!calls_) calls_ = std::make_shared<PendingCalls>(this);
    has_calls_.store(true, memory_order_release);
  }
  return *calls_;
}

void RunState::share_calls(RunState& whole) {
  static_cast<void>(whole.calls());
  std::scoped_lock lock(guard_);
  calls_ = whole.calls_;
  has_calls_.store(true, memory_order_release);
}

void RunState::stop_calls() {
  std::shared_ptr<PendingCalls> calls;
  {
    std::scoped_lock lock(guard_);
    if (has_calls_.load(memory_order_relaxed)) calls = calls_;
  }
  if (calls) calls->wake();
}

bool RunState::has_calls_under_way() const {
  return has_calls_.load(memory_order_acquire) && calls_->under_way();
}

void RunState::finish_calls() noexcept {
  if (!has_calls_.load(memory_order_acquire)) return;
  calls_->finish(*this);
  has_calls_.store(false, memory_order_release);
}

void RunState::expect(std::span<const int> devices) {
  const auto most = size_of(std::ranges::max(devices)) + 1;
  if (most <= progress_.size()) return;
  const std::size_t size = std::bit_ceil(most);
  many_ = std::make_unique<Progress[]>(size);
  progress_ = {many_.get(), size};
}

void RunState::fail(ErrorCode code, const HostSite& site, int on_device, std::exception_ptr cause,
                    const std::string& what, std::int64_t element) {
  const std::uint64_t invocation =
      leaves_zeros ? progress_of(on_device).passed.load(memory_order_relaxed) : 0;
  if (leaves_zeros && !site.positions.empty() && !site.one_order())
    let_others_come(on_device, invocation);
  fail_by({.code = code,
           .site = {site.spec->name, site.spec->place},
           .device = on_device,
           .cause = std::move(cause),
           .text = failure_text(*site.spec, on_device, what),
           .what = what,
           .invocation = invocation,
           .element = element,
           .spec = site.spec.get()});
}

bool RunState::batch_failed(const HostSite& site, int on_device) const {
  std::scoped_lock lock(guard_);
  return std::ranges::any_of(
      failures_, [&](const Failure& f) { return f.in_batch(site.spec.get(), on_device); });
}

/// A device that never comes - it takes another way, has ended, or waits for this one - is given up
/// when nobody has moved for a while.
void RunState::let_others_come(int on_device, std::uint64_t invocation) noexcept {
  using namespace std::chrono_literals;
  constexpr std::chrono::milliseconds quiet = 250ms, most = 2s;
  const auto start = Clock::now(), latest = std::min(start + most, deadline);
  std::uint64_t before = 0;
  for (auto moved = start; !stop.load(memory_order_acquire);) {
    bool all = true;
    std::uint64_t sum = 0;
    for (const int d : turns.devices()) {
      const std::uint64_t passed = progress_of(d).passed.load(memory_order_acquire);
      all = all && (d == on_device || passed >= invocation);
      sum += passed;
    }
    const auto now = Clock::now();
    if (std::exchange(before, sum) != sum) moved = now;
    if (all || now >= latest || now >= moved + quiet) return;
    std::this_thread::sleep_for(100us);
  }
}

void RunState::fail_by(Failure failure) {
  {
    std::vector<Failure> gone;  // after the lock, with what the user threw
    std::scoped_lock lock(guard_);
    if (outcome() == Outcome::cancelled || (over_ && outcome() != Outcome::failed)) return;
    keep(failure, gone);
    // A failure outranks a host function's earlier wish to stop.
    outcome_.store(Outcome::failed, memory_order_release);
    request_stop();
    failing.request_stop();
    if (has_tap_source_.load()) tap_source_->request_stop();
  }
  tell_processes();
  stop_calls();
  tell_parts();
}

/// Keeps a failure beside the others, or what counts of them: see fail(). What must go without the
/// lock is left in `failure` and `gone`.
void RunState::keep(Failure& failure, std::vector<Failure>& gone) {
  const auto batch = std::ranges::find_if(failures_, [&](const Failure& f) {
    return failure.element >= 0 && f.invocation == failure.invocation &&
           f.in_batch(failure.spec, failure.device);
  });
  if (batch != failures_.end()) {
    if (failure.element < batch->element) std::swap(*batch, failure);
    return;
  }
  if (!leaves_zeros || seen_) {  // as they come
    // Whether a function fails just before or behind the deadline is chance: one of them counts.
    const auto timed_out = [](const Failure& f) { return f.what.starts_with(late); };
    if (!leaves_zeros && count_ > 0 && (timed_out(failure) || timed_out(failures_.front()))) return;
    ++count_;
    if (failures_.size() <= failures_kept) failures_.push_back(std::move(failure));
    return;
  }
  // On several devices those of the earliest invocation, by device.
  if (count_ > 0 && failure.invocation > failures_.front().invocation) return;
  if (count_ > 0 && failure.invocation < failures_.front().invocation) {
    gone.swap(failures_);
    count_ = 0;
  }
  ++count_;
  failures_.insert(std::ranges::upper_bound(failures_, failure.device, {}, &Failure::device),
                   std::move(failure));
  if (failures_.size() > failures_kept + 1) {
    gone.push_back(std::move(failures_.back()));
    failures_.pop_back();
  }
}

/// What the cluster knows of a run, which may be gone, or its record another run's.
class WatchedRun : public clusters::Watched {
 public:
  WatchedRun(std::weak_ptr<RunState> run, std::uint64_t number)
      : run_(std::move(run)), number_(number) {}

  void ended_elsewhere(const std::string& why) noexcept override {
    const auto run = run_.lock();
    if (!run) return;
    try {
      run->fail_elsewhere(number_, why);
    } catch (...) {
      run->request(Outcome::failed);  // not even memory for the text
    }
  }
  std::string site_now() override {
    const auto run = run_.lock();
    return run ? run->site_now() : "";
  }

 private:
  const std::weak_ptr<RunState> run_;
  const std::uint64_t number_;
};

/// The other processes of a run must not wait for one that does not come.
void RunState::tell_processes() const noexcept {
  try {
    const Outcome how = outcome();
    std::string why =
        how == Outcome::stopped ? "a host function ended it early" : "it was cancelled";
    if (how == Outcome::failed) why = first(&Failure::text);
    ends_early(why);
  } catch (...) {
    ends_early({});
  }
}

void RunState::ends_early(const std::string& why) const noexcept {
  if (const std::uint64_t number_there = job_run())
    clusters::Cluster::joined()->run_failed(number_there, why);
}

void RunState::set_of_processes(bool communicates) {
  if (!communicates) return;
  if (part_of) return part_of->set_of_processes(true);
  clusters::Cluster* const cluster = clusters::Cluster::joined();
  if (!cluster || cluster->size() < 2) return;
  static Mutex claiming;  // parts of a run may come to this side by side
  const std::scoped_lock lock(claiming);
  if (job_run_.load()) return;
  cluster->claim([this](std::uint64_t given) {
    job_run_.store(given);
    return std::make_shared<WatchedRun>(self(), given);
  });
  if (stop.load()) tell_processes();
}

RunState::~RunState() {
  if (job_run_.load()) ends_early("it was given up before it began");
}

std::string RunState::first(std::string Failure::*part) const {
  std::scoped_lock lock(guard_);
  return failures_.empty() ? std::string() : failures_.front().*part;
}

const RunState::Progress* RunState::in_progress() const {
  for (const Progress& p : progress_)
    if (p.site.load(memory_order_acquire)) return &p;
  return nullptr;
}

/// For a reason that is no function's: blamed on the call in progress if there is one.
void RunState::fail_at_site(ErrorCode code, const std::string& what) {
  constexpr auto none = std::numeric_limits<std::uint64_t>::max();  // after all that failed
  SitePtr keep;
  int blamed = 0;
  {
    std::scoped_lock lock(guard_);  // it may be about to begin
    blamed = std::max(device, 0);
    if (const Progress* p = in_progress()) {
      keep = p->site.load()->spec;
      blamed = p->device.load();
    }
  }
  Failure failure{.code = code, .device = blamed, .text = what, .what = what, .invocation = none};
  if (keep) {
    failure.site = {keep->name, keep->place};
    failure.text = failure_text(*keep, blamed, what);
  }
  fail_by(std::move(failure));
}

void RunState::fail_late() {
  const clusters::Cluster* const cluster = clusters::Cluster::joined();
  std::string why(late);
  if (cluster && job_run()) why += cluster->waiting();
  fail_at_site(ErrorCode::timeout, why);
}

void RunState::fail_elsewhere(std::uint64_t its, const std::string& why) {
  if (job_run_.load() == its) fail_at_site(ErrorCode::aborted, why);
}

std::string RunState::site_now() const {
  std::scoped_lock lock(guard_);
  const Progress* const p = in_progress();
  return p ? fmt::format("{} on device {}", describe(*p->site.load()->spec), device_name(p->device))
           : "";
}

void RunState::request(Outcome reason) {
  ask_to_stop(reason);
  if (stop.load()) stop_calls();
}

void RunState::ask_to_stop(Outcome reason) {
  {
    std::scoped_lock lock(guard_);
    Outcome expected = Outcome::running;
    if (!outcome_.compare_exchange_strong(expected, reason)) return;
    if (const Progress* p = in_progress(); p && reason != Outcome::failed) {  // without memory
      const SiteSpec& spec = *p->site.load()->spec;
      stopped_at_ = {spec.name, spec.place};
    }
    request_stop();
    if (reason == Outcome::failed) failing.request_stop();
    if (has_tap_source_.load()) tap_source_->request_stop();
  }
  tell_processes();
  tell_parts();
}

bool RunState::close() {
  std::shared_ptr<const RunFunctions> gone;  // after the lock
  if (!part_of) run_has_ended(number, !stop.load() && !broken.load());
  // Who ended it may not have come to that yet, and knows why.
  if (job_run_.load() && outcome() != Outcome::running) tell_processes();
  if (const std::uint64_t over = job_run_.exchange(0))
    clusters::Cluster::joined()->run_failed(over, "it ended before all processes came to its end");
  std::scoped_lock lock(guard_);
  Outcome running = Outcome::running;
  outcome_.compare_exchange_strong(running, Outcome::done);
  over_ = true;
  gone.swap(own_functions);
  open_.store(false, memory_order_relaxed);
  closed_.notify_all();
  for (Progress& p : progress_) p.site.store(nullptr, memory_order_relaxed);
  has_residual_stores_.store(nullptr, memory_order_relaxed);
  residual_stores_.reset();
  if (!has_tap_source_.load(memory_order_acquire)) return true;
  has_tap_source_.store(false, memory_order_relaxed);
  // What is still to be delivered keeps the source; else the next run of this record takes it over.
  if (tap_source_.use_count() > 1) {
    tap_source_.reset();
    return false;
  }
  static_cast<void>(std::shared_ptr<TapSource>(
      tap_source_));  // use_count() orders nothing: meet the delivery's last look at the sites
  tap_source_->owner.reset();
  tap_source_->end = nullptr;
  return true;
}

void RunState::wait_for_end() {
  std::unique_lock lock(guard_);
  closed_.wait(lock, [&] { return !open_.load(memory_order_relaxed); });
}

std::exception_ptr RunState::error() const {
  const Failure& first = failures_.front();
  std::string text = first.text;
  if (count_ > 1) text += fmt::format(" (and {} more)", count_ - 1);
  std::vector<std::string> others;
  for (std::size_t i = 1; i < failures_.size(); ++i) others.push_back(failures_[i].text);
  if (first.code == ErrorCode::timeout)
    return std::make_exception_ptr(
        TimeoutError(first.code, text, first.site, first.device, first.cause, others, count_));
  return std::make_exception_ptr(
      CallbackError(first.code, text, first.site, first.device, first.cause, others, count_));
}

void RunState::rethrow() {
  std::exception_ptr e;
  Site site;
  {
    std::scoped_lock lock(guard_);
    seen_ = true;
    if (count_ > 0) e = error();
    site = stopped_at_;
  }
  if (e) std::rethrow_exception(e);
  const bool stopped = outcome() == Outcome::stopped;
  throw CallbackError(
      ErrorCode::cancelled,
      stopped ? "the run was ended early by a host function; its results were not computed"
              : "the run was cancelled",
      site, 0, nullptr);
}

std::exception_ptr RunState::take_unobserved() {
  std::scoped_lock lock(guard_);
  if (count_ == 0 || seen_) return nullptr;
  seen_ = true;
  return error();
}

void RunState::reset() {
  outcome_.store(Outcome::running, memory_order_relaxed);
  never_waits.store(false, memory_order_relaxed);
  broken.store(false, memory_order_relaxed);
  over_ = false;
  started = 0;
  observer = nullptr;
  around.reset();
  context = nullptr;
  sink = nullptr;
  deadline = Clock::time_point::max();
}

}  // namespace postern::internal::host
