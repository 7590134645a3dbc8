// Pinned memory, given out again when the device has done with it.
#include "platform/gpu/staging.h"

#include <algorithm>
#include <map>
#include <utility>

namespace postern::internal::gpu {

Staging::Staging(const Driver& driver, void* context)
    : driver_(driver),
      context_(context),
      pool_({nullptr,  // is asked only for what it has
             [](void* self, void* block, std::size_t size) {
               auto* const staging = static_cast<Staging*>(self);
               staging->driver_.free(block);
               staging->bytes_ -= size;
             },
             this}) {}

void* Staging::allocate(std::size_t size) {
  void* memory = nullptr;
  if (const int error = driver_.allocate(&memory, size); error != 0)
    throw Error(ErrorCode::resource_exhausted,
                std::string(driver_.name) + " failed to pin " + std::to_string(size) +
                    " bytes of host memory: " + driver_.describe(error));
  bytes_ += size;
  return memory;
}

/// Gives the pool the blocks whose event has passed. Under the lock. An event that failed counts as
/// one to come: the error of the device shows where somebody waits for it.
void Staging::reclaim() noexcept {
  std::erase_if(in_flight_, [&](const InFlight& each) {
    bool ready = false;
    if (driver_.is_ready(each.event, &ready) != 0 || !ready) return false;
    pool_.give_back(each.block, each.size);
    events_.push_back(each.event);  // there is room: see taken_event()
    return true;
  });
}

void Staging::reserve(std::span<const std::size_t> sizes) {
  std::vector<Block> held;  // at a time, so that there are as many
  std::size_t total = 0;
  for (const std::size_t size : sizes) {
    held.emplace_back(*this, size);
    total += host::MemoryPool::size_for(size);
  }
  const std::scoped_lock lock(guard_);
  kept_ = std::max(kept_, total);
}

void Staging::give_back(void* block, std::size_t size) noexcept {
  const std::scoped_lock lock(guard_);
  pool_.give_back(block, size);
  pool_.trim(kept_);
}

void Staging::give_back_after(void* stream, void* block, std::size_t size) noexcept {
  try {
    void* const event = record(stream);
    const std::scoped_lock lock(guard_);
    in_flight_.push_back({event, block, size});
  } catch (...) {
    // Nobody can tell when the device has done with the block, so nobody gets it again.
  }
}

/// Takes an event that nobody uses, or makes one. Each that is made has a place in `events_` from
/// the start: giving it back allocates nothing.
void* Staging::taken_event() {
  void* event = nullptr;
  std::unique_lock lock(guard_);
  if (!events_.empty()) {
    event = events_.back();
    events_.pop_back();
    return event;
  }
  events_.reserve(++events_made_);
  lock.unlock();
  driver_.check(driver_.create_event(&event), "to make an event");
  return event;
}

void* Staging::record(void* stream) {
  void* const event = taken_event();
  if (const int error = driver_.record(event, stream); error != 0) {
    give_back(event);
    driver_.check(error, "to record an event");
  }
  return event;
}

void Staging::give_back(void* event) noexcept {
  const std::scoped_lock lock(guard_);
  events_.push_back(event);
}

Staging::Block::Block(Staging& staging, std::size_t bytes)
    : staging_(&staging), size_(host::MemoryPool::size_for(bytes)) {
  std::unique_lock lock(staging.guard_);
  staging.reclaim();
  void* memory = nullptr;
  if (staging.pool_.has(size_)) memory = staging.pool_.take(size_);
  lock.unlock();  // to pin memory takes as long as the device likes
  if (!memory) memory = staging.allocate(size_);
  data_ = static_cast<std::byte*>(memory);
}

Staging::Block::Block(Block&& other) noexcept { *this = std::move(other); }

Staging::Block& Staging::Block::operator=(Block&& other) noexcept {
  std::swap(staging_, other.staging_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(stream_, other.stream_);
  std::swap(in_use_, other.in_use_);
  return *this;
}

Staging::Block::~Block() {
  if (!data_) return;
  if (in_use_)
    staging_->give_back_after(stream_, data_, size_);
  else
    staging_->give_back(data_, size_);
}

Staging& staging_in(const Driver& driver, void* context) {
  static Mutex guard;
  static auto& all =
      *new std::map<std::pair<const Driver*, void*>,
                    std::unique_ptr<Staging>>;  // never destroyed: XLA's threads may outlive main
  const std::scoped_lock lock(guard);
  auto& staging = all[{&driver, context}];
  if (!staging) staging = std::make_unique<Staging>(driver, context);
  return *staging;
}

Staging& staging_of(const Driver& driver, void* stream) {
  void* context = nullptr;
  driver.check(driver.context_of(stream, &context), "to find the context of a stream");
  return staging_in(driver, context);
}

}  // namespace postern::internal::gpu
