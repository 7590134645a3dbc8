// Recycled memory.
#include "host/memory_pool.h"

#include <bit>
#include <new>

namespace postern::internal::host {

namespace {

constexpr std::size_t smallest = 128;
constexpr auto alignment = std::align_val_t{64};

/// Blocks come back from another core, whose cache holds them: they are asked for early. Two lines
/// are all of a scalar's invocation.
void prefetch_to_write(const void* block) {
  __builtin_prefetch(block, 1);
  __builtin_prefetch(static_cast<const std::byte*>(block) + 64, 1);
}

}  // namespace

constinit const MemorySource heap_memory{
    [](void*, std::size_t size) { return ::operator new(size, alignment); },
    [](void*, void* block, std::size_t) { ::operator delete(block, alignment); }};

// Above each power of two there are four sizes, a quarter of it apart: behind 128 are 160, 192, 224
// and 256. By these index_of counts, four to a power.
std::size_t MemoryPool::size_for(std::size_t bytes) {
  if (bytes <= smallest) return smallest;
  const std::size_t quarter = std::bit_floor(bytes - 1) / 4;
  return (bytes + quarter - 1) / quarter * quarter;
}

std::size_t MemoryPool::index_of(std::size_t size) {
  const auto power = static_cast<std::size_t>(std::bit_width(size - 1)) - 1;
  const std::size_t quarter = (std::size_t{1} << power) / 4;
  return power * 4 + (size - 1 - (std::size_t{1} << power)) / quarter;
}

void* MemoryPool::take(std::size_t size) {
  Free*& first = free_[index_of(size)];
  if (!first) return source_.allocate(source_.user, size);
  Free* const block = first;
  first = block->next;
  retained_ -= size;
  if (block->ahead) prefetch_to_write(block->ahead);
  return block;
}

/// Puts a block on top of a stack. Whoever takes it prefetches the third below it.
MemoryPool::Free* MemoryPool::stacked(void* block, Free* below) noexcept {
  Free* third = below;
  for (int place = 1; place < 3 && third; ++place) third = third->next;
  return new (block) Free{below, third};
}

void MemoryPool::give_back(void* block, std::size_t size) noexcept {
  Free*& first = free_[index_of(size)];
  first = stacked(block, first);
  retained_ += size;
}

void MemoryPool::Chain::add(void* block, std::size_t size) noexcept {
  first_ = stacked(block, first_);
  if (!last_) last_ = first_;
  size_ = size;
  ++count_;
}

void MemoryPool::give_back(const Chain& chain) noexcept {
  if (chain.count_ == 0) return;
  Free*& first = free_[index_of(chain.size_)];
  chain.last_->next = first;
  first = chain.first_;
  retained_ += chain.size_ * chain.count_;
}

void MemoryPool::trim(std::size_t keep) noexcept {
  for (std::size_t i = free_.size(); i-- > 0 && retained_ > keep;) {
    const std::size_t power = std::size_t{1} << (i / 4);
    const std::size_t size = power + (i % 4 + 1) * (power / 4);  // whose index is i
    while (free_[i] && retained_ > keep) {
      Free* const block = free_[i];
      free_[i] = block->next;
      retained_ -= size;
      source_.free(source_.user, block, size);
    }
  }
}

}  // namespace postern::internal::host
