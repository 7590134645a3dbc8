// Asynchronous taps: copies, back-pressure, delivery.
//
// A device's queue is one linked list, oldest invocation first, under one lock. Programs push at
// its end; one host thread, which lives while there is work, takes batches from its front. The lock
// is never held while user code runs, nor while large leaves are copied. What counts against the
// limit (`held_`) does so from the moment an invocation has its block until it was delivered.
#include "host/queue.h"

#include <postern/detail/small_vector.h>

#include <array>
#include <cstring>
#include <new>
#include <thread>

#include "core/check.h"
#include "core/lists.h"
#include "core/log.h"
#include "host/enter.h"
#include "host/executor.h"
#include "host/live.h"
#include "host/timeline.h"
#include "host/unobserved.h"

namespace postern::internal::host {

using namespace std::chrono_literals;
using std::memory_order_acquire, std::memory_order_relaxed, std::memory_order_release;

namespace {

constexpr std::size_t default_limit = std::size_t{256} << 20;
constexpr std::size_t copied_under_lock = 2048;
constexpr std::size_t retained_when_idle = std::size_t{1} << 20;
constexpr std::size_t batch_size = 256;
std::atomic<std::size_t> limit{default_limit};

std::size_t aligned(std::size_t bytes) {
  if (bytes < 64) return (bytes + 15) / 16 * 16;
  return (bytes + 63) / 64 * 64;
}

}  // namespace

/// One invocation; its leaves and mask follow in the same block. Of neighbours with one source the
/// last one owns it, which is handed on as more arrive: counting owners would have two threads
/// fight for the counter. What a scalar needs fits in two lines of the cache, which go from one
/// core to another.
struct TapQueue::Item {
  Item* next = nullptr;
  Item* before = nullptr;
  Item* next_of_place = nullptr;
  const HostSite* site;
  TapSource* source;
  std::shared_ptr<TapSource> owner = {};
  std::size_t size;  // of the block
  std::size_t held;  // of the queue's bytes
  std::uint64_t number = 0;
  std::int64_t element;
  int device;
  std::int16_t leaves_at;
  bool masked;
  std::unique_ptr<Transfer> transfer = {};  // instead of leaves in the block
  std::unique_ptr<std::shared_ptr<const ListenerSite>> keeps = {};  // `site`, if it is one

  /// Where leaves of that size begin: the large ones are aligned for anything.
  static std::int16_t leaves_of(const HostSite& site) {
    std::size_t largest = 0;
    for (std::size_t i = 0; i < site.operands; ++i) largest = std::max(largest, site.leaf_bytes[i]);
    return aligned(largest) < 64 ? 112 : 128;
  }
  static std::size_t bytes(const HostSite& site, std::size_t mask) {
    std::size_t total = size_of(leaves_of(site)) + mask;
    for (std::size_t i = 0; i < site.operands; ++i) total += aligned(site.leaf_bytes[i]);
    return total;
  }
  std::byte* leaves() { return reinterpret_cast<std::byte*>(this) + leaves_at; }
  void fill(void* const* data, std::span<const bool> live) {
    std::byte* to = leaves();
    for (std::size_t i = 0; i < site->operands; ++i) {
      std::memcpy(to, data[i], site->leaf_bytes[i]);
      to += aligned(site->leaf_bytes[i]);
    }
    if (!live.empty()) std::memcpy(to, live.data(), live.size());
  }
  /// Where the leaves are in the block; the end of the last.
  std::byte* point_at_leaves(void** data) {
    std::byte* leaf = leaves();
    for (std::size_t i = 0; i < site->operands; ++i) {
      data[i] = leaf;
      leaf += aligned(site->leaf_bytes[i]);
    }
    return leaf;
  }
};

bool TapQueue::fits(std::size_t bytes) const {
  return held_ == 0 || held_ + bytes <= limit.load(memory_order_relaxed);
}

/// Waits until the block fits, or a listener waits for the run. False: the run is stopped.
bool TapQueue::wait_for_space(Lock& lock, RunState& run, const HostSite& site, std::size_t bytes) {
  if (!std::exchange(told_full_, true))
    log(LogLevel::warning,
        "the tap queue of device {} is full ({} bytes, Config::tap_queue_bytes): programs wait for "
        "its listeners, first at {}",
        device_, limit.load(), describe(*site.spec));
  const timeline::Span span(timeline::Kind::wait, "room in the tap queue", device_, run.number);
  ++waiters_;
  wait_at(space_, lock, &run, [&] { return fits(bytes) || run.must_not_wait(); });
  --waiters_;
  return !run.stop.load(memory_order_relaxed);
}

/// There is more room, and less to deliver.
void TapQueue::tell_waiters() {
  if (waiters_.load(memory_order_relaxed) == 0) return;
  space_.notify_all();
  done_.notify_all();
}

void TapQueue::look_for_room() {
  const Lock lock(guard_);
  tell_waiters();
}

/// Taps that keep only their last invocations never wait: older ones of the same place go first.
/// False when this one has to go.
bool TapQueue::make_room_among_own(const HostSite& site, std::size_t bytes, Gone& gone) {
  const auto found = kept_.find(site.spec.get());
  if (found == kept_.end()) return fits(bytes);
  Kept& own = found->second;
  while (own.count > 0 && (own.count >= site.spec->tap.keep_last || !fits(bytes))) {
    drop_oldest(own, gone);
    site.spec->tap.counts->dropped.fetch_add(1, memory_order_relaxed);
    ++dropped_;
  }
  return fits(bytes);
}

// Queues one invocation, of data and mask or of what is fetched.
//
// 1. Makes room. A tap that keeps only its last ones loses the oldest of its own, or this one;
//    any other waits while the queue is full, unless a listener waits for its run.
// 2. Takes a block, and starts the delivery thread if none is there.
// 3. Copies the leaves: few bytes under the lock, more without it, while the block counts already.
// 4. Appends the invocation. Its place in the order is decided here, not when it began to wait.
bool TapQueue::push(const Invocation& i) {
  static_assert(sizeof(Item) <= 112);
  RunState& run = i.run;
  const HostSite& site = i.site;
  const Fetch* const fetch = i.fetch;
  const std::size_t held =
      MemoryPool::size_for(Item::bytes(site, i.mask.size()) + (fetch ? Transfer::overhead : 0));
  const std::size_t size = fetch ? MemoryPool::size_for(sizeof(Item)) : held;
  TapSource& source = run.tap_source();
  using Owner = std::shared_ptr<const ListenerSite>;
  auto keeps = i.listener ? std::make_unique<Owner>(*i.listener) : nullptr;
  Gone gone;
  Lock lock(guard_, std::defer_lock);
  acquire(lock);
  if (site.spec->tap.keep_last > 0) {
    if (!make_room_among_own(site, held, gone)) {
      site.spec->tap.counts->dropped.fetch_add(1, memory_order_relaxed);
      ++dropped_;
      return true;
    }
  } else if (!fits(held)) {
    // Held for as long: the runs around this one are looked at, and none may go under the lock.
    for (auto r = run.around.lock(); r; r = r->around.lock()) gone.push_back(r);
    if (!run.must_not_wait() && !wait_for_space(lock, run, site, held)) return false;
  }
  if (!running_) {
    run_on_host_thread([this] { work(); });
    running_ = true;
  }
  if (const std::size_t most = limit.load(memory_order_relaxed), with = held_ + held;
      !pool_.has(size) && pool_.retained() + with > most)
    pool_.trim(most - std::min(with, most));
  Item* const item = new (pool_.take(size)) Item{.site = &site,
                                                 .source = &source,
                                                 .size = size,
                                                 .held = held,
                                                 .element = i.element,
                                                 .device = i.device,
                                                 .leaves_at = Item::leaves_of(site),
                                                 .masked = !i.mask.empty(),
                                                 .keeps = std::move(keeps)};
  held_ += held;
  peak_ = std::max(peak_, held_);
  try {
    if (fetch || size > copied_under_lock) lock.unlock();
    if (fetch)
      item->transfer = (*fetch)();
    else
      item->fill(i.data, i.mask);
    if (!lock.owns_lock()) acquire(lock);
    if (site.spec->tap.keep_last > 0) make_room_among_own(site, 0, gone);  // others may have come
    append(item);
  } catch (...) {
    const auto kept = std::move(item->keeps);  // goes after the lock, as what was lost
    if (!lock.owns_lock()) acquire(lock);
    release(item);
    lock.unlock();
    throw;
  }
  if (sleeping_) wake_.notify_one();
  return true;
}

void TapQueue::append(Item* item) {
  Kept* own = nullptr;
  if (item->site->spec->tap.keep_last > 0) own = &kept_[item->site->spec.get()];  // may throw
  item->number = next_++;
  item->before = last_;
  item->owner = last_ && last_->source == item->source ? std::move(last_->owner)
                                                       : item->source->shared_from_this();
  (last_ ? last_->next : first_) = item;
  last_ = item;
  linked_.store(linked_.load(memory_order_relaxed) + 1, memory_order_release);
  if (!own) return;
  (own->last ? own->last->next_of_place : own->first) = item;
  own->last = item;
  ++own->count;
}

/// Takes the oldest invocation of a place out of the queue; it is lost.
void TapQueue::drop_oldest(Kept& own, Gone& gone) {
  Item* const item = own.first;
  const bool hands_on = item->owner && item->before && item->before->source == item->source;
  if (item->keeps || (item->owner && !hands_on)) gone.reserve(gone.size() + 2);  // may throw
  if (hands_on)
    item->before->owner = std::move(item->owner);
  else if (item->owner)
    gone.push_back(std::move(item->owner));
  if (item->keeps) gone.push_back(std::move(*item->keeps));
  own.first = item->next_of_place;
  if (!own.first) own.last = nullptr;
  --own.count;
  (item->before ? item->before->next : first_) = item->next;
  (item->next ? item->next->before : last_) = item->before;
  linked_.store(linked_.load(memory_order_relaxed) - 1, memory_order_release);
  release(item);
}

void TapQueue::release(Item* item) noexcept {
  const std::size_t size = item->size;
  held_ -= item->held;
  item->~Item();
  pool_.give_back(item, size);
  tell_waiters();
}

bool TapQueue::wait_for_items(Lock& lock) {
  // A program that taps all the time is worth a moment of waiting awake: waking a thread costs the
  // program more than a whole invocation.
  lock.unlock();
  any_.until(yielding([&] { return linked_.load(memory_order_acquire) > 0; }));
  lock.lock();
  sleeping_ = true;
  const std::chrono::milliseconds idle(idle_ms);
  bool got = false;
  do got = wake_.wait_for(lock, idle, [&] { return first_ != nullptr; });
  while (!got && held_ > 0);  // a program copies into its block: it has seen that there is a thread
  sleeping_ = false;
  return got;
}

/// Invocations that come one by one, and listeners that are quick: a few microseconds later there
/// are more of them, which cost the program less if they are taken together. Nobody may be waiting.
/// Where none comes for a while it is not worth the time. Each look takes a line of the cache from
/// the program, so they are rare.
void TapQueue::linger(Lock& lock) {
  const std::size_t before = linked_.load(memory_order_relaxed);
  lock.unlock();
  const auto moment = std::min<std::chrono::nanoseconds>(20us, longest_spin());
  const auto until = Clock::now() + moment;
  const auto waited_for = [&] { return waiters_.load(memory_order_relaxed) > 0; };
  const auto comes = [&] { return linked_.load(memory_order_relaxed) > before; };
  if (more_.until(yielding([&] { return comes() || waited_for(); }), moment))
    while (linked_.load(memory_order_relaxed) < batch_size && !waited_for() &&
           Clock::now() < until) {
      const auto next_look = Clock::now() + 3us;
      while (Clock::now() < next_look) relax();
      std::this_thread::yield();
    }
  acquire(lock);
}

/// Moves the oldest invocations, at most so many, out of the list and into the hands of the
/// delivery thread; the first of them. All of them if there may be a whole batch and none can be
/// lost any more: then none has to be touched, which the program would wait for. Under the lock,
/// with at least one in the list.
TapQueue::Item* TapQueue::take(std::size_t most) {
  Item* const hands = first_;
  Item* youngest = last_;
  std::size_t count = linked_.load(memory_order_relaxed);
  if (most < batch_size || !kept_.empty()) {
    youngest = first_;
    for (count = 1;; ++count, youngest = youngest->next) {
      forget_kept(*youngest);
      if (count == most || !youngest->next) break;
    }
  }
  first_ = std::exchange(youngest->next, nullptr);
  (first_ ? first_->before : last_) = nullptr;
  if (!youngest->owner) youngest->owner = youngest->source->shared_from_this();
  hands_from_ = hands->number;
  in_hands_ = count;
  linked_.store(linked_.load(memory_order_relaxed) - count, memory_order_release);
  return hands;
}

/// Takes an invocation that is delivered off its place's list of those that newer ones may drop.
/// The oldest are taken first: it is the first of that list.
void TapQueue::forget_kept(const Item& item) {
  if (item.site->spec->tap.keep_last == 0) return;
  const auto own = kept_.find(item.site->spec.get());
  own->second.first = item.next_of_place;
  if (--own->second.count == 0) kept_.erase(own);
}

/// Delivers some invocations, so many at most, in order without the lock, gives their blocks back
/// and wakes who waits for room or for the end; the first of those that are left.
TapQueue::Item* TapQueue::deliver_some(Item* hands, std::size_t most, Lock& lock) {
  std::array<MemoryPool::Chain, 8> blocks;  // each of one size
  std::size_t count = 0, sizes = 0, held = 0;
  lock.unlock();
  for (; hands && count < most; ++count) {
    const std::size_t size = hands->size;
    if (!blocks[sizes].takes(size) && ++sizes == blocks.size()) break;  // the rest comes next
    Item* const item = std::exchange(hands, hands->next);
    deliver(*item);
    held += item->held;
    item->~Item();  // not under the lock: with a program its functions go, which are the user's
    blocks[sizes].add(item, size);
  }
  acquire(lock);
  for (const MemoryPool::Chain& chain : blocks) pool_.give_back(chain);
  held_ -= held;
  delivered_ += count;
  in_hands_ -= count;
  if (hands) hands_from_ = hands->number;
  tell_waiters();
  return hands;
}

/// Of what is kept until something was delivered, as far as that has been. Without the lock: what
/// goes with it may be the user's.
void TapQueue::let_go(Lock& lock) {
  while (!until_.empty() && !pending_before(until_.front().first)) {
    std::shared_ptr<void> what = std::move(until_.front().second);
    until_.pop_front();
    lock.unlock();
    what.reset();
    acquire(lock);
  }
}

// The delivery thread: until nothing has come for a while, takes invocations into its hands and
// delivers them, a batch at a time. Batches grow while listeners are quick, and fall back to one
// invocation when they are not: so what has been delivered makes room at once.
void TapQueue::work() {
  std::size_t most = 1;
  Item* hands = nullptr;
  Lock lock(guard_);
  while (hands || first_ || wait_for_items(lock)) {
    if (!hands && most > 1 && linked_.load(memory_order_relaxed) < batch_size &&
        waiters_.load(memory_order_relaxed) == 0) {
      linger(lock);
      if (!first_) continue;  // dropped meanwhile
    }
    if (!hands) hands = take(most);
    const auto start = Clock::now();
    hands = deliver_some(hands, most, lock);
    let_go(lock);
    most = Clock::now() - start < 50us ? std::min(most * 2, batch_size) : 1;
  }
  pool_.trim(retained_when_idle);
  running_ = false;
}

void TapQueue::deliver(Item& item) noexcept {
  const HostSite& site = *item.site;
  TapSource& source = *item.source;
  detail::SmallVector<void*, HostSite::few> in_block;
  std::exception_ptr error;
  ErrorCode code = ErrorCode::threw;
  try {
    in_block.resize(site.operands);
    const std::byte* const mask = item.point_at_leaves(in_block.data());
    void* const* const data = item.transfer ? item.transfer->wait() : in_block.data();
    const SiteSpec& spec = *site.spec;
    const timeline::Span span(timeline::Kind::delivery, spec.name, device_, source.number);
    const Beginning here{{.site = &site, .device = item.device, .depth = 1, .delivery = true}};
    NestingScope scope(&here);
    source.floats.set();  // the thread has no other use of its own
    TapInfo info = site.info(item.device, &source);
    info.run = source.number;
    info.context = source.context;
    info.sink = source.sink;
    info.element = item.element;
    if (item.masked)
      info.mask = {reinterpret_cast<const bool*>(mask), size_of(spec.batch.mask_size)};
    if (spec.tap.counts) info.dropped = spec.tap.counts->dropped.load(memory_order_relaxed);
    const detail::Firing firing{site.leaves.data(), data, site.operands, 0, &info, &site.declared};
    if (enter_function(site, firing, error, code)) {
      if (!source.end.load(memory_order_relaxed)) [[likely]]
        return;
      if (const auto run = source.run.lock()) run->request(Outcome::stopped);
      return;
    }
  } catch (...) {
    error = std::current_exception();
  }
  try {
    keep_unobserved(callback_error(code, site, item.device, error));
  } catch (...) {
    log_line("a tap failed, and there was no memory to say how");
  }
}

bool TapQueue::pending_before(std::uint64_t number) const {
  return (in_hands_ && hands_from_ < number) || (first_ && first_->number < number);
}

std::size_t TapQueue::wait(std::optional<Clock::time_point> until) {
  Lock lock(guard_);
  const auto done = [&, last = next_] { return !pending_before(last); };
  ++waiters_;
  done_.wait_until(lock, until.value_or(never), done);
  --waiters_;
  if (done()) return 0;
  return in_hands_ + linked_.load();
}

void TapQueue::keep_until_delivered(const std::shared_ptr<void>& what) {
  Lock lock(guard_);
  if (pending_before(next_)) until_.emplace_back(next_, what);
}

TapQueueStats TapQueue::stats() const {
  Lock lock(guard_);
  return {delivered_, dropped_, in_hands_ + linked_.load(), held_, peak_, limit.load()};
}

static constexpr std::size_t most_devices = 1024;
static std::array<std::atomic<TapQueue*>, most_devices> queues;

TapQueue& tap_queue(int device) {
  auto& place = queues[size_of(std::max(device, 0)) % most_devices];
  if (TapQueue* q = place.load(memory_order_acquire)) [[likely]]
    return *q;
  // Never destroyed: the delivery thread may outlive main.
  auto* made = new TapQueue(device);
  TapQueue* none = nullptr;
  if (place.compare_exchange_strong(none, made)) return *made;
  delete made;
  return *none;
}

void look_for_room() {
  for (auto& queue : queues)
    if (TapQueue* q = queue.load(memory_order_acquire)) q->look_for_room();
}

void set_tap_queue_limit(std::size_t bytes) {
  limit = bytes ? bytes : default_limit;
  look_for_room();
}

std::size_t wait_for_taps(std::optional<RunState::Clock::time_point> until) {
  std::size_t left = 0;
  for (auto& queue : queues)
    if (TapQueue* q = queue.load(memory_order_acquire)) left += q->wait(until);
  return left;
}

void keep_until_delivered(const std::shared_ptr<void>& what) {
  for (auto& queue : queues)
    if (TapQueue* q = queue.load(memory_order_acquire)) q->keep_until_delivered(what);
}

}  // namespace postern::internal::host

namespace postern {
using namespace internal;

TapQueueStats tap_queue_stats(int device, Place place) {
  PlaceScope at(place);
  check(device >= 0, "tap_queue_stats: a device is counted from 0, got {}", device);
  return host::tap_queue(device).stats();
}

}  // namespace postern
