// A pool's elements, stepped all at once or as they were sent.
#include "core.h"

#include <fmt/format.h>
#include <postern/library.h>

#include <algorithm>
#include <cstring>

namespace postern::internal::pools {

namespace {

using namespace std::chrono_literals;

/// Work that takes no longer is done before another thread has begun.
constexpr auto alone = 4us;

/// The pool whose simulator this thread is inside of.
thread_local const Core* inside = nullptr;

/// Mixes all bits of two numbers (splitmix64, Steele et al. 2014).
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a + 0x9e3779b97f4a7c15 * (b + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

std::int64_t threads_of(std::int64_t asked, std::int64_t elements) {
  return std::min(asked > 0 ? asked : core_count(), elements);
}

}  // namespace

Core::Core(std::unique_ptr<detail::Simulators> simulators, const SimulatorOptions& given)
    : options(given),
      label("pool " + internal::quoted(given.name)),
      size(simulators->size()),
      action(simulators->action(0)),
      observation(simulators->observation(0)),
      simulators_(std::move(simulators)),
      action_bytes_(action.byte_size()),
      observation_bytes_(observation.byte_size()),
      elements_(size_of(size)),
      deal_(threads_of(options.threads, size)),
      sent_actions_(size_of(size) * action_bytes_),
      arrived_(size_of(size) * observation_bytes_) {}

// --- one element

Stepped Core::advance(std::int64_t e, const std::byte* given, std::byte* seen) {
  Element& element = elements_[size_of(e)];
  if (element.begins) {
    const std::uint64_t of_element = mixed(options.seed, static_cast<std::uint64_t>(e));
    simulators_->reset(e, mixed(of_element, element.episode++), seen);
    element.steps = 0;
    element.begins = false;
    return {};
  }
  element.begins = true;  // unless it returns
  Stepped stepped = simulators_->step(e, given, seen);
  if (++element.steps == options.max_steps && !stepped.terminated) stepped.truncated = true;
  element.begins = stepped.terminated || stepped.truncated;
  return stepped;
}

std::exception_ptr Core::try_advance(std::int64_t e, const std::byte* given, std::byte* seen,
                                     Stepped& stepped) noexcept {
  const Core* const outer = std::exchange(inside, this);
  std::exception_ptr error;
  try {
    if (!keeps_thread([&] { stepped = advance(e, given, seen); }))
      error = std::make_exception_ptr(Error(ErrorCode::threw, ended_its_thread));
  } catch (...) {
    error = std::current_exception();
  }
  inside = outer;
  return error;
}

void Core::put(const Results& out, std::int64_t at, const Stepped& stepped) const {
  if (options.rewards == DType::f64)
    reinterpret_cast<double*>(out.rewards)[at] = stepped.reward;
  else
    reinterpret_cast<float*>(out.rewards)[at] = static_cast<float>(stepped.reward);
  out.terminated[at] = stepped.terminated;
  out.truncated[at] = stepped.truncated;
}

void Core::fail(std::int64_t e, const std::exception_ptr& error, std::size_t count) const {
  const std::string others = count > 1 ? fmt::format(" (and {} more)", count - 1) : "";
  throw PoolError(fmt::format("{}: element {}: {}{}", label, e, host::describe(error), others), e,
                  error);
}

// --- all elements at once

/// While it lives nobody else steps them, or saves.
class Core::Stepping {
 public:
  Stepping(Core& pool, const detail::StopState* run, bool forget) : pool_(pool) {
    std::vector<std::exception_ptr> gone;  // after the lock: they are the user's
    std::unique_lock lock(pool.guard_);
    if (forget) pool.forget_waiting();
    pool.wait(lock, run, [&] { return pool.saving_ == 0 && (!forget || pool.in_hand_ == 0); });
    pool.refuse_closed();
    if (pool.stepping_)
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("{}: it is being stepped: by another program, its own "
                              "simulator, or a call that was too late",
                              pool.label));
    if (forget) pool.forget_sent(gone);
    if (const std::int64_t n = pool.under_way())
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("{}: step: all elements must be there, {} were sent and not "
                              "received",
                              pool.label, n));
    pool.stepping_ = true;
  }
  ~Stepping() {
    std::scoped_lock lock(pool_.guard_);
    pool_.stepping_ = false;
    pool_.changed_.notify_all();
  }
  Stepping(const Stepping&) = delete;

 private:
  Core& pool_;
};

void Core::step_one(Batch& batch, std::int64_t e) noexcept {
  if (batch.out.info.stop.stop_requested()) {
    batch.left_out = true;
    return;
  }
  if (!batch.actions) elements_[size_of(e)].begins = true;
  Stepped stepped;
  if (auto error =
          try_advance(e, batch.actions ? batch.actions + size_of(e) * action_bytes_ : nullptr,
                      batch.out.observations + size_of(e) * observation_bytes_, stepped)) {
    std::scoped_lock lock(guard_);
    ++batch.failed;
    if (e < batch.lowest) {
      batch.lowest = e;
      std::swap(batch.failure, error);
    }
  }
  if (batch.actions) put(batch.out, e, stepped);
}

void Core::step_all(Batch& batch) {
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::duration::rep> spent{0};  // by all threads, not waiting for each other
  const auto timed = [&](const auto& steps) {
    const Clock::time_point begin = Clock::now();
    steps([&](std::int64_t e) { step_one(batch, e); });
    spent += (Clock::now() - begin).count();
  };
  if (last_work_ < alone || deal_.threads() == 1) {
    timed([&](const auto& step) {
      for (std::int64_t e = 0; e < size; ++e) step(e);
    });
  } else {
    deal_.begin(size);
    const auto work = [&](std::int64_t thread) {
      timed([&](const auto& step) { deal_.work(thread, step); });
    };
    const auto enter = [&work](std::int64_t thread) { work(thread); };  // a word: not allocated
    parallel_for(deal_.threads(), enter);
  }
  last_work_ = Clock::duration(spent);
  if (batch.failed) fail(batch.lowest, batch.failure, batch.failed);
  if (batch.left_out) batch.out.info.end_run();  // else a recording would take it for a whole call
}

void Core::step(const std::byte* actions, const Results& out) {
  const Stepping alone_here(*this, out.info.run_state, false);
  Batch batch{actions, out, size};
  step_all(batch);
}

void Core::reset(const Results& out) {
  const Stepping alone_here(*this, out.info.run_state, true);
  Batch batch{nullptr, out, size};
  step_all(batch);
}

// --- those that were sent

void Core::refuse_closed() const {
  if (closed_) throw Error(ErrorCode::closed, fmt::format("{}: it is gone", label));
}

void Core::wait(std::unique_lock<Mutex>& lock, const detail::StopState* run,
                const std::function<bool()>& done) {
  if (done() || host::wait_at(changed_, lock, run, done) == host::Woken::done) return;
  throw Error(ErrorCode::cancelled, fmt::format("{}: the run is to stop", label));
}

std::int64_t Core::under_way() const {
  return static_cast<std::int64_t>(waiting_.size() + ready_.size()) + in_hand_;
}

/// Those that no thread has begun. Who waits for them looks again.
void Core::forget_waiting() {
  for (const std::int32_t e : waiting_) elements_[size_of(e)].where = Where::resting;
  waiting_.clear();
  changed_.notify_all();
}

void Core::forget_sent(std::vector<std::exception_ptr>& gone) {
  gone.reserve(ready_.size());  // only what has arrived has failed
  waiting_.clear();
  ready_.clear();
  for (Element& element : elements_) {
    element.where = Where::resting;
    if (element.failure) gone.push_back(std::exchange(element.failure, nullptr));
  }
}

void Core::employ() {
  while (workers_ < deal_.threads() && size_of(workers_ - in_hand_) < waiting_.size() &&
         saving_ == 0) {
    ++workers_;
    try {
      host::run_on_host_thread([self = shared_from_this()] { self->work(); });
    } catch (...) {
      if (--workers_ == 0) throw;
      break;  // fewer threads do the same work
    }
  }
}

void Core::work() noexcept {
  std::unique_lock lock(guard_);
  while (!waiting_.empty() && saving_ == 0) {
    const std::int64_t e = waiting_.front();
    waiting_.pop_front();
    Element& element = elements_[size_of(e)];
    element.where = Where::in_hand;
    ++in_hand_;
    lock.unlock();
    Stepped stepped;
    std::exception_ptr error =
        try_advance(e, sent_actions_.data() + size_of(e) * action_bytes_,
                    arrived_.data() + size_of(e) * observation_bytes_, stepped);
    lock.lock();
    --in_hand_;
    element.where = Where::arrived;
    element.stepped = stepped;
    element.failure = std::move(error);
    ready_.push_back(static_cast<std::int32_t>(e));
    changed_.notify_all();
  }
  --workers_;
}

void Core::send(const CallInfo& info, View<const std::int32_t> elements, const std::byte* actions) {
  std::unique_lock lock(guard_);
  wait(lock, info.run_state, [&] { return !stepping_; });
  refuse_closed();
  std::vector<bool> given(elements_.size());
  for (const std::int32_t e : elements) {
    if (e < 0 || e >= size)
      throw Error(ErrorCode::out_of_range,
                  fmt::format("{}: send: element {} is none of {}", label, e, size));
    if (given[size_of(e)] || elements_[size_of(e)].where != Where::resting)
      throw Error(ErrorCode::failed_precondition,
                  fmt::format("{}: send: element {} must have been received before it is sent "
                              "again",
                              label, e));
    given[size_of(e)] = true;
  }
  for (std::int64_t i = 0; i < elements.size(); ++i) {
    std::memcpy(sent_actions_.data() + size_of(elements[i]) * action_bytes_,
                actions + size_of(i) * action_bytes_, action_bytes_);
    elements_[size_of(elements[i])].where = Where::sent;
    waiting_.push_back(elements[i]);
  }
  employ();
}

void Core::receive(std::int64_t k, std::int32_t* elements, const Results& out) {
  std::unique_lock lock(guard_);
  employ();  // what was sent before a checkpoint
  const auto enough = [&] { return size_of(k) <= ready_.size() || under_way() < k; };
  wait(lock, out.info.run_state, enough);
  refuse_closed();
  if (ready_.size() < size_of(k))
    throw Error(ErrorCode::failed_precondition,
                fmt::format("{}: receive: {} elements were asked for, {} are under way", label, k,
                            under_way()));
  std::copy_n(ready_.begin(), k, elements);
  std::sort(elements, elements + k);
  for (std::int64_t i = 0; i < k; ++i)
    if (const auto error = std::exchange(elements_[size_of(elements[i])].failure, nullptr)) {
      elements_[size_of(elements[i])].where = Where::resting;
      std::erase(ready_, elements[i]);
      lock.unlock();  // what it says is the user's
      fail(elements[i], error, 1);
    }
  ready_.erase(ready_.begin(), ready_.begin() + k);
  for (std::int64_t i = 0; i < k; ++i) {
    elements_[size_of(elements[i])].where = Where::resting;
    put(out, i, elements_[size_of(elements[i])].stepped);
    std::memcpy(out.observations + size_of(i) * observation_bytes_,
                arrived_.data() + size_of(elements[i]) * observation_bytes_, observation_bytes_);
  }
}

void Core::close() noexcept {
  kept_.reset();
  std::unique_lock lock(guard_);
  closed_ = true;
  forget_waiting();
  if (inside == this) return;
  changed_.wait(lock, [&] { return in_hand_ == 0 && !stepping_; });
}

}  // namespace postern::internal::pools
