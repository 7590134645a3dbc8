// Joining a cluster, and how its processes agree that a run has failed.
#include "cluster/cluster.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <postern/error.h>
#include <postern/sharding.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "core/check.h"
#include "core/log.h"

namespace postern {

Cluster cluster() {
  const clusters::Cluster& c = clusters::Cluster::get();
  return {c.rank(), c.size(), c.transport() ? c.transport()->name : ""};
}

MeshAxis::MeshAxis(std::string axis, Processes count)
    : name(std::move(axis)),
      size(count.count ? count.count : clusters::Cluster::get().size()),
      of_processes(true) {}

}  // namespace postern

namespace postern::clusters {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

std::mutex choice_guard;
std::string chosen;
std::chrono::milliseconds chosen_patience{10'000};
std::atomic<Cluster*> made{nullptr};

constexpr int notice_kind = 0;
constexpr int kinds = 4, most_devices = 64;

std::string wanted_library() {
  const std::scoped_lock lock(choice_guard);
  if (!chosen.empty()) return chosen;
  const char* const name = std::getenv("POSTERN_CLUSTER");
  return name ? name : "";
}

/// A name is looked for beside Postern, then where the system looks; a path is taken as it is.
void* load(const std::string& name) {
  std::vector<std::string> tried;
  if (name.find('/') != std::string::npos) {
    tried = {name};
  } else {
    const std::string file = fmt::format("libpostern_{}.so", name);
    Dl_info info{};
    std::error_code ignored;
    if (dladdr(reinterpret_cast<const void*>(&wanted_library), &info) && info.dli_fname)
      tried.push_back(fs::canonical(info.dli_fname, ignored).parent_path() / file);
    tried.push_back(file);
  }
  std::string why;
  for (const std::string& path : tried) {
    // The parts that an MPI loads in its turn find it among the global symbols.
    if (void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    why += fmt::format("{}{}", why.empty() ? "" : "; ", dlerror());
  }
  throw PluginError(ErrorCode::not_found,
                    fmt::format("cluster '{}': its library cannot be loaded: {}", name, why));
}

const Transport* open_transport(const std::string& name) {
  void* const library = load(name);
  const auto open = reinterpret_cast<OpenTransport*>(dlsym(library, "postern_transport"));
  if (!open)
    throw PluginError(ErrorCode::not_found,
                      fmt::format("cluster '{}': the library has no postern_transport", name));
  const char* error = nullptr;
  const Transport* const transport = open(&error);
  if (!transport)
    throw PluginError(ErrorCode::failed_precondition, fmt::format("cluster '{}': {}", name, error));
  if (transport->version != transport_version)
    throw PluginError(ErrorCode::failed_precondition,
                      fmt::format("cluster '{}': the library is for version {} of the interface, "
                                  "this is {}",
                                  name, transport->version, transport_version));
  return transport;
}

[[noreturn]] void throw_ended(const std::string& text) { throw Error(ErrorCode::aborted, text); }

}  // namespace

void choose(const std::string& library, std::chrono::milliseconds patience) {
  const std::scoped_lock lock(choice_guard);
  if (made.load() && !library.empty() && library != chosen)
    throw Error(ErrorCode::failed_precondition,
                fmt::format("configure: the cluster is already joined; it cannot be '{}' any more",
                            library));
  chosen = library;
  chosen_patience = patience;
}

std::chrono::milliseconds patience() {
  const std::scoped_lock lock(choice_guard);
  return chosen_patience;
}

int rank_now() {
  const Cluster* const c = made.load(std::memory_order_acquire);
  return c ? c->rank() : 0;
}

Cluster& Cluster::get() {
  // Never destroyed: runs may end after main.
  static Cluster* const cluster = [] {
    auto* const c = new Cluster;
    made.store(c, std::memory_order_release);
    return c;
  }();
  return *cluster;
}
Cluster* Cluster::joined() { return made.load(std::memory_order_acquire); }

Cluster::Cluster() {
  if (const std::string name = wanted_library(); !name.empty()) transport_ = open_transport(name);
}

int Cluster::tag(int kind, int device, std::uint64_t epoch) const {
  if (device < 0 || device >= most_devices)
    throw Error(ErrorCode::unimplemented,
                fmt::format("collectives over processes: a process takes part with at most {} "
                            "devices, this is device {}",
                            most_devices, device));
  const auto per_epoch = static_cast<std::uint64_t>(kinds * most_devices);
  const auto epochs = static_cast<std::uint64_t>(transport_->tags) / per_epoch;
  return static_cast<int>(epoch % epochs * per_epoch) + device * kinds + kind;
}

Turn Cluster::enter(std::uint64_t run, int device) {
  const std::scoped_lock lock(guard_);
  read_notices();
  if (run == given_up_ || (run_.number == run && run_.epoch != epoch_.load()))
    throw_ended(ended_by_);
  if (run_.number != run || !run_.active) {
    if (run_.active && run_.epoch == epoch_.load())
      throw Error(ErrorCode::failed_precondition,
                  "another run of this process is in collectives over processes; wait for its end "
                  "first, for processes would meet in any order");
    run_ = {run, epoch_.load(), true, {}};
  }
  if (!notices_.empty() && notices_.front().epoch == epoch_.load()) {
    ended_by_ = notices_.front().text.data();
    notices_.pop_front();
    epoch_.fetch_add(1);
    throw_ended(ended_by_);
  }
  return {run_.epoch, run_.sequences[device]++};
}

void Cluster::leave(std::uint64_t run) {
  const std::scoped_lock lock(guard_);
  if (run_.number == run) run_.active = false;
}

void Cluster::check(std::uint64_t epoch) {
  const std::scoped_lock lock(guard_);
  if (epoch_.load() == epoch) read_notices();
  if (epoch_.load() == epoch && !notices_.empty() && notices_.front().epoch == epoch) {
    ended_by_ = notices_.front().text.data();
    notices_.pop_front();
    epoch_.fetch_add(1);
  }
  if (epoch_.load() != epoch) throw_ended(ended_by_);
}

/// Keeps what has come, the earliest epoch first; of epochs that are over nothing.
void Cluster::read_notices() {
  while (transport_) {
    bool there = false;
    int from = 0;
    std::size_t bytes = 0;
    const int tag_of_notices = tag(notice_kind, 0, 0);
    if (transport_->look(tag_of_notices, &there, &from, &bytes) || !there) break;
    Notice notice;
    Transport::Request request;
    if (transport_->receive(from, tag_of_notices, &notice, sizeof notice, &request)) break;
    bool through = false;  // it has come, so this ends
    while (!through)
      if (transport_->test(&request, &through)) break;
    notice.text.back() = '\0';
    const auto place = std::ranges::upper_bound(notices_, notice.epoch, {}, &Notice::epoch);
    notices_.insert(place, notice);
  }
  while (!notices_.empty() && notices_.front().epoch < epoch_.load()) notices_.pop_front();
}

void Cluster::run_failed(std::uint64_t run, const std::string& why) noexcept {
  try {
    const std::scoped_lock lock(guard_);
    if (run_.number == run && run_.epoch != epoch_.load()) return;
    if (run_.active && run_.number != run) given_up_ = run_.number;
    run_ = {run, epoch_.load(), false, {}};
    ended_by_ = fmt::format("the run has failed on process {}: {}", rank(), why);
    const std::uint64_t ended = epoch_.fetch_add(1);
    tell(ended, ended_by_);
  } catch (...) {
    log_line("a run over processes failed, and there was no memory to tell the others");
  }
}

/// Short messages leave at once; those that a busy network holds back are kept until they have
/// left.
void Cluster::tell(std::uint64_t epoch, const std::string& text) noexcept {
  if (!transport_) return;
  const auto notice = std::make_shared<Notice>();
  notice->epoch = epoch;
  const std::size_t n = std::min(text.size(), notice->text.size() - 1);
  std::memcpy(notice->text.data(), text.data(), n);
  std::vector<Transport::Request> requests;
  for (int to = 0; to < size(); ++to) {
    if (to == rank()) continue;
    Transport::Request request;
    if (!transport_->send(to, tag(notice_kind, 0, 0), notice.get(), sizeof *notice, &request))
      requests.push_back(request);
  }
  const auto limit = Clock::now() + std::chrono::milliseconds(50);
  while (!requests.empty() && Clock::now() < limit) {
    std::erase_if(requests, [&](Transport::Request& r) {
      bool through = false;
      return transport_->test(&r, &through) || through;
    });
    if (!requests.empty()) std::this_thread::yield();
  }
  if (requests.empty()) return;
  static auto* const late = new std::vector<std::shared_ptr<const Notice>>;  // guard_ is held
  late->push_back(notice);
}

}  // namespace postern::clusters
