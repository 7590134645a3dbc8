// MemoryPool: memory that is given out again, by size, so that a steady stream of copies allocates
// nothing.
#pragma once
#include <array>
#include <cstddef>

namespace postern::internal::host {

/// Where a pool has its blocks from.
struct MemorySource {
  void* (*allocate)(void* user, std::size_t size);
  void (*free)(void* user, void* block, std::size_t size);
  void* user = nullptr;
};
/// Aligned for any dtype and for XLA (64 bytes).
extern const MemorySource heap_memory;

/// Not thread-safe.
class MemoryPool {
  struct Free {
    Free* next;
    Free* ahead;  // two below `next`: what is below a block stays there until that is taken
  };
  static Free* stacked(void* block, Free* below) noexcept;

 public:
  explicit MemoryPool(const MemorySource& source = heap_memory) : source_(source) {}
  ~MemoryPool() { trim(0); }

  /// Returns the size of the block that `bytes` bytes come in: four sizes for each power of two.
  static std::size_t size_for(std::size_t bytes);

  /// Takes a block; `size` is what size_for said.
  void* take(std::size_t size);
  bool has(std::size_t size) const { return free_[index_of(size)] != nullptr; }
  void give_back(void* block, std::size_t size) noexcept;

  /// Blocks of one size, which are given back at once however many they are.
  class Chain {
   public:
    bool takes(std::size_t size) const { return count_ == 0 || size == size_; }
    void add(void* block, std::size_t size) noexcept;

   private:
    friend MemoryPool;
    Free* first_ = nullptr;
    Free* last_ = nullptr;
    std::size_t size_ = 0, count_ = 0;
  };
  void give_back(const Chain& chain) noexcept;

  std::size_t retained() const { return retained_; }
  /// Frees blocks, the largest first, until at most so many bytes are retained.
  void trim(std::size_t keep) noexcept;

 private:
  static std::size_t index_of(std::size_t size);
  MemorySource source_;
  std::array<Free*, 256> free_{};
  std::size_t retained_ = 0;
};

}  // namespace postern::internal::host
