// Clients and lanes.
#include "run/runtime.h"

#include <algorithm>

#include "core/check.h"
#include "core/fork.h"
#include "core/lists.h"
#include "core/log.h"
#include "core/mutex.h"
#include "host/queue.h"
#include "host/run_state.h"
#include "host/spin.h"
#include "host/timeline.h"
#include "run/failures.h"
#include "run/live_page.h"

namespace postern::internal::run {

namespace {

/// Spare lanes of runs on several devices.
constexpr std::size_t grouped_lanes = 2048;
std::atomic<Runtime*> the_runtime{nullptr};

}  // namespace

bool Runtime::exists() { return the_runtime.load() != nullptr; }
Runtime& Runtime::existing() { return *the_runtime; }

Runtime& Runtime::get() {
  // Never destroyed: users' own statics may hold tensors, and PJRT destroys a client beneath runs
  // whose results were dropped, which crashes. What is in flight is drained at exit, see
  // failures.cc.
  refuse_forked();
  static Runtime* const runtime = [] {
    const Compilation making;  // a process that ends waits for this too
    Runtime* r = nullptr;
    try {
      watch_forks(true);
      r = new Runtime(settled_config());
    } catch (...) {
      forget_config();  // another plug-in may do better
      watch_forks(false);
      throw;
    }
    the_runtime = r;
    drain_at_exit(r->config().exit_limit);
    return r;
  }();
  return *runtime;
}

Runtime::Runtime(Config config) : config_(std::move(config)), backends_(open_backends(config_)) {
  host::timeline::start_from_environment();
  live::start_from_environment();
  host::set_longest_spin(config_.look);
  platforms::set_default(backends_.front()->used);
  several_platforms = backends_.size() > 1;
  platforms::let_products_be_rounded(config_.tf32);
  std::size_t spare = 0;
  for (const auto& backend : backends_) {
    main_lanes_ += size_of(backend->device_count);
    spare += backend->spare.at_a_time * backend->spare.times + grouped_lanes;
  }
  lanes_.resize(main_lanes_ + spare);
  std::size_t next = 0;
  for (const auto& backend : backends_)
    for (int i = 0; i < backend->device_count; ++i) {
      Lane& lane = make_lane(next++, *backend, 0, i);
      lane.device = lane.index;
    }
  lane_count_ = main_lanes_;
}

Lane& Runtime::make_lane(std::size_t index, Backend& backend, std::size_t client, int ordinal) {
  auto& lane = lanes_[index] = std::make_unique<Lane>();
  const auto& devices = backend.clients[client].devices();
  const int device = ordinal % static_cast<int>(devices.size());
  lane->index = static_cast<int>(index);
  lane->client = static_cast<int>(client);
  lane->ordinal = ordinal;
  lane->memory = backend.memory_of(device);
  lane->queue = backend.queue_of(device);
  lane->backend = &backend;
  lane->handle = devices[size_of(device)];
  return *lane;
}

bool Runtime::add_lanes(Backend& backend, std::size_t lanes, bool grouped, std::size_t seen) {
  const std::scoped_lock lock(adding_);
  const std::size_t first = lane_count();
  if (first != seen) return true;  // another thread has added some: look at those
  if (backend.is_full || backend.client_count == Backend::most_clients) return false;
  if (first + lanes > lanes_.size()) return false;
  if (!grouped && backend.single_clients == backend.spare.times) return false;
  // A client of its own, so that its thread pools are neither blocked by the others' callbacks nor
  // make those larger than the machine.
  try {
    backend.clients[backend.client_count] =
        backend.platform().make_client(*backend.plugin, static_cast<int>(lanes));
  } catch (const std::exception& e) {  // some plug-ins make one in a process
    log(LogLevel::warning, "{}: runs wait for one another, as there is no further client: {}",
        backend.name, e.what());
    backend.is_full = true;
    return false;
  }
  if (!grouped) ++backend.single_clients;
  for (std::size_t i = 0; i < lanes; ++i) {
    Lane& lane = make_lane(first + i, backend, backend.client_count, static_cast<int>(i));
    lane.grouped = grouped;
    lane.for_nested = !grouped && backend.single_clients == backend.spare.times &&
                      i + backend.spare.for_nested >= lanes;  // the last that there can be
  }
  ++backend.client_count;
  lane_count_.store(first + lanes, std::memory_order_release);
  return true;
}

// Takes the lane first and then looks at `dispatching`; pass() counts itself there and then looks
// at `taken`. All of it is sequentially consistent, so of two that meet at least one gives way.
Lane* Runtime::try_take(Lane& lane) {
  if (lane.taken.load(std::memory_order_relaxed)) return nullptr;  // spares the write below
  bool expected = false;
  if (!lane.taken.compare_exchange_strong(expected, true)) return nullptr;
  if (lane.dispatching.load() != 0) {
    leave(lane);  // somebody may be about to queue behind us
    return nullptr;
  }
  lane.started.store(false, std::memory_order_relaxed);
  lane.run.store(next_run(), std::memory_order_release);
  return &lane;
}

bool Runtime::try_take(const Lanes& lanes, Lane::Holder holder) {
  for (std::size_t taken = 0; taken < lanes.size(); ++taken) {
    if (try_take(*lanes[taken])) continue;
    while (taken-- > 0) leave(*lanes[taken]);
    return false;
  }
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    lanes[i]->holder = holder;
    if (i > 0) lanes[i]->run.store(0);  // the first stands for the run
  }
  return true;
}

static const char* what_is_refused(bool nested) {
  return nested ? "a host function runs" : "there is no room for";
}

[[noreturn]] static void refuse(const std::string& why) {
  const host::Nesting* nested = host::nesting();
  Site site;
  const int device = nested ? nested->device : 0;
  if (nested && nested->site) site = {nested->site->spec->name, nested->site->spec->place};
  throw CallbackError(ErrorCode::reentry, why, site, device, nullptr);
}

void Runtime::check_depth() const {
  const host::Nesting* nested = host::nesting();
  if (nested && nested->depth >= config_.max_reentry)
    refuse(
        fmt::format("a host function runs a program that calls back: {} levels deep, {} are "
                    "allowed (Config::max_reentry)",
                    nested->depth, config_.max_reentry));
}

void Runtime::wait_for_a_lane() {
  const host::timeline::Span span(host::timeline::Kind::wait, "a free lane");
  std::unique_lock lock(guard_);
  ++waiting_;
  freed_.wait_for(lock, std::chrono::milliseconds(20));
  --waiting_;
}

/// Takes these main lanes, unless they are taken or a run on several devices is in the way: one
/// that calls bars any other from the client, one without calls bars those that call. `stuck`
/// becomes true where what is in the way may be in its calls, of which nobody knows when they end.
bool Runtime::try_take_main(const Lanes& lanes, Lane::Holder as, bool& stuck) {
  using Holder = Lane::Holder;
  const std::scoped_lock lock(grouping_);
  for (std::size_t i = 0; i < main_lanes_; ++i) {
    if (lanes_[i]->backend != lanes[0]->backend || !lanes_[i]->taken.load()) continue;
    const Holder holder = lanes_[i]->holder.load();
    if (holder == Holder::calling_group) {
      stuck = true;
      return false;
    }
    if (holder == Holder::plain_group && as == Holder::calling_group) return false;
  }
  for (const Lane* lane : lanes) {
    if (!lane->taken.load()) continue;
    const Holder holder = lane->holder.load();
    stuck = stuck || holder == Holder::single || holder == Holder::plain;
  }
  return try_take(lanes, as);
}

/// Takes spare lanes of one client, one for each device. Where the platform makes its devices, a
/// client for a group has exactly as many lanes; where they are the machine's, a client's lanes
/// come in rows of one for each of them, and a group takes some of a row.
std::optional<Lanes> Runtime::try_take_spare(const std::vector<int>& devices, Lane::Holder as,
                                             bool may_add) {
  const std::size_t wanted = devices.size();
  Backend& backend = backend_of(devices[0]);
  const bool makes_devices = backend.platform().makes_devices;
  // Those for the devices among the lanes of a client, or of a row; none if they are for others.
  const auto lanes_within = [&](std::size_t first, std::size_t end) {
    Lanes found;
    if (!makes_devices)
      for (const int d : devices)
        found.push_back(lanes_[first + size_of(d - backend.first_device)].get());
    else if (lanes_[first]->grouped && end - first == wanted)
      for (std::size_t i = first; i < end; ++i) found.push_back(lanes_[i].get());
    return found;
  };
  while (true) {
    const std::size_t end = lane_count();
    for (std::size_t first = main_lanes_, next = 0; first < end; first = next) {
      next = first + 1;
      while (next < end && lanes_[next]->has_client_of(*lanes_[first])) ++next;
      if (lanes_[first]->backend != &backend) continue;
      if (!makes_devices) next = first + size_of(backend.device_count);
      if (next > end) continue;
      Lanes spare = lanes_within(first, next);
      if (spare.empty() || !try_take(spare, as)) continue;
      for (std::size_t i = 0; i < wanted; ++i) spare[i]->device = devices[i];
      return spare;
    }
    const std::size_t more = makes_devices ? wanted : backend.spare.at_a_time;
    if (!may_add || !add_lanes(backend, more, makes_devices, end)) return {};
  }
}

Lanes Runtime::take_any(const std::vector<int>& devices, bool calls) {
  Lanes main;
  const auto as = calls ? Lane::Holder::calling_group : Lane::Holder::plain_group;
  for (const int d : devices) main.push_back(lanes_[size_of(d)].get());
  const host::Nesting* nested = host::nesting();
  constexpr int most_waits = 3;  // before another client is made and the program compiled for it
  for (int waits = 0;; ++waits) {
    bool stuck = false;
    if (try_take_main(main, as, stuck)) return main;
    // Where many pass, one after another, there may never be a moment without any.
    const auto passed = [](const Lane* lane) { return lane->dispatching.load() > 0; };
    stuck = stuck || (waits >= most_waits && std::ranges::any_of(main, passed));
    // The lanes may be those of the run that is calling: a nested run never waits for them.
    const bool may_add = nested || waits >= most_waits;
    if (nested || stuck) {
      if (auto spare = try_take_spare(devices, as, may_add)) return *spare;
      if (nested || (may_add && main[0]->backend->may_refuse()))
        refuse(fmt::format(
            "{} a program on {} devices, and all spare ones are taken by runs inside their calls",
            what_is_refused(nested != nullptr), devices.size()));
    }
    wait_for_a_lane();
  }
}

Lane* Runtime::try_take_spare(const Lane& main, bool nested) {
  while (true) {
    const std::size_t end = lane_count();
    for (std::size_t i = main_lanes_; i < end; ++i) {
      Lane& lane = *lanes_[i];
      if (lane.grouped || lane.queue != main.queue || (lane.for_nested && !nested)) continue;
      if (try_take(lane)) return &lane;
    }
    if (!add_lanes(*main.backend, main.backend->spare.at_a_time, false, end)) return nullptr;
  }
}

Lane* Runtime::try_take_single(Lane& main, bool nested) {
  // Threads whose runs meet on a device keep to a lane each, as long as they do: else they would
  // pass the lanes and what lies on them to and fro.
  static thread_local Lane* last = nullptr;  // a spare one
  static thread_local unsigned runs = 0;
  const bool again = last && !nested && last->queue == main.queue && ++runs % 16 != 0;
  if (again && try_take(*last)) return last;  // but now and then the main one may be free again
  if (try_take(main)) {
    if (!nested) last = nullptr;
    return &main;
  }
  Lane* const spare = try_take_spare(main, nested);
  if (!nested) last = spare;
  return spare;
}

Lane& Runtime::take_any(int device) {
  const host::Nesting* nested = host::nesting();
  Lane& main = *lanes_[size_of(device)];
  while (true) {
    if (Lane* lane = try_take_single(main, nested != nullptr)) {
      if (lane != &main) lane->device = device;
      return *lane;
    }
    if (nested || main.backend->may_refuse())
      refuse(
          fmt::format("{} a program that calls back, and all {} lanes are taken by runs inside "
                      "their own calls",
                      what_is_refused(nested != nullptr), lane_count()));
    wait_for_a_lane();
  }
}

// A compiler may begin to tune between the wait and the taking: who has taken a lane looks again.
Lane& Runtime::take(int device, bool calls) {
  check_depth();
  while (true) {
    if (calls) wait_for_tuning();
    Lane& lane = take_any(device);
    if (!calls) lane.holder = Lane::Holder::plain;
    if (!calls || tuning_.load() == 0) [[likely]]
      return lane;
    leave(lane);
  }
}

Lanes Runtime::take(const std::vector<int>& devices, bool calls) {
  check_depth();
  while (true) {
    if (calls) wait_for_tuning();
    Lanes group = take_any(devices, calls);
    if (!calls || tuning_.load() == 0) return group;
    for (Lane* lane : group) leave(*lane);
  }
}

void Runtime::leave(Lane& lane) {
  lane.run.store(0, std::memory_order_relaxed);  // before `taken`: the next shows no earlier run
  lane.holder.store(Lane::Holder::single, std::memory_order_relaxed);
  lane.taken.store(false);
  // Who waits counts itself before it looks at `taken`, so one of the two sees the other.
  if (waiting_.load() == 0 || forked()) [[likely]]
    return;
  std::scoped_lock lock(guard_);
  freed_.notify_all();
}

void Runtime::wait_for(const Lane& lane, std::uint64_t run) {
  const host::timeline::Span span(host::timeline::Kind::wait, "earlier programs");
  ++waiting_;  // before it looks: see leave()
  std::unique_lock lock(guard_);
  freed_.wait(lock, [&] { return has_left(lane, run) && !trailing_.contains(run); });
  --waiting_;
}

std::size_t Runtime::wait_for_runs(std::optional<std::chrono::steady_clock::time_point> until,
                                   const std::vector<host::RunName>& but) {
  ++waiting_;
  std::unique_lock lock(guard_);
  const std::uint64_t last_run = runs_.load(), last_started = last_start_;
  const auto counts = [&](std::uint64_t number, auto named) {
    return !std::ranges::count(but, number, named);
  };
  // A started run counts once: on its lane, or by its number while it has none yet or any more.
  const auto pending = [&] {
    std::size_t never_started = 0, started_on_lane = 0;  // started: by Runtime::add_started
    for (std::size_t i = 0, end = lane_count(); i < end; ++i) {
      const Lane& lane = *lanes_[i];
      const std::uint64_t run = lane.run.load();
      if (lane.taken.load() && run != 0 && run <= last_run && counts(run, &host::RunName::lane_run))
        ++(lane.started.load() ? started_on_lane : never_started);
    }
    const auto started = std::count_if(
        started_.begin(), started_.upper_bound(last_started),
        [&](std::uint64_t number) { return counts(number, &host::RunName::started); });
    for (auto it = trailing_.begin(); it != trailing_.upper_bound(last_run); ++it) {
      const auto& [run, was_started] = *it;
      if (!was_started && counts(run, &host::RunName::lane_run)) ++never_started;
    }
    return never_started + std::max(started_on_lane, size_of(started));
  };
  auto done = [&] { return pending() == 0; };
  freed_.wait_until(lock, until.value_or(host::never), done);
  --waiting_;
  return pending();
}

std::uint64_t Runtime::add_started() {
  std::scoped_lock lock(guard_);
  started_.insert(++last_start_);
  return last_start_;
}

void Runtime::remove_started(std::uint64_t started) {
  if (forked()) return;
  std::scoped_lock lock(guard_);
  started_.erase(started);
  freed_.notify_all();
}

std::shared_ptr<void> Runtime::keep_open(std::uint64_t started) {
  return {nullptr, [started](void*) { existing().remove_started(started); }};
}

void Runtime::add_trailing(std::uint64_t run, bool started) {
  std::scoped_lock lock(guard_);
  trailing_.emplace(run, started);
}

void Runtime::remove_trailing(std::uint64_t run) {
  if (forked()) return;
  std::scoped_lock lock(guard_);
  trailing_.erase(run);
  freed_.notify_all();
}

// Counts itself in `dispatching` before it looks at `taken`: see try_take().
Lane& Runtime::pass(int device) {
  const auto try_pass = [](Lane& lane) {
    lane.dispatching.fetch_add(1);
    if (!lane.taken.load()) [[likely]]
      return true;
    done_dispatching(lane);
    return false;
  };
  Lane& main = *lanes_[size_of(device)];
  if (try_pass(main)) [[likely]]
    return main;
  // From the other end than take(), so that the two seldom meet. If every lane that there can be
  // has a run in its calls, queueing behind one is all that is left.
  while (true) {
    const std::size_t end = lane_count();
    Lane* busy = &main;
    for (std::size_t i = end; i-- > main_lanes_;) {
      Lane& lane = *lanes_[i];
      if (lane.queue != main.queue || lane.grouped) continue;
      if (try_pass(lane)) return lane;
      busy = &lane;
    }
    if (add_lanes(*main.backend, main.backend->spare.at_a_time, false, end)) continue;
    if (host::nesting() && main.backend->is_full)  // it may be behind the one that it is nested in
      refuse("a host function runs a program, and all lanes are taken by runs inside their calls");
    busy->dispatching.fetch_add(1);
    return *busy;
  }
}

}  // namespace postern::internal::run
