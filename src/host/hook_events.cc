// The events of a run's hooks as a stream: a bounded queue between the listeners and whoever reads.
#include <postern/hook.h>

#include <deque>

#include "core/fork.h"
#include "core/mutex.h"
#include "core/never_destroyed.h"
#include "host/queue.h"
#include "host/run_end.h"

namespace postern::detail {
using namespace internal;

class EventQueue {
 public:
  /// Adds an event when there is room, or the run is over; or it comes from a tap queue, in which
  /// the last events of another stream may be behind it, and somebody waits for such.
  void push(HookEvent event, const StopState* run) {
    std::unique_lock lock(all_.guard);
    const bool from_tap_queue = host::in_delivery();
    const auto goes = [&] {
      const bool holds_up_last_events = from_tap_queue && all_.last_awaited > 0;
      return events_.size() < most || over_ || closed_ || holds_up_last_events;
    };
    host::wait_at(all_.room, lock, run, goes);
    if (closed_) return;
    events_.push_back(std::move(event));
    news_.notify_one();
  }
  /// Waits for the next event; nothing behind the last one.
  std::optional<HookEvent> next() {
    refuse_forked();
    std::unique_lock lock(all_.guard);
    const auto has_news = [&] { return !events_.empty() || ended_ || closed_; };
    news_.wait(lock, [&] { return over_ || has_news(); });
    if (!has_news()) {  // the run is over: see push
      ++all_.last_awaited;
      all_.room.notify_all();
      news_.wait(lock, has_news);
      --all_.last_awaited;
    }
    if (events_.empty()) return {};
    HookEvent event = std::move(events_.front());
    events_.pop_front();
    all_.room.notify_all();
    return event;
  }
  /// The run is over, and waits for nobody: what is still to come is in tap queues.
  void run_is_over() { note(over_); }
  /// The last event has come.
  void end() { note(ended_); }
  void close() {
    std::scoped_lock lock(all_.guard);
    closed_ = true;
    events_.clear();
    all_.room.notify_all();
    news_.notify_all();
  }

 private:
  void note(bool& what) {
    std::scoped_lock lock(all_.guard);
    what = true;
    all_.room.notify_all();
    news_.notify_all();
  }
  static constexpr std::size_t most = 1024;
  struct All {
    Mutex guard;
    StopCondition room;
    int last_awaited = 0;  // by so many, of runs that are over
  };
  static All& all() { return never_destroyed<All>(); }
  All& all_ = all();
  Condition news_;
  std::deque<HookEvent> events_;
  bool over_ = false, ended_ = false, closed_ = false;
};

std::shared_ptr<EventQueue> make_event_queue() { return std::make_shared<EventQueue>(); }

HookBinding event_listener(std::string name, std::shared_ptr<EventQueue> queue) {
  return {std::move(name),
          Callee([queue = std::move(queue)](const TapInfo& info, std::span<const AnyView> leaves) {
            HookEvent event{std::string(info.name),
                            {},
                            {info.paths.begin(), info.paths.end()},
                            info.place,
                            info.device,
                            info.transforms};
            for (const AnyView& leaf : leaves) event.values.push_back(Tensor::copy_of(leaf));
            queue->push(std::move(event), info.run_state);
          })};
}

void end_events_with(const std::shared_ptr<EventQueue>& queue, StartedRun& run) {
  host::at_end_and_delivery(
      run, [queue] { queue->run_is_over(); }, [queue] { queue->end(); });
}
std::optional<HookEvent> next_event(EventQueue& queue) { return queue.next(); }
void close_events(EventQueue& queue) { queue.close(); }

}  // namespace postern::detail
