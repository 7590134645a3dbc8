// Clients, lanes, configuration.
#include "run/runtime.h"

#include <algorithm>
#include <cstdlib>

#include "block/registry.h"
#include "core/check.h"
#include "cuda/handler.h"
#include "host/handler.h"
#include "host/queue.h"
#include "host/run_state.h"
#include "host/timeline.h"
#include "pjrt/ffi.h"
#include "run/failures.h"

namespace postern {

namespace {

std::mutex config_guard;
Config wanted;
bool in_use = false;

int environment_number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  if (!text || !*text) return otherwise;
  char* end = nullptr;
  const long value = std::strtol(text, &end, 10);
  check(*end == '\0' && value > 0 && value <= 1024, "{} must be a number from 1 to 1024, got '{}'", name, text);
  return static_cast<int>(value);
}

Config settled() {
  std::scoped_lock lock(config_guard);
  Config c = wanted;
  if (c.cpu_devices == 0) c.cpu_devices = environment_number("POSTERN_CPU_DEVICES", 1);
  if (const char* name = std::getenv("POSTERN_PLATFORM"); c.platform.empty() && name) c.platform = name;
  if (c.platform.empty()) c.platform = "cpu";
  check(c.platform == "cpu" || c.platform == "cuda", "POSTERN_PLATFORM, Config::platform: '{}' is neither cpu nor cuda", c.platform);
  if (c.plugin.empty()) c.plugin = pjrt::default_plugin_path(c.platform);
  if (const char* dir = std::getenv("POSTERN_CACHE_DIR"); c.cache_dir.empty() && dir) c.cache_dir = dir;
  if (c.max_reentry == 0) c.max_reentry = 32;
  in_use = true;
  return c;
}

}  // namespace

void configure(const Config& config) {
  check(config.cpu_devices >= 0 && config.cpu_devices <= 1024, "configure: cpu_devices must be from 1 to 1024 (0: default), got {}",
        config.cpu_devices);
  check(config.max_reentry >= 0 && config.max_reentry <= 1024, "configure: max_reentry must be from 1 to 1024 (0: default), got {}",
        config.max_reentry);
  check(config.exit_limit.count() >= 0, "configure: exit_limit must not be negative, got {} ms", config.exit_limit.count());
  std::scoped_lock lock(config_guard);
  if (in_use) throw Error(ErrorCode::failed_precondition, "configure: the runtime is already in use; configure before the first operation");
  wanted = config;
}

std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  run::Runtime& runtime = run::Runtime::get();
  for (int i = 0; i < runtime.device_count(); ++i) out.push_back({i, runtime.platform()});
  return out;
}

}  // namespace postern

namespace postern::run {

namespace {

/// A plug-in for GPUs that cannot be loaded: most often the machine has no driver for them.
const pjrt::Plugin& load_plugin(const Config& config) {
  if (config.platform == "cuda") static_cast<void>(cuda::load_driver());
  return pjrt::Plugin::load(config.plugin);
}

constexpr int spare_lanes = 64;
/// Runs that are not nested leave this many lanes to those that are.
constexpr int lanes_for_nested = 40;
std::atomic<Runtime*> existing{nullptr};

}  // namespace

bool Runtime::exists() { return existing.load() != nullptr; }

Runtime& Runtime::get() {
  // Never destroyed: users' own statics may hold tensors, and PJRT destroys a client beneath runs whose results were dropped, which
  // crashes. What is in flight is drained at exit, see failures.cc.
  static Runtime* const runtime = [] {
    Runtime* r = nullptr;
    try {
      r = new Runtime(settled());
    } catch (...) {
      std::scoped_lock lock(config_guard);
      in_use = false;  // another plug-in may do better
      throw;
    }
    existing = r;
    drain_at_exit(r->config().exit_limit);
    return r;
  }();
  return *runtime;
}

Runtime::Runtime(Config config) : config_(std::move(config)), plugin_(&load_plugin(config_)) {
  clients_[0] = make_client(config_.cpu_devices);
  host::timeline::start_from_environment();
  host::set_tap_queue_limit(config_.tap_queue_bytes);
  blocks::native_calls = plugin_->ffi() != nullptr;
  if (plugin_->ffi()) {  // else only programs without calls are compiled whole
    host::run_state_type = pjrt::register_type(*plugin_, "postern.run");
    register_handlers();
  }
  blocks::set_platform(config_.platform);
  main_lanes_ = clients_[0].devices().size();
  for (std::size_t i = 0; i < main_lanes_ + spare_lanes; ++i) {
    lanes_.push_back(std::make_unique<Lane>());
    lanes_[i]->index = static_cast<int>(i);
    lanes_[i]->client = i < main_lanes_ ? 0 : 1;
    lanes_[i]->device = i < main_lanes_ ? static_cast<int>(i) : 0;
    lanes_[i]->memory = on_gpus() ? static_cast<int>(i % main_lanes_) : 0;
    if (i < main_lanes_) lanes_[i]->handle = clients_[0].devices()[i];
  }
}

pjrt::Client Runtime::make_client(int cpu_devices) const {
  if (!on_gpus()) return pjrt::Client::cpu(*plugin_, cpu_devices);
  try {
    pjrt::Client client = pjrt::Client::cuda(*plugin_);
    if (client.devices().empty()) throw Error(ErrorCode::not_found, "it lists no device");
    return client;
  } catch (const Error& e) {
    throw PluginError(e.code(), fmt::format("no GPU can be used through the plug-in {}: {}", plugin_->path(), e.what()));
  }
}

void Runtime::register_handlers() const {
  if (on_gpus()) return cuda::register_handlers(*plugin_);
  if (cuda::has_stand_in()) return cuda::register_stand_in(*plugin_);
  pjrt::register_handler(*plugin_, host::call_target, host::handle_call);
  pjrt::register_handler(*plugin_, host::goes_on_target, host::handle_goes_on);
}

/// For the rooms above that register handlers.
const pjrt::Plugin& plugin_in_use();
const pjrt::Plugin& plugin_in_use() { return Runtime::get().plugin(); }

const pjrt::Client& Runtime::client(int index) {
  if (index == 1) make_spare();
  return clients_[index];
}

void Runtime::make_spare() {
  if (spare_ready_.load(std::memory_order_acquire)) return;
  std::scoped_lock lock(guard_);
  if (spare_ready_.load()) return;
  // A client of its own, so that its thread pools are neither blocked by the main one's callbacks nor make those larger than the machine.
  clients_[1] = make_client(spare_lanes);
  const auto& devices = clients_[1].devices();
  for (std::size_t i = 0; i < spare_lanes; ++i) lanes_[main_lanes_ + i]->handle = devices[i % devices.size()];
  spare_ready_.store(true, std::memory_order_release);
}

Lane* Runtime::try_take(Lane& lane) {
  bool free = false;
  if (lane.taken.load(std::memory_order_relaxed) || !lane.taken.compare_exchange_strong(free, true)) return nullptr;
  if (lane.dispatching.load() == 0) {
    lane.started.store(false, std::memory_order_relaxed);
    lane.run.store(next_run(), std::memory_order_release);
    return &lane;
  }
  leave(lane);  // somebody may be about to queue behind us
  return nullptr;
}

bool Runtime::try_take(const std::vector<Lane*>& lanes) {
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    if (try_take(*lanes[i])) continue;
    while (i-- > 0) leave(*lanes[i]);
    return false;
  }
  return true;
}

namespace {

/// Of a run that a host function starts.
[[noreturn]] void refuse_nested(const host::Nesting& nested, const std::string& why) {
  throw CallbackError(ErrorCode::reentry, why, nested.site ? Site{nested.site->spec->name, nested.site->spec->place} : Site{},
                      nested.device, nullptr);
}

}  // namespace

void Runtime::check_depth() const {
  const host::Nesting* nested = host::nesting();
  if (nested && nested->depth >= config_.max_reentry)
    refuse_nested(*nested,
                  fmt::format("a host function runs a program that calls back: {} levels deep, {} are allowed (Config::max_reentry)",
                              nested->depth, config_.max_reentry));
}

void Runtime::wait_for_a_lane() {
  const host::timeline::Span span(host::timeline::Kind::wait, "a free lane");
  std::unique_lock lock(guard_);
  ++waiting_;
  freed_.wait_for(lock, std::chrono::milliseconds(20));
  --waiting_;
}

LaneGroup Runtime::take(const std::vector<int>& devices) {
  check_depth();
  LaneGroup main{0, {}};
  for (const int d : devices) main.lanes.push_back(lanes_[static_cast<std::size_t>(d)].get());
  if (try_take(main.lanes)) return main;
  const host::Nesting* nested = host::nesting();
  if (!nested) {
    while (!try_take(main.lanes)) wait_for_a_lane();
    return main;
  }
  // The lanes may be those of the run that is calling: a nested run never waits for them.
  make_spare();
  // Side by side on CPU devices, which are virtual; one for each GPU, of which some are wanted.
  const std::size_t step = on_gpus() ? main_lanes_ : devices.size();
  for (std::size_t first = main_lanes_; first + step <= lanes_.size(); first += step) {
    LaneGroup spare{1, {}};
    for (std::size_t i = 0; i < devices.size(); ++i)
      spare.lanes.push_back(lanes_[first + (on_gpus() ? static_cast<std::size_t>(devices[i]) : i)].get());
    if (!try_take(spare.lanes)) continue;
    for (std::size_t i = 0; i < devices.size(); ++i) spare.lanes[i]->device = devices[i];
    return spare;
  }
  refuse_nested(*nested,
                fmt::format("a host function runs a program on {} devices, and all {} spare lanes are taken by runs inside their own calls",
                            devices.size(), spare_lanes));
}

Lane& Runtime::take(int device) {
  check_depth();
  const host::Nesting* nested = host::nesting();
  Lane& main = *lanes_[static_cast<std::size_t>(device)];
  if (Lane* lane = try_take(main)) return *lane;
  make_spare();
  const std::size_t end = lanes_.size() - (nested ? 0 : lanes_for_nested);
  while (true) {
    for (std::size_t i = main_lanes_; i < end; ++i)
      if (Lane* lane = lanes_[i]->memory == main.memory ? try_take(*lanes_[i]) : nullptr) {
        lane->device = device;
        return *lane;
      }
    if (nested)
      refuse_nested(*nested,
                    fmt::format("a host function runs a program that calls back, and all {} lanes are taken by runs inside their own calls",
                                lanes_.size()));
    if (Lane* lane = try_take(main)) return *lane;
    wait_for_a_lane();
  }
}

void Runtime::leave(Lane& lane) {
  lane.taken.store(false);
  if (waiting_.load() == 0) [[likely]]
    return;
  std::scoped_lock lock(guard_);
  freed_.notify_all();
}

void Runtime::wait_for(const Lane& lane, std::uint64_t run) {
  const host::timeline::Span span(host::timeline::Kind::wait, "earlier programs");
  ++waiting_;
  std::unique_lock lock(guard_);
  freed_.wait(lock, [&] { return has_left(lane, run); });
  --waiting_;
}

std::size_t Runtime::wait_for_runs(std::optional<std::chrono::steady_clock::time_point> until,
                                   const std::vector<host::RunName>& but) {
  ++waiting_;
  std::unique_lock lock(guard_);
  const std::uint64_t last = runs_.load(), last_started = tickets_;
  auto pending = [&] {
    std::size_t plain = 0, on_lane = 0;
    for (const auto& lane : lanes_) {
      const std::uint64_t run = lane->run.load();
      if (lane->taken.load() && run <= last && !std::ranges::count(but, run, &host::RunName::lane_run))
        ++(lane->started.load() ? on_lane : plain);
    }
    // A started run counts once: it may have no lane yet, or none any more.
    const auto started =
        std::count_if(started_.begin(), started_.upper_bound(last_started), [&](std::uint64_t t) {
          return !std::ranges::count(but, t, &host::RunName::ticket);
        });
    return plain + std::max(on_lane, static_cast<std::size_t>(started));
  };
  auto done = [&] { return pending() == 0; };
  if (until)
    freed_.wait_until(lock, *until, done);
  else
    freed_.wait(lock, done);
  --waiting_;
  return pending();
}

std::uint64_t Runtime::add_started() {
  std::scoped_lock lock(guard_);
  started_.insert(++tickets_);
  return tickets_;
}

void Runtime::remove_started(std::uint64_t ticket) {
  std::scoped_lock lock(guard_);
  started_.erase(ticket);
  freed_.notify_all();
}

Lane& Runtime::pass(int device) {
  Lane& main = *lanes_[static_cast<std::size_t>(device)];
  main.dispatching.fetch_add(1, std::memory_order_acquire);
  if (!main.taken.load()) [[likely]]
    return main;
  done_dispatching(main);
  make_spare();
  // From the other end than take(), so that the two seldom meet. If every lane has a run in its calls, queueing behind one is all that is
  // left.
  Lane* last = nullptr;
  for (std::size_t i = lanes_.size(); i-- > main_lanes_;) {
    Lane& lane = *lanes_[i];
    if (lane.memory != main.memory) continue;
    lane.dispatching.fetch_add(1, std::memory_order_acquire);
    if (!lane.taken.load()) return lane;
    done_dispatching(lane);
    last = &lane;
  }
  last->dispatching.fetch_add(1, std::memory_order_acquire);
  return *last;
}

}  // namespace postern::run
