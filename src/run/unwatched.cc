// Counts what was started until XLA says that it is over, and enters it into the timeline.
#include "run/unwatched.h"

#include <atomic>
#include <string>
#include <utility>

#include "run/failures.h"
#include "run/runtime.h"

namespace postern::internal::run {

using host::timeline::Clock;
using host::timeline::Kind;

namespace {

struct Unwatched {
  std::uint64_t started;  // XLA's threads must not outlive the plug-in's statics
  Kind kind;
  std::string name;
  int device;
  Clock::time_point start;
  std::shared_ptr<const void> keep;

  static void ended(void* user, const pjrt::Failure*) noexcept {
    const std::unique_ptr<Unwatched> work(static_cast<Unwatched*>(user));
    if (host::timeline::on())
      host::timeline::add(work->kind, work->name, work->start, Clock::now(), work->device);
    work->keep.reset();
    Runtime::existing().remove_started(work->started);
  }
};

}  // namespace

void follow(const pjrt::Event& complete, Kind kind, std::string_view name, int device,
            Clock::time_point start, std::shared_ptr<const void> keep) {
  // Of the first alone: XLA has made its statics by then, and each call adds an exit handler.
  static std::atomic<int> seen{0};
  if (seen.load(std::memory_order_relaxed) < 64 && seen.fetch_add(1) < 64)
    drain_before_what_is_new();
  Runtime& runtime = Runtime::get();
  auto work = std::make_unique<Unwatched>(Unwatched{0, kind, {}, device, start, std::move(keep)});
  work->started = runtime.add_started();
  try {
    if (host::timeline::on()) work->name = name;
    complete.on_ready(Unwatched::ended, work.get());
    work.release();  // ended() frees it
  } catch (...) {
    runtime.remove_started(work->started);
    throw;
  }
}

}  // namespace postern::internal::run
