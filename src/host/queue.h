// TapQueue: the undelivered invocations of a device's asynchronous taps, and the thread that
// delivers them in order.
#pragma once
#include <postern/run.h>
#include <postern/tap.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "host/memory_pool.h"
#include "host/run_end.h"
#include "host/spin.h"
#include "host/stage.h"

namespace postern::internal::host {

/// An invocation's leaves on their way to host memory.
class Transfer {
 public:
  virtual ~Transfer() = default;
  /// Waits until they have arrived; where each of them is. Throws Error.
  virtual void* const* wait() = 0;
  /// What it is counted for beside the leaves: its events and lists, and what small leaves are
  /// rounded up by.
  static constexpr std::size_t overhead = 256;
};

class TapQueue {
 public:
  using Clock = RunState::Clock;

  explicit TapQueue(int device) : device_(device) {}

  /// Copies one invocation into the queue, waiting while that is full, or has it fetched when there
  /// is room. Its mask, if any, is the site's, and then it is of no element. False when the run was
  /// stopped meanwhile. Allocates nothing once blocks of its size have come back. Throws, with
  /// nothing queued, what the system throws when it has no memory or thread, or what fetching does.
  bool push(const Invocation& i);

  /// Waits until everything that is in the queue now has been delivered; how many invocations were
  /// not when the limit passed.
  std::size_t wait(std::optional<Clock::time_point> limit);
  /// Lets go of `what` when everything that is in the queue now has been delivered.
  void keep_until_delivered(const std::shared_ptr<void>& what);

  /// Has those look again who wait for room.
  void look_for_room();

  TapQueueStats stats() const;

  static inline std::atomic<int> idle_ms{5000};  // then the delivery thread ends; tests shorten it

 private:
  struct Item;
  struct Kept {  // the undelivered invocations of one place, oldest first
    Item* first = nullptr;
    Item* last = nullptr;
    std::int64_t count = 0;
  };
  using Lock = std::unique_lock<Mutex>;

  bool fits(std::size_t bytes) const;
  bool wait_for_space(Lock& lock, RunState& run, const HostSite& site, std::size_t bytes);
  void tell_waiters();
  /// What lost invocations kept alive. Goes after the lock: functions of the user's may be in it.
  using Gone = std::vector<std::shared_ptr<const void>>;
  bool make_room_among_own(const HostSite& site, std::size_t bytes, Gone& gone);
  void append(Item* item);
  void drop_oldest(Kept& own, Gone& gone);
  void release(Item* item) noexcept;
  bool pending_before(std::uint64_t number) const;

  Item* take(std::size_t most);
  void forget_kept(const Item& item);
  void let_go(Lock& lock);
  void work();
  Item* deliver_some(Item* hands, std::size_t most, Lock& lock);
  bool wait_for_items(Lock& lock);
  void linger(Lock& lock);
  void deliver(Item& item) noexcept;

  const int device_;
  mutable Mutex guard_;
  Condition wake_, done_;
  StopCondition space_;
  Item* first_ = nullptr;
  Item* last_ = nullptr;
  std::atomic<std::size_t> linked_{0};  // the delivery thread looks at it without the lock
  Spin any_, more_;                     // for a first invocation, and for those behind it
  std::size_t in_hands_ = 0;            // of the delivery thread, from number hands_from_ on
  std::uint64_t hands_from_ = 0, next_ = 0;
  std::deque<std::pair<std::uint64_t, std::shared_ptr<void>>> until_;  // below it is delivered
  MemoryPool pool_;
  std::size_t held_ = 0, peak_ = 0;  // bytes of undelivered invocations
  std::uint64_t delivered_ = 0, dropped_ = 0;
  std::unordered_map<const SiteSpec*, Kept> kept_;  // of taps that keep only their last invocations
  bool running_ = false, sleeping_ = false, told_full_ = false;
  std::atomic<int> waiters_{0};  // for room or for the end
};

/// Returns the queue of a device; it lives as long as the process.
TapQueue& tap_queue(int device);
void set_tap_queue_limit(std::size_t bytes);  // 0: the default
/// Has those look again, on all devices, who wait for room: other things than room have changed.
void look_for_room();

/// Waits on all devices: see TapQueue::wait.
std::size_t wait_for_taps(std::optional<RunState::Clock::time_point> limit);
/// Does as TapQueue::keep_until_delivered. It goes on any thread.
void keep_until_delivered(const std::shared_ptr<void>& what);

/// Calls `ended` when the run has ended, and then, when the last tap of it was delivered,
/// `delivered`. A run that is started where a queue delivers does not wait for queues, for that one
/// may wait for it.
template <class Ended, class Delivered>
void at_end_and_delivery(detail::StartedRun& run, const Ended& ended, const Delivered& delivered) {
  const bool waits = !in_delivery();
  detail::at_end_of(run, [ended, delivered, waits] {
    ended();
    const std::shared_ptr<void> last(nullptr, [delivered](void*) { delivered(); });
    if (waits) keep_until_delivered(last);
  });
}

}  // namespace postern::internal::host
